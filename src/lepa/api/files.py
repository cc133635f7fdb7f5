"""What only the node knows: files, logs, figures and life-cycle commands of its allocations, below `/v1/client/`.

Each route finds the node first. Another node's allocations are asked for at that node.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from aiohttp import web

from lepa.api.edge import Edge, Handle, Route
from lepa.api.forward import node_by_id, node_of_allocation, pass_on
from lepa.api.request import JSON, TEXT, flag, json_object, json_response, number, token, typed_member
from lepa.kit.tasks import Tasks
from lepa.model import wire
from lepa.model.errors import LepaError, invalid
from lepa.rpc.node_service import NodeService, StreamFrame

HEARTBEAT_S = 1.0
READ_MAX = 64 * 1024 * 1024

OnNode = Callable[[NodeService, web.Request], Awaitable[web.StreamResponse]]


def for_allocation(answer: OnNode) -> Handle:
    """Answer where the allocation `{id}` is."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        place = await node_of_allocation(edge, request, request.match_info["id"])
        return await (pass_on(request, place) if isinstance(place, str) else answer(place, request))

    handle.__doc__ = answer.__doc__
    return handle


def for_node(answer: OnNode) -> Handle:
    """Answer at the node that `node_id` names."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        place = await node_by_id(edge, request)
        return await (pass_on(request, place) if isinstance(place, str) else answer(place, request))

    handle.__doc__ = answer.__doc__
    return handle


# Files


async def list_files(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Entries of a directory."""
    entries = await node.list_files(request.match_info["id"], request.query.get("path", "/"))
    return json_response(request, entries)


async def stat_file(node: NodeService, request: web.Request) -> web.StreamResponse:
    """One file or directory."""
    return json_response(request, await node.stat_file(request.match_info["id"], request.query.get("path", "/")))


async def cat_file(node: NodeService, request: web.Request) -> web.StreamResponse:
    """A whole file."""
    return _raw(await node.read_file(request.match_info["id"], _path(request), 0, READ_MAX))


async def read_at(node: NodeService, request: web.Request) -> web.StreamResponse:
    """A piece of a file."""
    if "offset" not in request.query:
        raise invalid('Failed to parse "offset": it has to be given')
    offset, limit = number(request.query, "offset"), number(request.query, "limit", READ_MAX)
    return _raw(await node.read_file(request.match_info["id"], _path(request), offset, min(limit, READ_MAX)))


def _path(request: web.Request) -> str:
    path = request.query.get("path", "")
    if not path:
        raise invalid("must provide a file name")
    return path


def _raw(data: bytes) -> web.Response:
    """Never a type that a browser would render."""
    return web.Response(body=data, content_type=TEXT, headers={"X-Content-Type-Options": "nosniff"})


def _origin(request: web.Request) -> str:
    origin = request.query.get("origin", "") or "start"
    if origin not in {"start", "end"}:
        raise invalid("origin must be start or end")
    return origin


async def stream_file(node: NodeService, request: web.Request) -> web.StreamResponse:
    """A file as frames, and what is appended to it."""
    frames = node.stream_file(
        request.match_info["id"],
        _path(request),
        offset=number(request.query, "offset"),
        origin=_origin(request),
        follow=flag(request.query, "follow", True),
    )
    return await _send(request, frames, plain=False)


async def logs(node: NodeService, request: web.Request) -> web.StreamResponse:
    """A task's output as frames, or plain."""
    query = request.query
    task, stream = query.get("task", ""), query.get("type", "")
    if not task:
        raise invalid("must provide task name")
    if stream not in {"stdout", "stderr"}:
        raise invalid("must provide log type (stdout/stderr)")
    frames = node.stream_logs(
        request.match_info["id"],
        task,
        stream,
        offset=number(query, "offset"),
        origin=_origin(request),
        follow=flag(query, "follow"),
    )
    return await _send(request, frames, plain=flag(query, "plain"))


async def _send(request: web.Request, frames: AsyncGenerator[StreamFrame], *, plain: bool) -> web.StreamResponse:
    """Send frames as they come. Errors before the first one, and within the first second, are ordinary responses; later
    ones end the body.

    A file that is not there is 400 when it is streamed and 404 elsewhere, as with Nomad.
    """
    response = web.StreamResponse(headers={"Content-Type": TEXT if plain else JSON})
    begin = asyncio.Lock()

    async def write(data: bytes) -> None:
        async with begin:
            if not response.prepared:
                await response.prepare(request)
        await response.write(data)

    async def heartbeat() -> None:
        """An empty object each second tells the reader that the stream lives, also while there is nothing to send."""
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                await write(b"" if plain else b"{}")

    try:
        async with Tasks("api.stream") as tasks:
            tasks.start("heartbeat", heartbeat())
            async for frame in frames:
                await write(frame.data if plain else wire.to_json(frame))
    except LepaError as error:
        if response.prepared:
            return response
        if error.code == "not_found" and "/fs/stream/" in request.path:
            raise invalid(error.message) from error
        raise
    finally:
        await frames.aclose()
    await write(b"")
    await response.write_eof()
    return response


async def snapshot(edge: Edge, request: web.Request) -> web.StreamResponse:
    """The data of an allocation of this node, for the node that it moves to: opened by a token of its own."""
    alloc_id = request.match_info["id"]
    if edge.node is None or not edge.node.has_allocation(alloc_id):
        raise LepaError("not_found", f'Unknown allocation "{alloc_id}"')
    pieces = await edge.node.snapshot(alloc_id, token(request))
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    await response.prepare(request)
    async with contextlib.aclosing(pieces) as stream:
        async for piece in stream:
            await response.write(piece)
    await response.write_eof()
    return response


# Life cycle and figures


async def restart(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Restart one task, or all that run."""
    body = await json_object(request, required=False)
    task, everything = typed_member(body, "TaskName", str, ""), typed_member(body, "AllTasks", bool, False)
    if task and everything:
        raise invalid("TaskName and AllTasks cannot both be set")
    await node.restart(request.match_info["id"], task, all_tasks=everything)
    return json_response(request, {"Index": 0})


async def signal(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Signal one task, or all."""
    body = await json_object(request)
    name = typed_member(body, "Signal", str, "")
    if not name:
        raise invalid("must provide a signal, such as SIGHUP")
    task = typed_member(body, "Task", str, "") or typed_member(body, "TaskName", str, "")
    await node.signal(request.match_info["id"], task, name)
    return json_response(request, {"Index": 0})


async def allocation_stats(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Present use of the allocation's tasks."""
    usage = await node.allocation_stats(request.match_info["id"], request.query.get("task", ""))
    return json_response(request, usage)


async def checks(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Last results of the allocation's checks."""
    return json_response(request, await node.checks(request.match_info["id"]))


async def collect_one(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Remove an ended allocation from the disk."""
    await node.collect(request.match_info["id"])
    return web.Response(content_type=JSON)


async def collect_all(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Remove all ended allocations from the disk."""
    await node.collect()
    return web.Response(content_type=JSON)


async def host_stats(node: NodeService, request: web.Request) -> web.StreamResponse:
    """Present use of the host."""
    return json_response(request, await node.host_stats())


async def metadata(node: NodeService, request: web.Request) -> web.StreamResponse:
    """The node's metadata, or a change of it."""
    if request.method == "GET":
        return json_response(request, await node.metadata())
    changes: dict[str, Any] = typed_member(await json_object(request), "Meta", dict, {})
    if not all(value is None or isinstance(value, str) for value in changes.values()):
        raise invalid("Meta must map keys to texts, or to null to unset them")
    return json_response(request, await node.set_metadata(changes))


ROUTES = (
    Route("GET", "client/fs/ls/{id}", for_allocation(list_files)),
    Route("GET", "client/fs/stat/{id}", for_allocation(stat_file)),
    Route("GET", "client/fs/cat/{id}", for_allocation(cat_file)),
    Route("GET", "client/fs/readat/{id}", for_allocation(read_at)),
    Route("GET", "client/fs/stream/{id}", for_allocation(stream_file)),
    Route("GET", "client/fs/logs/{id}", for_allocation(logs)),
    Route("GET", "client/allocation/{id}/snapshot", snapshot),
    Route("GET", "client/allocation/{id}/stats", for_allocation(allocation_stats)),
    Route("GET", "client/allocation/{id}/checks", for_allocation(checks)),
    Route("GET", "allocation/{id}/checks", for_allocation(checks)),
    Route("PUT POST", "client/allocation/{id}/restart", for_allocation(restart)),
    Route("PUT POST", "client/allocation/{id}/signal", for_allocation(signal)),
    Route("GET PUT POST", "client/allocation/{id}/gc", for_allocation(collect_one)),
    Route("GET PUT POST", "client/gc", for_node(collect_all)),
    Route("GET", "client/stats", for_node(host_stats)),
    Route("GET POST PUT", "client/metadata", for_node(metadata)),
)
