"""The servers as a cluster: who keeps the state, how they do, snapshots. A server answers; other agents pass it on."""

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from lepa.api.edge import ByVerb, Edge, Route, answers
from lepa.api.forward import FORWARDED, pass_on
from lepa.api.request import (
    common,
    json_object,
    json_response,
    number,
    read_request,
    reply_response,
    text_response,
    with_durations,
)
from lepa.kit.durations import format_duration
from lepa.model.errors import LepaError, invalid
from lepa.model.operator import AUTOPILOT_DURATIONS, AutopilotConfiguration, canonical_autopilot
from lepa.model.wire import from_builtins, go_name
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.cluster_service import ClusterService, Peer, Transfer

ARCHIVE_BYTES_MAX: Final = 8 << 30
PIECE: Final = 256 << 10
UNHEALTHY: Final = 429

Answer = Callable[[ClusterService, web.Request], Coroutine[Any, Any, web.StreamResponse]]


def at_server(answer: Answer) -> Callable[[Edge, web.Request], Awaitable[web.StreamResponse]]:
    """A handler that needs a server of the region that is meant: this agent's, or else one that gets the request."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        region = request.query.get("region", "") or edge.settings.region
        cluster = edge.agent.cluster() if region == edge.settings.region else None
        if cluster is not None:
            return await answer(cluster, request)
        if FORWARDED in request.headers:
            raise LepaError("no_leader", "No cluster leader")
        servers = (await edge.caller.call(m.STATUS_SERVERS, r.ReadRequest(stale=True, region=region))).value
        address = next((server.http_address for server in servers if server.http_address), "")
        if not address:
            raise LepaError("no_leader", "no server with an HTTP address is known")
        return await pass_on(request, address, whole=False)

    handle.__name__, handle.__doc__ = answer.__name__, answer.__doc__
    return handle


async def raft_configuration(cluster: ClusterService, request: web.Request) -> web.StreamResponse:
    """The servers that keep the state."""
    return json_response(request, await cluster.peers())


async def remove_peer(cluster: ClusterService, request: web.Request) -> web.StreamResponse:
    """Take one out."""
    if "address" in request.query:
        raise invalid("removing a server by its address is not supported: name it by id")
    if not request.query.get("id"):
        raise invalid("Must specify ?id with the server's id")
    await cluster.remove_peer(request.query["id"])
    return json_response(request, None)


async def transfer_leadership(cluster: ClusterService, request: web.Request) -> web.StreamResponse:
    """Let a certain server lead; whoever is asked passes it on to that one."""
    named = {key: request.query[key] for key in ("id", "address") if key in request.query}
    if len(named) != 1:
        raise invalid("must specify either id or address" if named else "must specify id or address")
    ((key, value),) = named.items()
    if not value:
        raise invalid(f"{key} must not be empty")
    peers = (await cluster.peers()).servers
    to = next((peer for peer in peers if value == (peer.id if key == "id" else peer.address)), None)
    if to is None:
        listed = ", ".join(f"{peer.id} ({peer.address})" for peer in peers)
        raise invalid(f'no server has the {key} "{value}"; these keep the state: {listed}')
    before = next((peer for peer in peers if peer.leader), Peer())
    if to.leader:
        return json_response(request, Transfer(from_=before, to=to, noop=True))
    address = cluster.near(to.id)
    if address is None:
        await cluster.take_over()
        return json_response(request, Transfer(from_=before, to=to))
    if not address or FORWARDED in request.headers:
        raise LepaError("no_leader", f"{to.id} cannot be asked to lead: its HTTP address is not known here")
    return await pass_on(request, address, whole=False)


async def autopilot_health(cluster: ClusterService, request: web.Request) -> web.StreamResponse:
    """How they do; status 429 when that is not well."""
    health = await cluster.health()
    response = json_response(request, health)
    if not health.healthy:
        response.set_status(UNHEALTHY)
    return response


@answers(m.AUTOPILOT_GET)
async def autopilot_configuration(edge: Edge, request: web.Request) -> web.StreamResponse:
    """How they look after each other."""
    return reply_response(request, await edge.caller.call(m.AUTOPILOT_GET, read_request(request, r.ReadRequest)))


@answers(m.AUTOPILOT_SET, AutopilotConfiguration, ("cas",))
async def set_autopilot_configuration(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Change it, or (cas) only when nobody else has; whether it was changed. Keys that are left out are the usual."""
    body = with_durations(await json_object(request), *map(go_name, AUTOPILOT_DURATIONS))
    texts = {key: format_duration(value) for key, value in body.items() if _is_duration(key, value)}
    configuration = canonical_autopilot(from_builtins(body | texts, AutopilotConfiguration))
    call = r.AutopilotRequest(
        configuration=configuration,
        check_index="cas" in request.query,
        cas=number(request.query, "cas"),
        **common(request),
    )
    return json_response(request, (await edge.caller.call(m.AUTOPILOT_SET, call)).value)


def _is_duration(key: str, value: Any) -> bool:
    """One that is a number of nanoseconds, as Nomad's clients may send it too."""
    names = {go_name(name).lower() for name in AUTOPILOT_DURATIONS}
    return key.lower() in names and isinstance(value, int) and not isinstance(value, bool)


async def save_snapshot(cluster: ClusterService, request: web.Request) -> web.StreamResponse:
    """The whole state as an archive, with its digest."""
    path = await cluster.save_snapshot()
    try:
        headers = {"Digest": f"sha-256={_digest(path)}", "Content-Type": "application/x-gzip"}
        response = web.StreamResponse(headers=headers)
        response.content_length = path.stat().st_size
        await response.prepare(request)
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                await response.write(piece)
        await response.write_eof()
        return response
    finally:
        path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return base64.b64encode(hashlib.file_digest(file, "sha256").digest()).decode()


async def restore_snapshot(cluster: ClusterService, request: web.Request) -> web.StreamResponse:
    """An archive in the place of everything."""
    path = cluster.scratch()
    try:
        await _receive(request.content.iter_chunked(PIECE), path)
        await cluster.restore_snapshot(path)
    finally:
        path.unlink(missing_ok=True)
    return text_response(200, "")


async def _receive(pieces: AsyncIterator[bytes], path: Path) -> None:
    size = 0
    with path.open("wb") as file:
        async for piece in pieces:
            size += len(piece)
            if size > ARCHIVE_BYTES_MAX:
                raise invalid(f"the snapshot is larger than {ARCHIVE_BYTES_MAX} bytes")
            file.write(piece)
    if not size:
        raise invalid("the request has no body; it has to be a snapshot, as `lepa operator snapshot save` writes it")


async def not_here(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Nomad says 404 to a wrong verb here."""
    return web.Response(status=404)


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "operator/raft/configuration", at_server(raft_configuration)),
    Route("DELETE", "operator/raft/peer", at_server(remove_peer)),
    Route("GET PUT POST", "operator/raft/peer", not_here),
    Route("PUT POST", "operator/raft/transfer-leadership", at_server(transfer_leadership)),
    Route(
        "GET PUT POST",
        "operator/autopilot/configuration",
        ByVerb({"GET": autopilot_configuration, "PUT": set_autopilot_configuration}),
    ),
    Route("GET", "operator/autopilot/health", at_server(autopilot_health)),
    Route("GET", "operator/snapshot", at_server(save_snapshot)),
    Route("PUT POST", "operator/snapshot", at_server(restore_snapshot)),
)
