"""`lepa alloc exec`: a command inside a task, its streams joined to this terminal.

With -t the terminal is raw: every key goes to the command. A line that begins with `~.` ends the conversation here,
whatever the command does; `~~` sends one `~`.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from lepa.cli.alloc import choose_allocation, task_of
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json
from lepa.cli.session import Session, api
from lepa.model.errors import LepaError, invalid
from lepa.sdk.address import headers
from lepa.sdk.connection import context_of

if TYPE_CHECKING:
    from lepa.kit.tasks import Tasks

CHUNK = 32 * 1024
PENDING_MAX = 16
"""Pieces of input that wait to be sent; when they are so many, reading pauses."""

HEARTBEAT_S = 10.0
CONNECT_S = 10.0
MESSAGE_MAX = 16 * 1024 * 1024
ESCAPED = 130


@command(words_after=True)
@argument("allocation", shown="<allocation>")
@argument("words", many=True, shown="<command> [args]")
@flag("i", "Send standard input to the command.", default=True)
@flag("t", "Give the command a terminal; decided by whether this is one, unless said.", default=None)
@option("e", "The character that escapes at the beginning of a line; none to turn that off.", default="~", metavar="c")
@option("task", "Name of the task.", metavar="name")
@option("group", "With -job: only allocations of this group.", metavar="name")
@flag("job", "The name is a job's: take its newest running allocation.")
@api
def run(
    session: Session,
    allocation: str,
    words: tuple[str, ...],
    i: bool,
    t: bool | None,
    e: str,
    task: str | None,
    group: str | None,
    job: bool,
) -> int:
    """Run a command inside a running task. The exit code is the command's.

    Flags stand before the allocation; everything behind it belongs to the command.
    """
    chosen = choose_allocation(session, allocation, job=job, group=group)
    query = {"task": task_of(chosen, task), "command": json.dumps(list(words))}
    path = f"/v1/client/allocation/{chosen['ID']}/exec"
    return converse(session, chosen["Namespace"], path, query, interactive=i, terminal=t, escape=e)


def converse(
    session: Session,
    namespace: str,
    path: str,
    query: dict[str, str],
    *,
    interactive: bool,
    terminal: bool | None,
    escape: str,
) -> int:
    """Run a command in a task until it ends or the person leaves; the exit code.

    path, query: what is asked of the API. terminal None: where this is one.
    """
    if len(escape) > 1 and escape != "none":
        raise invalid("-e is one character, or none")
    with_terminal = (sys.stdin.isatty() and sys.stdout.isatty()) if terminal is None else terminal
    asked = query | {"namespace": namespace, "tty": str(with_terminal).lower()}
    character = b"" if escape in ("none", "") or not with_terminal else escape.encode()
    conversation = Conversation(session, path, asked, interactive=interactive, escape=character)
    with _raw(sys.stdin.fileno()) if with_terminal and interactive and sys.stdin.isatty() else contextlib.nullcontext():
        return asyncio.run(conversation.run())


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """The terminal hands over every key, and is afterwards as before."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Escape:
    """Watches what is typed for the escape character at the beginning of a line."""

    def __init__(self, character: bytes) -> None:
        self._character = character
        self._line_begins = True
        self._pending = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What of some typed bytes is for the command, and whether the person wants to leave."""
        if not self._character:
            return data, False
        passed = bytearray()
        for byte in data:
            char = bytes([byte])
            if self._pending:
                self._pending = False
                if char == b".":
                    return bytes(passed), True
                if char != self._character:
                    passed += self._character
            elif self._line_begins and char == self._character:
                self._pending = True
                continue
            passed += char
            self._line_begins = char in (b"\r", b"\n")
        return bytes(passed), False


class Conversation:
    """One command's streams over a websocket."""

    def __init__(self, session: Session, path: str, query: dict[str, str], *, interactive: bool, escape: bytes) -> None:
        self._session = session
        self._path = path
        self._query = query
        self._interactive = interactive
        self._escape = Escape(escape)
        self._left = asyncio.Event()

    async def run(self) -> int:
        """Until the command has ended, or the person has left; the exit code."""
        import aiohttp

        from lepa.kit.tasks import Tasks

        to = self._session.nomad.target
        query = {**self._query, **({"region": to.region} if to.region else {})}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout, headers=headers(to)) as http:
            try:
                socket = await http.ws_connect(
                    f"{to.url}{self._path}?{urlencode(query)}",
                    max_msg_size=MESSAGE_MAX,
                    ssl=context_of(to) if to.scheme == "https" else True,
                )
            except aiohttp.WSServerHandshakeError as error:
                self._session.nomad.raw("GET", self._path, self._query)
                raise LepaError("internal", f"{to.url} refused the command: {error.message}") from error
            except aiohttp.ClientError as error:
                raise LepaError("no_leader", f"no agent answers at {to.url} ({error})") from error
            async with socket, Tasks("cli.exec") as tasks:
                tasks.start("input", self._send_input(socket, tasks))
                tasks.start("heartbeat", self._send_heartbeats(socket))
                left = tasks.start("left", self._leave(socket))
                code = await self._receive(socket)
                return ESCAPED if left.done() else code

    async def _leave(self, socket: Any) -> None:
        await self._left.wait()
        await socket.close()

    async def _receive(self, socket: Any) -> int:
        """Print what comes, until the exit code does."""
        import aiohttp

        closed = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        out = self._session.out
        while (message := await socket.receive()).type not in closed:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            frame: Json = json.loads(message.data)
            for stream, write in (("stdout", out.write), ("stderr", out.write_error)):
                if data := (frame.get(stream) or {}).get("data"):
                    write(base64.b64decode(data))
            if frame.get("exited"):
                return int((frame.get("result") or {}).get("exit_code", 0))
        if self._left.is_set():
            return ESCAPED
        said = message.extra if message.type is aiohttp.WSMsgType.CLOSE else ""
        raise LepaError("internal", _why_closed(socket, said or ""))

    async def _send_input(self, socket: Any, tasks: "Tasks") -> None:
        """Send what is typed, and how large the terminal is."""
        if self._query["tty"] == "true" and sys.stdin.isatty():
            self._follow_size(socket, tasks)
        if not self._interactive:
            await socket.send_json({"stdin": {"close": True}})
            return
        pieces: asyncio.Queue[bytes] = asyncio.Queue(PENDING_MAX)
        reader = threading.Thread(target=_read_input, args=(pieces, asyncio.get_running_loop()), daemon=True)
        reader.start()
        while data := await pieces.get():
            passed, leaves = self._escape.feed(data)
            if passed:
                await socket.send_json({"stdin": {"data": base64.b64encode(passed).decode()}})
            if leaves:
                self._left.set()
                return
        await socket.send_json({"stdin": {"close": True}})

    def _follow_size(self, socket: Any, tasks: "Tasks") -> None:
        """Tell how large the terminal is, now and whenever that changes."""

        def changed() -> None:
            columns, lines = os.get_terminal_size(sys.stdin.fileno())
            tasks.start("size", socket.send_json({"tty_size": {"height": lines, "width": columns}}))

        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed)
        changed()

    async def _send_heartbeats(self, socket: Any) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await socket.send_json({})


def _read_input(pieces: "asyncio.Queue[bytes]", loop: asyncio.AbstractEventLoop) -> None:
    """Hand standard input over piece by piece, and at its end nothing. Runs in a thread, because reading blocks."""
    while True:
        try:
            data = os.read(sys.stdin.fileno(), CHUNK)
        except OSError:
            data = b""
        handed = pieces.put(data)
        try:
            asyncio.run_coroutine_threadsafe(handed, loop).result()
        except RuntimeError:
            handed.close()
            return
        if not data:
            return


def _why_closed(socket: Any, said: str) -> str:
    return said or f"the connection ended before the command did (websocket code {socket.close_code})"
