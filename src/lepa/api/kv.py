"""Keys, transactions on them, and sessions. These paths are lepa's own; Consul's API is made of them."""

from typing import Any

from aiohttp import web

from lepa.api.edge import Edge, Route, read, write
from lepa.api.request import NATURAL_END, json_object, read_request, reply_headers, reply_response
from lepa.model import wire
from lepa.model.kv import Session
from lepa.rpc import methods as m
from lepa.rpc.kv_requests import KvApplyRequest


async def get_entry(edge: Edge, request: web.Request) -> web.StreamResponse:
    """One key; 404 with the index that a blocking query may go on from when nobody has set it."""
    query = read_request(request, m.KV_GET.request, id=request.query.get("key", ""))
    reply = await edge.caller.call(m.KV_GET, query)
    if reply.value is None:
        return web.Response(status=404, text="key not found", headers=reply_headers(reply))
    return reply_response(request, reply)


async def _operations(request: web.Request) -> dict[str, Any]:
    call = wire.from_builtins(await json_object(request, integer_end=NATURAL_END), KvApplyRequest)
    return {"operations": call.operations}


async def _session(request: web.Request) -> dict[str, Any]:
    return {"session": wire.from_builtins(await json_object(request, required=False), Session)}


ROUTES = (
    Route("GET", "kv/entries", read(m.KV_LIST)),
    Route("GET", "kv/entry", get_entry),
    Route("PUT POST", "kv", write(m.KV_APPLY, fields=_operations)),
    Route("GET", "sessions", read(m.SESSION_LIST)),
    Route("PUT POST", "session", write(m.SESSION_CREATE, fields=_session)),
    Route("GET", "session/{id}", read(m.SESSION_GET, missing="session not found")),
    Route("PUT POST", "session/{id}/renew", write(m.SESSION_RENEW)),
    Route("DELETE", "session/{id}", write(m.SESSION_DESTROY)),
)
