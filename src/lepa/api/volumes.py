"""Volumes of nodes and of CSI plugins, and the plugins themselves.

The namespace of a volume is that of its body, else that of the query; what is checked and what is written are the same.
"""

from typing import Any

import msgspec
from aiohttp import web

from lepa.api.edge import ByVerb, Edge, Handle, Route, answers, read, write
from lepa.api.request import common, flag, json_object, json_response, member, read_request, reply_response
from lepa.model import wire
from lepa.model.errors import invalid, not_found
from lepa.model.volume import CSISnapshot, CSIVolume, HostVolume
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc import volume_requests as v

SECRETS = "X-Nomad-CSI-Secrets"
VOLUMES_MAX = 1
"""CSI volumes of one request: they are made one by one."""


async def list_volumes(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Volumes of one type; none without a type."""
    kind = request.query.get("type", "")
    if not kind:
        return json_response(request, [])
    if kind not in ("csi", "host"):
        return web.Response(status=404, text=f'unknown volume type "{kind}"')
    query = read_request(
        request,
        v.VolumeListRequest,
        plugin_id=request.query.get("plugin_id", ""),
        node_id=request.query.get("node_id", ""),
        node_pool=request.query.get("node_pool", ""),
    )
    method = m.CSI_VOLUME_LIST if kind == "csi" else m.HOST_VOLUME_LIST
    return reply_response(request, await edge.caller.call(method, query))


# Host volumes


def _write_host(method: m.Method[v.HostVolumeWriteRequest, v.HostVolumeWritten]) -> Handle:
    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        given = member(await json_object(request), "Volume")
        if not isinstance(given, dict):
            raise invalid("missing volume definition")
        volume = wire.from_builtins(given, HostVolume)
        call = v.HostVolumeWriteRequest(volume=volume, **_scoped(request, volume.namespace))
        reply = await edge.caller.call(method, call)
        return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})

    return answers(method)(handle)


def _scoped(request: web.Request, namespace: str) -> dict[str, Any]:
    """Region, token and the namespace that the object itself names."""
    found = common(request)
    return found | {"namespace": namespace} if namespace else found


@answers(m.HOST_VOLUME_DELETE)
async def delete_host(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Remove a host volume with what is in it."""
    call = v.VolumeRequest(id=request.match_info["id"], force=_force(request), **common(request))
    reply = await edge.caller.call(m.HOST_VOLUME_DELETE, call)
    return json_response(request, {"Index": reply.index}, headers={"X-Nomad-Index": str(reply.index)})


def _force(request: web.Request) -> bool:
    try:
        return flag(request.query, "force")
    except Exception as error:
        raise invalid("invalid force value") from error


@answers(m.VOLUME_CLAIM_LIST)
async def list_claims(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Volumes that instances of groups keep."""
    query = read_request(
        request,
        v.ClaimListRequest,
        job_id=request.query.get("job_id", ""),
        task_group=request.query.get("task_group", ""),
        volume_name=request.query.get("volume_name", ""),
    )
    return reply_response(request, await edge.caller.call(m.VOLUME_CLAIM_LIST, query))


# CSI


def _write_csi(method: m.Method[v.CSIVolumeWriteRequest, v.CSIVolumesWritten], *, volumes: bool) -> Handle:
    """volumes: answer with them (create), else with warnings alone (register)."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        given = member(await json_object(request), "Volumes") or []
        if not isinstance(given, list) or len(given) != VOLUMES_MAX:
            raise invalid(f"a request holds {VOLUMES_MAX} volume, found {len(given) if isinstance(given, list) else 0}")
        volume = wire.from_builtins(given[0], CSIVolume)
        if request.match_info.get("id", volume.id) not in ("", volume.id):
            raise invalid("Volume ID does not match request path")
        call = v.CSIVolumeWriteRequest(volumes=(volume,), **_scoped(request, volume.namespace))
        reply = await edge.caller.call(method, call)
        answer: dict[str, Any] = {"Warnings": reply.value.warnings, "Index": reply.index}
        if volumes:
            answer["Volumes"] = reply.value.volumes
        return json_response(request, answer, headers={"X-Nomad-Index": str(reply.index)})

    return answers(method)(handle)


def _change_csi(method: m.Method[v.VolumeRequest, None]) -> Handle:
    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        node = request.query.get("node", "")
        if method is m.CSI_VOLUME_DETACH and not node:
            raise invalid("detach requires node ID")
        call = v.VolumeRequest(
            id=request.match_info["id"], force=_force(request), node=node, secrets=_secrets(request), **common(request)
        )
        reply = await edge.caller.call(method, call)
        return json_response(request, None, headers={"X-Nomad-Index": str(reply.index)})

    return answers(method)(handle)


def _secrets(request: web.Request) -> dict[str, str]:
    """Secrets for the plugin, `k=v,k2=v2` in a header."""
    pairs = (part.partition("=") for part in request.headers.get(SECRETS, "").split(",") if "=" in part)
    return {name.strip(): value for name, _, value in pairs}


def _external(request: web.Request) -> v.CSIExternalRequest:
    plugin = request.query.get("plugin_id", "")
    if not plugin:
        raise invalid("plugin_id is required")
    size = request.query.get("per_page", "0")
    return v.CSIExternalRequest(
        plugin_id=plugin,
        per_page=int(size) if size.isdigit() else 0,
        next_token=request.query.get("next_token", ""),
        secrets=_secrets(request),
        **common(request),
    )


@answers(m.CSI_VOLUME_EXTERNAL)
async def list_external(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Volumes as the storage of a plugin knows them."""
    reply = await edge.caller.call(m.CSI_VOLUME_EXTERNAL, _external(request))
    return json_response(request, {"Volumes": reply.value.volumes, "NextToken": reply.value.next_token})


@answers(m.CSI_SNAPSHOT_LIST)
async def list_snapshots(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Snapshots as the storage of a plugin knows them."""
    reply = await edge.caller.call(m.CSI_SNAPSHOT_LIST, _external(request))
    return json_response(request, {"Snapshots": reply.value.snapshots, "NextToken": reply.value.next_token})


@answers(m.CSI_SNAPSHOT_CREATE)
async def create_snapshots(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make snapshots of volumes."""
    given = member(await json_object(request), "Snapshots") or []
    snapshots = tuple(msgspec.convert(wire.normalise(each, CSISnapshot), CSISnapshot) for each in given)
    reply = await edge.caller.call(m.CSI_SNAPSHOT_CREATE, v.CSISnapshotRequest(snapshots=snapshots, **common(request)))
    return json_response(request, {"Snapshots": reply.value.snapshots})


@answers(m.CSI_SNAPSHOT_DELETE)
async def delete_snapshot(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Remove a snapshot."""
    query = request.query
    if not query.get("plugin_id") or not query.get("snapshot_id"):
        raise invalid("plugin_id and snapshot_id are required")
    call = v.CSISnapshotRequest(
        plugin_id=query["plugin_id"], snapshot_id=query["snapshot_id"], secrets=_secrets(request), **common(request)
    )
    await edge.caller.call(m.CSI_SNAPSHOT_DELETE, call)
    return json_response(request, None)


@answers(m.CSI_PLUGIN_LIST)
async def list_plugins(edge: Edge, request: web.Request) -> web.StreamResponse:
    """CSI plugins; nothing without a type."""
    kind = request.query.get("type", "")
    if not kind:
        return json_response(request, [])
    if kind != "csi":
        raise not_found(f'unknown plugin type "{kind}"')
    return reply_response(request, await edge.caller.call(m.CSI_PLUGIN_LIST, read_request(request, r.ReadRequest)))


_REGISTER = _write_csi(m.CSI_VOLUME_REGISTER, volumes=False)
ROUTES = (
    Route("GET PUT POST", "volumes", ByVerb({"GET": list_volumes, "PUT": _REGISTER})),
    Route("GET", "volumes/external", list_external),
    Route(
        "GET PUT POST DELETE",
        "volumes/snapshot",
        ByVerb({"GET": list_snapshots, "PUT": create_snapshots, "DELETE": delete_snapshot}),
    ),
    Route("GET", "volumes/claims", list_claims),
    Route("DELETE", "volumes/claim/{id}", write(m.VOLUME_CLAIM_DELETE)),
    Route("PUT POST", "volume/host/create", _write_host(m.HOST_VOLUME_CREATE)),
    Route("PUT POST", "volume/host/register", _write_host(m.HOST_VOLUME_REGISTER)),
    Route(
        "GET DELETE",
        "volume/host/{id}",
        ByVerb({"GET": read(m.HOST_VOLUME_GET, missing="volume not found"), "DELETE": delete_host}),
    ),
    Route(
        "GET PUT POST DELETE",
        "volume/csi/{id}",
        ByVerb(
            {
                "GET": read(m.CSI_VOLUME_GET, missing="volume not found"),
                "PUT": _REGISTER,
                "DELETE": _change_csi(m.CSI_VOLUME_DEREGISTER),
            }
        ),
    ),
    Route("PUT POST", "volume/csi/{id}/create", _write_csi(m.CSI_VOLUME_CREATE, volumes=True)),
    Route("DELETE", "volume/csi/{id}/delete", _change_csi(m.CSI_VOLUME_DELETE)),
    Route("DELETE", "volume/csi/{id}/detach", _change_csi(m.CSI_VOLUME_DETACH)),
    Route("GET", "plugins", list_plugins),
    Route("GET", "plugin/csi/{id}", read(m.CSI_PLUGIN_GET, missing="plugin not found")),
)
