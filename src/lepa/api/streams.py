"""Long-lived answers: commands in tasks over a websocket, the event stream, this agent's log.

Exec messages are JSON texts. To the task: `{"stdin":{"data":"base64"}}`, `{"stdin":{"close":true}}`,
`{"tty_size":{"height":H,"width":W}}`. Back: `{"stdout":{"data":…}}`, `{"exited":true,"result":{"exit_code":N}}`. An
empty object is a heartbeat, both ways.
"""

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from aiohttp import WSMsgType, web

from lepa.api.edge import Edge, Route
from lepa.api.event_feeds import HEARTBEAT, Feeds
from lepa.api.forward import address_of, join_websockets, node_by_id, node_of_allocation, pass_on, server_by_id
from lepa.api.request import JSON, TEXT, common, flag, number
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.node_service import NodeService, TaskSession

EXEC_HEARTBEAT_S = 10.0
WRITE_S = 40.0
MESSAGE_MAX = 1024 * 1024
FRAME_MAX = 64 * 1024
INTERNAL_ERROR, POLICY_VIOLATION = 1011, 1008
EXEC_DOOR = "Allocation.Exec"
FEEDS = web.AppKey("feeds", Feeds)
LOG_LEVELS = ("trace", "debug", "info", "warn", "warning", "error")


# Exec


class Asked(NamedTuple):
    """What is to run, and where. find: the command, as the node of the allocation has it."""

    alloc_id: str
    task: str
    find: Callable[[NodeService], list[str]]


async def exec_in_task(edge: Edge, request: web.Request) -> web.StreamResponse:
    """A command inside a running task, its streams over a websocket."""
    text = request.query.get("command", "")
    return await _run_in_task(edge, request, request.match_info["id"], lambda _: _command(text))


async def action_of_job(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """A command that the job's author wrote down, by its name, inside one of the job's allocations."""
    query = request.query
    alloc_id, task, action = query.get("allocID", ""), query.get("task", ""), query.get("action", "")
    if not action:
        raise invalid("must provide an action name")
    return await _run_in_task(
        edge, request, alloc_id, lambda node: node.command_of_action(alloc_id, job_id, task, action)
    )


async def _run_in_task(
    edge: Edge, request: web.Request, alloc_id: str, find: Callable[[NodeService], list[str]]
) -> web.StreamResponse:
    query = request.query
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise invalid("exec needs a websocket: the request has no Upgrade header")
    asked = Asked(alloc_id, query.get("task", ""), find)
    if not flag(query, "ws_handshake"):
        await edge.admit(request, EXEC_DOOR, alloc_id=alloc_id, task=asked.task)
        place = await node_of_allocation(edge, request, alloc_id, EXEC_DOOR)
        if isinstance(place, str):
            return await pass_on(request, place)
        return await _serve(edge, request, place, asked)
    if edge.node is not None and edge.node.has_allocation(alloc_id):
        return await _serve(edge, request, edge.node, asked)
    return await _pass_on_after_handshake(edge, request, alloc_id)


async def _pass_on_after_handshake(edge: Edge, request: web.Request, alloc_id: str) -> web.StreamResponse:
    """A command on another node whose caller shows its token in the first message: it is asked for here, and shown to
    the other node as a header."""
    near = web.WebSocketResponse(max_msg_size=MESSAGE_MAX, compress=False)
    await near.prepare(request)
    try:
        token = await _handshake(near)
        task = request.query.get("task", "")
        await edge.admit(request, EXEC_DOOR, alloc_id=alloc_id, task=task, auth_token=token)
        found = await edge.authorize(request, EXEC_DOOR, alloc_id=alloc_id, task=task, auth_token=token)
        return await join_websockets(request, near, await address_of(edge, request, found), token)
    except LepaError as error:
        await near.close(code=POLICY_VIOLATION, message=error.message.encode()[:120])
        return near


def _command(text: str) -> list[str]:
    """The command as a JSON list of texts."""
    try:
        command = json.loads(text)
    except ValueError:
        command = None
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise invalid('command must be a JSON list of texts, such as ["/bin/sh","-c","date"]')
    return command


async def _serve(edge: Edge, request: web.Request, node: NodeService, asked: Asked) -> web.StreamResponse:
    if not asked.task:
        raise invalid("must provide task name")
    late = flag(request.query, "ws_handshake")
    command = [] if late else asked.find(node)
    socket = web.WebSocketResponse(max_msg_size=MESSAGE_MAX, compress=False)
    await socket.prepare(request)
    try:
        if late:
            token = await _handshake(socket)
            await edge.admit(request, EXEC_DOOR, alloc_id=asked.alloc_id, task=asked.task, auth_token=token)
            command = asked.find(node)
        session = await node.exec(asked.alloc_id, asked.task, command, tty=flag(request.query, "tty"))
    except LepaError as error:
        code = INTERNAL_ERROR if error.code == "internal" else POLICY_VIOLATION
        await socket.close(code=code, message=error.message.encode()[:120])
        return socket
    try:
        async with Tasks("api.exec") as tasks:
            tasks.start("input", _pump_input(socket, session))
            tasks.start("heartbeat", _heartbeat(socket))
            async for stream, data in session.output():
                await _send(socket, {stream: {"data": base64.b64encode(data).decode()}})
            code = await session.wait()
            await _send(socket, {"stdout": {"close": True}})
            await _send(socket, {"stderr": {"close": True}})
            await _send(socket, {"exited": True, "result": {"exit_code": code}})
    except LepaError as error:
        await socket.close(code=INTERNAL_ERROR, message=error.message.encode()[:120])
    except ConnectionError:
        return socket
    finally:
        await session.close()
    await socket.close()
    return socket


async def _handshake(socket: web.WebSocketResponse) -> str:
    """Browsers cannot set headers: the first message carries the version and the token, which is the answer."""
    message = await socket.receive(timeout=EXEC_HEARTBEAT_S)
    try:
        given = json.loads(message.data) if message.type is WSMsgType.TEXT else {}
    except ValueError:
        given = {}
    if not isinstance(given, dict) or given.get("version") != 1:
        raise invalid("unsupported websocket handshake version; expected 1")
    return str(given.get("auth_token") or "")


async def _pump_input(socket: web.WebSocketResponse, session: TaskSession) -> None:
    """What the caller types goes to the command; when the caller leaves, the command ends."""
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            given: dict[str, Any] = json.loads(message.data)
            if size := given.get("tty_size"):
                await session.resize(int(size["height"]), int(size["width"]))
            if stdin := given.get("stdin"):
                if stdin.get("data"):
                    await session.write(base64.b64decode(stdin["data"]))
                if stdin.get("close"):
                    await session.write(b"")
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            await socket.close(code=POLICY_VIOLATION, message=b"unreadable message")
        except LepaError:
            break
    await session.close()


async def _heartbeat(socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            await asyncio.sleep(EXEC_HEARTBEAT_S)
            await _send(socket, {})


async def _send(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    async with asyncio.timeout(WRITE_S):
        await socket.send_str(json.dumps(message))


# Events


async def events(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Changes as they are committed: one JSON object a line, `{}` when nothing happened for a while."""
    topics: dict[str, list[str]] = {}
    for text in request.query.getall("topic", ["*:*"]):
        topic, _, key = text.partition(":")
        if not topic or ":" in key:
            raise invalid(f"Invalid topic query: {text}")
        topics.setdefault(topic, []).append(key or "*")
    call = r.EventStreamRequest(
        topics={topic: tuple(keys) for topic, keys in topics.items()},
        index=number(request.query, "index"),
        **common(request),
    )
    await edge.admit(request, "Events", topics=call.topics)
    feeds = request.app[FEEDS]
    feeds.check_room()
    response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache"})
    await response.prepare(request)
    await response.write(HEARTBEAT)
    if request.transport is not None:
        await feeds.serve(call, response, request.transport)
    return response


def feeds_of(edge: Edge) -> Feeds:
    """The feeds through which an API shows events."""
    return Feeds(lambda call: edge.caller.stream(m.EVENT_STREAM, call))


# Log


async def monitor(edge: Edge, request: web.Request) -> web.StreamResponse:
    """This agent's log from now on, as frames or plain."""
    if request.query.get("node_id"):
        place = await node_by_id(edge, request)
        if isinstance(place, str):
            return await pass_on(request, place)
    elif request.query.get("server_id") and (address := await server_by_id(edge, request)):
        return await pass_on(request, address)
    level = request.query.get("log_level", "") or "info"
    if level not in LOG_LEVELS:
        raise invalid(f"Unknown log level: {level}")
    plain = flag(request.query, "plain")
    response = web.StreamResponse(headers={"Content-Type": TEXT if plain else JSON})
    await response.prepare(request)
    async for line in edge.agent.log_lines(level, as_json=flag(request.query, "log_json")):
        for start in range(0, len(line), FRAME_MAX):
            piece = line[start : start + FRAME_MAX]
            frame = piece if plain else msgspec.json.encode({"Data": base64.b64encode(piece).decode()})
            async with asyncio.timeout(WRITE_S):
                await response.write(frame)
    return response


ROUTES = (
    Route("GET", "client/allocation/{id}/exec", exec_in_task),
    Route("GET", "event/stream", events),
    Route("GET", "agent/monitor", monitor),
)
