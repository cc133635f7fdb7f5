"""Keys, transactions and sessions, stored through the agent's HTTP API."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from lepa.consul import bodies
from lepa.consul.edge import (
    Guest,
    Route,
    Waiting,
    flag,
    forward,
    headers,
    json_body,
    json_object,
    shown_response,
    waiting,
)
from lepa.consul.kv_views import (
    Owner,
    delete_operation,
    entry_view,
    key_names,
    new_session,
    session_view,
    txn_operations,
    txn_view,
    write_operation,
)
from lepa.kit.durations import SECOND, format_duration
from lepa.model.errors import LepaError, invalid
from lepa.sdk.connection import Answer

WAIT_MAX_S = 240.0
"""The longest wait that is handed on: a read of the agent's API has to end before its connection is given up."""


async def read_key(guest: Guest, request: web.Request) -> web.StreamResponse:
    """One key, what is below a prefix, or names only; 404 when there is nothing, which can be waited for too."""
    key, wait, query = request.match_info["key"], waiting(request), request.query
    if "keys" in query or "recurse" in query:
        answer = await guest.api.get("/v1/kv/entries", {"prefix": key} | _blocking(wait))
        entries = answer.value or []
    elif not key:
        raise invalid("Missing key name")
    else:
        answer = await _entry(guest, key, wait)
        entries = [answer.value] if answer.value else []
    extra = headers(answer.index, wait.consistency)
    if not entries:
        return web.Response(status=404, headers=extra)
    if "keys" in query:
        names = key_names([entry["Key"] for entry in entries], key, query.get("separator", ""))
        return shown_response(request, names, extra)
    if flag(query, "raw"):
        safe = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
        value = msgspec.convert(entries[0]["Value"], bytes)
        return web.Response(body=value, content_type="application/octet-stream", headers=extra | safe)
    return shown_response(request, [entry_view(entry) for entry in entries], extra)


async def _entry(guest: Guest, key: str, wait: Waiting) -> Answer:
    """One key, or nothing with the index to go on from."""
    try:
        return await guest.api.get("/v1/kv/entry", {"key": key} | _blocking(wait))
    except LepaError as error:
        if error.facts.get("status") != 404:
            raise
        return Answer(None, error.facts.get("index", 0))


def _blocking(wait: Waiting) -> dict[str, str | int | bool | None]:
    if not wait.seen:
        return {}
    return {"index": wait.seen, "wait": format_duration(int(min(wait.wait_s, WAIT_MAX_S) * SECOND))}


async def write_key(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Set a key, check and set, lock or unlock; whether it was done."""
    operation = write_operation(request.match_info["key"], await request.read(), request.query)
    return shown_response(request, (await _apply(guest, [operation]))["Applied"])


async def delete_key(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Delete a key, or all below a prefix; whether it was done."""
    operation = delete_operation(request.match_info["key"], request.query)
    return shown_response(request, (await _apply(guest, [operation]))["Applied"])


async def transact(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Operations on keys that are done together or not at all; 409 when not."""
    operations = txn_operations(await json_body(request))
    shown = txn_view(await _apply(guest, operations), operations)
    return shown_response(request, shown, status=409 if shown["Errors"] else 200)


async def _apply(guest: Guest, operations: list[dict[str, Any]]) -> Any:
    return (await forward(guest, "PUT", "/v1/kv", {"Operations": operations})).value


async def create_session(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Begin a session; its id."""
    body = await json_object(request)
    created = await forward(
        guest, "PUT", "/v1/session", new_session(body, _owner(guest, bodies.text(bodies.lowered(body), "node")))
    )
    return shown_response(request, {"ID": created.value})


def _owner(guest: Guest, name: str) -> Owner:
    """The node that a session names; this agent's when it names none."""
    if not name or name == guest.settings.node_name:
        return Owner(guest.settings.node_name, guest.settings.node_id)
    known = guest.catalog.view.table.node(name)
    if not known:
        raise LepaError("internal", "Missing node registration")
    return Owner(known[0].name, known[0].id)


async def destroy_session(guest: Guest, request: web.Request) -> web.StreamResponse:
    """End a session."""
    await forward(guest, "DELETE", f"/v1/session/{_segment(request)}")
    return shown_response(request, True)


async def renew_session(guest: Guest, request: web.Request) -> web.StreamResponse:
    """The owner of a session is alive; 404 when it is over."""
    renewed = await forward(guest, "PUT", f"/v1/session/{_segment(request)}/renew")
    return shown_response(request, [session_view(renewed.value)])


def _segment(request: web.Request) -> str:
    """The id that the path names, as one segment of another path."""
    return quote(request.match_info["id"], safe="")


async def session_info(guest: Guest, request: web.Request) -> web.StreamResponse:
    """One session, in a list that is empty when it is over."""
    return await _sessions(guest, request, lambda session: session["ID"] == request.match_info["id"])


async def node_sessions(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Sessions of one node."""
    return await _sessions(guest, request, lambda session: session["Node"] == request.match_info["node"])


async def list_sessions(guest: Guest, request: web.Request) -> web.StreamResponse:
    """All sessions."""
    return await _sessions(guest, request, lambda session: True)


async def _sessions(guest: Guest, request: web.Request, wanted: Callable[[Any], bool]) -> web.StreamResponse:
    wait = waiting(request)
    answer = await guest.api.get("/v1/sessions", _blocking(wait))
    shown = [session_view(session) for session in answer.value or [] if wanted(session)]
    return shown_response(request, shown, headers(answer.index, wait.consistency))


async def no_events(guest: Guest, request: web.Request) -> web.StreamResponse:
    """User events are not part of this: there are none."""
    return shown_response(request, [], headers(guest.catalog.view.changed))


ROUTES = (
    Route("GET", "kv/{key:.*}", read_key),
    Route("PUT", "kv/{key:.*}", write_key),
    Route("DELETE", "kv/{key:.*}", delete_key),
    Route("PUT", "txn", transact),
    Route("PUT", "session/create", create_session),
    Route("PUT", "session/destroy/{id}", destroy_session),
    Route("PUT", "session/renew/{id}", renew_session),
    Route("GET", "session/info/{id}", session_info),
    Route("GET", "session/node/{node}", node_sessions),
    Route("GET", "session/list", list_sessions),
    Route("GET", "event/list", no_events),
)
