"""Variables: `/v1/vars` and `/v1/var/PATH`."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from lepa.api.edge import Edge, Route
from lepa.api.request import (
    common,
    json_object,
    json_response,
    member,
    number,
    read_request,
    reply_headers,
    typed_member,
)
from lepa.kit.durations import format_duration, parse_duration
from lepa.model.acl import VariableLock
from lepa.model.errors import LepaError, invalid, not_found
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.acl_requests import VariableApplyRequest, VariableView

LOCKS = ("lock-acquire", "lock-renew", "lock-release")


def variable_json(variable: VariableView) -> dict[str, Any]:
    """A variable as the API shows it: a lock's durations as texts, no items where they are not shown."""
    found: dict[str, Any] = {"Namespace": variable.namespace, "Path": variable.path}
    if variable.lock is not None:
        lock = variable.lock
        shown = {"TTL": format_duration(lock.ttl), "LockDelay": format_duration(lock.lock_delay)}
        found["Lock"] = ({"ID": lock.id} if lock.id else {}) | shown
    found |= {
        "CreateIndex": variable.create_index,
        "CreateTime": variable.create_time,
        "ModifyIndex": variable.modify_index,
        "ModifyTime": variable.modify_time,
    }
    return found | ({"Items": variable.items} if variable.items is not None else {})


async def list_variables(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Variables of a namespace by path, without their items."""
    reply = await edge.caller.call(m.VARIABLE_LIST, read_request(request, r.ReadRequest))
    return json_response(request, list(map(variable_json, reply.value)), headers=reply_headers(reply))


async def one_variable(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Everything about one variable."""
    path = request.match_info["path"]
    if not path:
        raise invalid("missing variable path")
    if request.method == "GET":
        return await _get(edge, request, path)
    if request.method == "DELETE":
        removal = VariableApplyRequest(
            operation="delete-cas" if "cas" in request.query else "delete", path=path, cas=_cas(request)
        )
        return await _apply(edge, request, removal)
    return await _apply(edge, request, await _written(request, path))


async def _get(edge: Edge, request: web.Request, path: str) -> web.StreamResponse:
    reply = await edge.caller.call(m.VARIABLE_GET, read_request(request, r.ReadRequest, id=path))
    if reply.value is None:
        raise not_found("variable not found")
    return json_response(request, variable_json(reply.value), headers=reply_headers(reply))


async def _written(request: web.Request, path: str) -> VariableApplyRequest:
    """What the body and the parameters ask for."""
    locks = [name for name in LOCKS if name in request.query]
    if len(locks) > 1:
        raise invalid("multiple lock operations")
    if locks and "cas" in request.query:
        raise invalid("CAS can't be used with lock operations")
    body = await json_object(request)
    items: dict[str, Any] = typed_member(body, "Items", dict, {})
    for name, value in items.items():
        if not isinstance(value, str):
            raise invalid(f'Items: the value of "{name}" has to be a text')
    if not locks and not items:
        raise invalid("variable missing required Items object")
    operation: Any = locks[0] if locks else "cas" if "cas" in request.query else "set"
    return VariableApplyRequest(
        operation=operation,
        path=path,
        items=items,
        lock=_lock(member(body, "Lock"), required=bool(locks)),
        cas=_cas(request),
        namespace=typed_member(body, "Namespace", str, ""),
    )


def _lock(given: Any, *, required: bool) -> VariableLock | None:
    if given is None:
        return VariableLock() if required else None
    if not isinstance(given, dict):
        raise invalid("Lock must be an object")
    return VariableLock(
        id=typed_member(given, "ID", str, ""), ttl=_duration(given, "TTL"), lock_delay=_duration(given, "LockDelay")
    )


def _duration(body: Mapping[str, Any], name: str) -> int:
    value = member(body, name, 0)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_duration(str(value)) if value else 0
    except ValueError as error:
        raise invalid(f"{name}: {error}") from error


def _cas(request: web.Request) -> int:
    try:
        return number(request.query, "cas")
    except LepaError as error:
        raise invalid(f'can not parse cas: "{request.query["cas"]}" is not a number') from error


async def _apply(edge: Edge, request: web.Request, call: VariableApplyRequest) -> web.StreamResponse:
    given = common(request)
    namespace = call.namespace or given.get("namespace", "")
    reply = await edge.caller.call(m.VARIABLE_APPLY, replace(call, **(given | {"namespace": namespace})))
    headers = {"X-Nomad-Index": str(reply.index)}
    if reply.value.conflict is not None:
        return json_response(request, variable_json(reply.value.conflict), headers=headers, status=409)
    if reply.value.output is None:
        return web.Response(status=204, headers=headers)
    return json_response(request, variable_json(reply.value.output), headers=headers)


ROUTES = (
    Route("GET", "vars", list_variables),
    Route("GET PUT POST DELETE", "var/{path:.*}", one_variable),
)
