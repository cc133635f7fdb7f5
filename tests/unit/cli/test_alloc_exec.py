"""A command inside a task, over a websocket to a fake agent."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp import WSCloseCode, web
from tests.unit.cli.objects import ALLOC, alloc_stub, allocation

from lepa.cli.alloc_exec import Escape

SCRIPT = "import sys; from lepa.cli.main import main; sys.exit(main())"

Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


def output(stream: str, text: str) -> dict[str, Any]:
    return {stream: {"data": base64.b64encode(text.encode()).decode()}}


def exited(code: int) -> dict[str, Any]:
    return {"exited": True, "result": {"exit_code": code}}


class ExecAgent:
    """An agent that talks as a test says."""

    def __init__(self) -> None:
        self.talk: Talk | None = None
        self.query: dict[str, str] = {}
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ExecAgent":
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/allocations", self._answer([alloc_stub()]))
        app.router.add_get(f"/v1/allocation/{ALLOC}", self._answer(allocation()))
        app.router.add_get(f"/v1/client/allocation/{ALLOC}/exec", self._exec)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def _answer(self, value: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(value)

        return answer

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        if self.talk is None:
            return web.Response(status=404, text="Unknown allocation")
        self.query = dict(request.query)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await self.talk(socket)
        return socket

    def run(self, *words: str, typed: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """`lepa alloc exec` in a process of its own."""
        env = {**os.environ, "LEPA_ADDR": self.address}
        command = [sys.executable, "-c", SCRIPT, "alloc", "exec", *words]
        return subprocess.run(command, input=typed, capture_output=True, env=env, timeout=30)


@pytest.fixture
def agent() -> Iterator[ExecAgent]:
    with ExecAgent() as made:
        yield made


def test_both_streams_and_the_exit_code_come_back(agent: ExecAgent) -> None:
    async def talk(socket: web.WebSocketResponse) -> None:
        for message in (output("stdout", "hi\n"), {}, output("stderr", "oh\n"), exited(7)):
            await socket.send_json(message)

    agent.talk = talk
    done = agent.run("1111", "sh", "-c", "exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"hi\n", b"oh\n")
    assert json.loads(agent.query["command"]) == ["sh", "-c", "exit 7"]
    assert (agent.query["task"], agent.query["tty"], agent.query["namespace"]) == ("server", "false", "default")


def test_input_is_sent_and_closed(agent: ExecAgent) -> None:
    async def echo(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            stdin = json.loads(message.data).get("stdin") or {}
            if data := stdin.get("data"):
                await socket.send_json({"stdout": {"data": data}})
            if stdin.get("close"):
                await socket.send_json(exited(0))
                return

    agent.talk = echo
    typed = b"x" * 200_000
    assert agent.run("1111", "cat", typed=typed).stdout == typed
    assert agent.run("-i=false", "1111", "cat", typed=typed).stdout == b""


def test_refusals_are_told(agent: ExecAgent) -> None:
    async def refuse(socket: web.WebSocketResponse) -> None:
        await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b'task "server" is not running')

    agent.talk = refuse
    done = agent.run("1111", "date")
    assert (done.returncode, done.stderr) == (1, b'Error: task "server" is not running\n')
    agent.talk = None
    assert agent.run("1111", "date").stderr == b"Error: Unknown allocation\n"


def test_an_early_end_is_an_error(agent: ExecAgent) -> None:
    async def leave(socket: web.WebSocketResponse) -> None:
        await socket.close()

    agent.talk = leave
    done = agent.run("1111", "date")
    assert done.returncode == 1
    assert b"ended before the command did" in done.stderr


def test_a_terminal_is_asked_for_and_escaped(agent: ExecAgent) -> None:
    async def wait(socket: web.WebSocketResponse) -> None:
        async for _ in socket:
            pass

    agent.talk = wait
    done = agent.run("-t=true", "1111", "sh", typed=b"ls\n~.")
    assert (done.returncode, agent.query["tty"]) == (130, "true")
    assert b"-e is one character" in agent.run("-e", "ab", "1111", "sh").stderr


@pytest.mark.parametrize(
    ("typed", "passed", "leaves"),
    [
        ([b"ls\r~."], b"ls\r", True),
        ([b"~."], b"", True),
        ([b"~", b"."], b"", True),
        ([b"a~."], b"a~.", False),
        ([b"~~."], b"~.", False),
        ([b"~x"], b"~x", False),
        ([b"ls\r", b"~a\r", b"~."], b"ls\r~a\r", True),
    ],
)
def test_the_escape_counts_at_the_beginning_of_a_line(typed: list[bytes], passed: bytes, leaves: bool) -> None:
    escape = Escape(b"~")
    results = [escape.feed(piece) for piece in typed]
    assert b"".join(each for each, _ in results) == passed
    assert results[-1][1] is leaves


def test_without_an_escape_character_everything_passes() -> None:
    assert Escape(b"").feed(b"~.") == (b"~.", False)
