"""Requests for another node's allocations: find the node, pass the request on to its address, stream the answer.

A request is passed on to a node at most once: the header `X-Lepa-Forwarded` marks it. One about another region goes
to a server of that region first, marked by `X-Lepa-Region`: only that has to be reached from here. When the node is
lost in the middle of an answer, the answer breaks off, so that nobody takes a part for the whole.
"""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import WSMsgType, web

from lepa.api.doors import door_of
from lepa.api.edge import Edge
from lepa.api.request import token
from lepa.kit.sockets import watched_socket
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid, not_found
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.acl_requests import Authorized
from lepa.rpc.node_service import NodeService

FORWARDED = "X-Lepa-Forwarded"
VIA_REGION = "X-Lepa-Region"
CONNECT_S = 5.0
CHUNK = 64 * 1024
_HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "content-encoding", "upgrade", "keep-alive"}


async def node_of_allocation(edge: Edge, request: web.Request, alloc_id: str, door: str = "") -> NodeService | str:
    """This machine's node when it has the allocation, else the HTTP address of the node that has it.

    door: what the request passes, where its route does not tell.
    """
    if not alloc_id:
        raise invalid("must provide a valid alloc id")
    if edge.node is not None and edge.node.has_allocation(alloc_id):
        return edge.node
    return await address_of(edge, request, await edge.authorize(request, door or _door(request), alloc_id=alloc_id))


async def node_by_id(edge: Edge, request: web.Request, door: str = "") -> NodeService | str:
    """The node that `node_id` names, else this machine's own."""
    node_id = request.query.get("node_id", "")
    if edge.node is not None and node_id in {"", edge.node.node_id}:
        return edge.node
    if not node_id:
        raise invalid("No local Node and node_id not provided")
    return await address_of(edge, request, await edge.authorize(request, door or _door(request), node_id=node_id))


def _door(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return door_of(request.method, resource.canonical.removeprefix("/v1/") if resource is not None else "")


async def address_of(edge: Edge, request: web.Request, found: Authorized) -> str:
    """Where the answer is to come from: the node, or a server of its region. Raises LepaError(not_found) when there is
    no way to it."""
    region = request.query.get("region", "")
    if region not in ("", edge.settings.region):
        return await _server_of(edge, request, region)
    if FORWARDED in request.headers or not found.http_addr:
        raise not_found("No path to node")
    if edge.node is not None and found.node_id == edge.node.node_id:
        raise not_found("Unknown allocation: it is no longer on this node")
    return found.http_addr


async def _server_of(edge: Edge, request: web.Request, region: str) -> str:
    """The HTTP address of a server of another region, which knows the way to its nodes."""
    if VIA_REGION in request.headers:
        raise LepaError("not_found", "No path to region", http_status=500)
    alive = {member.name for member in (await edge.agent.members()).members if member.status == "alive"}
    servers = (await edge.caller.call(m.STATUS_SERVERS, r.ReadRequest(stale=True, region=region))).value
    for server in servers:
        if server.http_address and server.name in alive:
            request[VIA_REGION] = True
            return server.http_address
    raise LepaError("not_found", "No path to region", http_status=500)


async def server_by_id(edge: Edge, request: web.Request) -> str:
    """The HTTP address of the server that `server_id` names: by its name, with or without its region, or "leader".

    "" when this agent has to answer, because another one has sent the request here.
    """
    wanted = request.query.get("server_id", "")
    if FORWARDED in request.headers:
        return ""
    query = r.ReadRequest(stale=True)
    servers = (await edge.caller.call(m.STATUS_SERVERS, query)).value
    leader = (await edge.caller.call(m.STATUS_LEADER, query)).value if wanted == "leader" else ""
    if wanted == "leader" and not leader:
        raise LepaError("no_leader", "No cluster leader")
    for server in servers:
        names = {server.name, server.name.removesuffix(f".{server.region}")}
        if (leader == server.rpc_address if leader else wanted in names) and server.http_address:
            return server.http_address
    raise not_found(f'unknown server "{wanted}"; `lepa server members` lists them')


TLS = web.AppKey("TLS", object)
"""How other agents are called, an SSLContext; not there for plain text."""


@asynccontextmanager
async def _session(request: web.Request) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    tls = request.config_dict.get(TLS)
    connector = aiohttp.TCPConnector(
        socket_factory=watched_socket, ssl=tls if isinstance(tls, ssl.SSLContext) else True
    )
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False) as session:
        yield session


def _url(request: web.Request, address: str) -> str:
    scheme = "https" if TLS in request.config_dict else "http"
    return f"{scheme}://{address}{request.raw_path}"


async def pass_on(request: web.Request, address: str, *, whole: bool = True) -> web.StreamResponse:
    """The other node's answer, as it comes. whole False: the body of the request goes as it comes too."""
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return await _pass_on_websocket(request, address)
    headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS | {"host"}}
    headers[_mark(request)] = "1"
    body = await request.read() if whole else request.content
    async with _session(request) as session:
        try:
            upstream = await session.request(request.method, _url(request, address), headers=headers, data=body)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise not_found("No path to node") from error
        async with upstream:
            kept = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP_HEADERS}
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            async for chunk in _chunks(upstream):
                await response.write(chunk)
            await response.write_eof()
            return response


def _mark(request: web.Request) -> str:
    return VIA_REGION if request.get(VIA_REGION) else FORWARDED


async def _chunks(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it comes. Raises ConnectionError when the node is lost, so that the answer breaks off here too."""
    try:
        async for chunk in upstream.content.iter_chunked(CHUNK):
            yield chunk
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectionError(f"the node was lost: {error}") from error


async def _pass_on_websocket(request: web.Request, address: str) -> web.StreamResponse:
    return await join_websockets(request, web.WebSocketResponse(), address, token(request))


async def join_websockets(
    request: web.Request, near: web.WebSocketResponse, address: str, secret: str
) -> web.StreamResponse:
    """Carry messages between the caller and the other node until one of them ends. secret: shown to the node; what the
    caller said in a first message is not said again."""
    url = re.sub(r"([?&])ws_handshake=[^&]*", r"\1", _url(request, address))
    headers = {_mark(request): "1"} | ({"X-Nomad-Token": secret} if secret else {})
    async with _session(request) as session:
        try:
            far = await session.ws_connect(url, headers=headers)
        except aiohttp.WSServerHandshakeError as error:
            raise LepaError("invalid", error.message or "the node refused", http_status=error.status) from error
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise not_found("No path to node") from error
        if not near.prepared:
            await near.prepare(request)
        async with far, Tasks("api.forward") as tasks:
            upward = tasks.start("upward", _copy(near, far))
            await _copy(far, near)
            upward.cancel()
            await near.close(code=far.close_code or 1000)
    return near


Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _copy(source: Socket, target: Socket) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)
