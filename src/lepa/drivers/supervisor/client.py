"""The agent's side of the supervisor: starts one when there is none, and comes back to it whatever happens.

Requests other than `exec` may be sent twice without harm, so they are sent again after a lost connection; a task's end
that happened meanwhile is asked for. Nobody who waits for a task notices that agent or supervisor were replaced.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from lepa import __version__
from lepa.drivers.supervisor.frames import BrokenFrame, Frame, FrameReader, encode_frame
from lepa.drivers.supervisor.messages import PROGRAM, Command, TaskInfo, TaskSpec, task_info, to_json
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, not_found

log = logging.getLogger(__name__)

ANOTHER_RUNS = 3
"""Exit code of a supervisor that found its directory served already."""
SPAWN_TIMEOUT_S = 10.0
RECONNECT_FIRST_S = 0.02
RECONNECT_LAST_S = 1.0
REQUEST_TIMEOUT_S = 60.0
"""An answer takes milliseconds; a launcher (an OCI runtime) under load takes seconds."""
INPUT_BYTES_MAX = 256 * 1024
"""Input of a command sent in one message."""


class Supervisor:
    """A connection to the supervisor of one directory, as an async context manager."""

    def __init__(self, directory: str, *, clock: Clock, python: str = sys.executable) -> None:
        self._directory = os.path.abspath(directory)
        self._clock = clock
        self._python = python
        self._tasks = Tasks("supervisor")
        self._requests: dict[int, tuple[bytes, asyncio.Future[Any]]] = {}
        self._next_request = 1
        self._exits: dict[str, asyncio.Future[TaskInfo]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._closing = False
        self.pid = 0
        self.version = ""

    @classmethod
    async def connect(
        cls, directory: str, *, clock: Clock, python: str = sys.executable, version: str = __version__
    ) -> Self:
        """Connect to the supervisor of `directory`, starting one when none runs there. Raises LepaError(internal).

        version: a supervisor of any other is replaced by this one's code; its tasks go on.
        """
        self = cls(directory, clock=clock, python=python)
        reader = await self._open()
        self._tasks.start("read", self._run(reader))
        if self.version != version:
            log.info("supervisor replaced pid=%d version=%s by=%s", self.pid, self.version, version)
            await self.upgrade()
        return self

    async def start(self, spec: TaskSpec) -> TaskInfo:
        """Start a task; returns when it runs its command. Raises LepaError(internal) with the reason it could not."""
        return task_info(await self._ask("start", spec=to_json(spec)))

    async def inspect(self, task_id: str) -> TaskInfo:
        """A task as it is now. Raises LepaError(not_found)."""
        return task_info(await self._ask("inspect", task=task_id))

    async def list_tasks(self) -> list[TaskInfo]:
        """All tasks the supervisor knows, ended ones that were not forgotten included."""
        return [task_info(task) for task in await self._ask("list")]

    async def wait(self, task_id: str) -> TaskInfo:
        """Return when the task has ended: at once, for one that has."""
        ended = self._exits.get(task_id)
        if ended is None:
            ended = self._exits[task_id] = asyncio.get_running_loop().create_future()
            try:
                self._note_exit(await self.inspect(task_id))
            except BaseException:
                if self._exits.get(task_id) is ended:
                    del self._exits[task_id]
                raise
        return await asyncio.shield(ended)

    async def stop(self, task_id: str, signal: int, timeout_s: float) -> None:
        """Signal a task now, have all its processes killed after `timeout_s`; returns when it has ended."""
        await self._ask("stop", task=task_id, signal=signal, timeout_s=timeout_s)
        await self.wait(task_id)

    async def signal(self, task_id: str, signal: int) -> None:
        """Send a signal to the task's first process."""
        await self._ask("signal", task=task_id, signal=signal)

    async def hold(self, task_id: str, cores: str) -> None:
        """Let a task run on `cores`, such as "0,2", and no others. Raises LepaError where the host cannot do that."""
        await self._ask("hold", task=task_id, cores=cores)

    async def forget(self, task_id: str) -> None:
        """Drop what is known of a task; one that still runs is killed."""
        await self._ask("forget", task=task_id)
        ended = self._exits.pop(task_id, None)
        if ended is not None and not ended.done():
            ended.set_exception(not_found(f"task {task_id!r} was forgotten"))
            ended.exception()

    async def exec(self, task_id: str, command: Command, *, terminal: bool, join_task: bool = True) -> "RemoteSession":
        """Run a command beside a task. join_task: among the task's processes, so that it ends with them."""
        reader, writer = await self._dial()
        session = RemoteSession(reader, writer)
        try:
            await session.begin(
                {"task": task_id, "command": to_json(command), "terminal": terminal, "join_task": join_task}
            )
        except BaseException:
            await session.close()
            raise
        return session

    async def upgrade(self, argv: tuple[str, ...] = ()) -> None:
        """Have the supervisor replaced by this version of it (or `argv`); tasks go on, sessions end."""
        await self._ask("upgrade", argv=list(argv) or [self._python, *PROGRAM])

    async def shutdown(self, *, kill: bool = False) -> None:
        """End the supervisor. kill: its tasks too; otherwise it refuses while some run. Returns when it has ended."""
        self._closing = True
        writer = self._writer
        await self._ask("shutdown", kill=kill)
        if writer is not None:
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await self._tasks.close()

    async def close(self) -> None:
        """Let go of the connection; the supervisor and its tasks go on."""
        self._closing = True
        await self._tasks.close()
        if self._writer is not None:
            self._writer.close()
        self._fail_all(LepaError("internal", "the connection to the supervisor was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ---- requests

    async def _ask(self, do: str, **what: Any) -> Any:
        """Send a request and wait for its answer; it is sent again when the connection is lost meanwhile."""
        if self._closing and self._writer is None:
            raise LepaError("internal", "the connection to the supervisor was closed")
        number, self._next_request = self._next_request, self._next_request + 1
        frame = encode_frame({"id": number, "do": do, **what})
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[number] = (frame, answer)
        try:
            if self._writer is not None:
                self._writer.write(frame)
                with contextlib.suppress(OSError):
                    await self._writer.drain()
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await answer
        except TimeoutError as error:
            raise LepaError("timeout", f"the supervisor did not answer {do!r} in {REQUEST_TIMEOUT_S:.0f} s") from error
        finally:
            self._requests.pop(number, None)

    def _take(self, frame: Frame) -> None:
        match frame.head:
            case {"id": int(number), "ok": result}:
                self._settle(number, lambda answer: answer.set_result(result))
            case {"id": int(number), "error": {"code": code, "message": message}}:
                self._settle(number, lambda answer: answer.set_exception(LepaError(code, message)))
            case {"event": "task_exited", "task": task}:
                self._note_exit(task_info(task))

    def _settle(self, number: int, settle: Callable[[asyncio.Future[Any]], None]) -> None:
        if number in self._requests and not self._requests[number][1].done():
            settle(self._requests[number][1])

    def _note_exit(self, task: TaskInfo) -> None:
        ended = self._exits.get(task.id)
        if task.exit is not None and ended is not None and not ended.done():
            ended.set_result(task)

    # ---- the connection

    async def _run(self, reader: asyncio.StreamReader) -> None:
        while True:
            await self._read(reader)
            self._lose()
            if self._closing:
                return
            reader = await self._reopen()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        with contextlib.suppress(OSError, BrokenFrame):
            while data := await reader.read(256 * 1024):
                for frame in frames.feed(data):
                    self._take(frame)

    def _lose(self) -> None:
        """The connection is gone; requests wait for the next one, unless we are leaving."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._closing:
            self._fail_all(LepaError("internal", "the connection to the supervisor was closed"))

    def _fail_all(self, error: LepaError) -> None:
        for _, answer in self._requests.values():
            if not answer.done():
                answer.set_exception(error)
        for ended in self._exits.values():
            if not ended.done():
                ended.set_exception(error)
                ended.exception()

    async def _reopen(self) -> asyncio.StreamReader:
        delay = RECONNECT_FIRST_S
        while True:
            try:
                reader = await self._open()
            except LepaError as error:
                log.warning("supervisor not reached reason=%s retry_s=%.2f", error.message, delay)
                await self._clock.sleep(delay)
                delay = min(2 * delay, RECONNECT_LAST_S)
                continue
            for frame, answer in list(self._requests.values()):
                if not answer.done() and self._writer is not None:
                    self._writer.write(frame)
            self._tasks.start("ask_exits", self._ask_exits())
            return reader

    async def _ask_exits(self) -> None:
        """Hear of the tasks that ended while nobody listened."""
        for task_id, ended in list(self._exits.items()):
            if not ended.done():
                try:
                    self._note_exit(await self.inspect(task_id))
                except LepaError as error:
                    if error.code == "not_found" and not ended.done():
                        ended.set_exception(error)

    async def _open(self) -> asyncio.StreamReader:
        reader, writer = await self._dial()
        try:
            async with asyncio.timeout(SPAWN_TIMEOUT_S):
                answer = await _hello(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, BrokenFrame) as error:
            writer.close()
            raise LepaError("internal", f"the supervisor of {self._directory} does not answer: {error}") from error
        self.pid, self.version = answer["pid"], answer["version"]
        self._writer = writer
        return reader

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, starting a supervisor when none listens. Raises LepaError: want of processes or descriptors too."""
        deadline = self._clock.now() + SPAWN_TIMEOUT_S
        try:
            while True:
                try:
                    return await _connect(self._directory)
                except (ConnectionRefusedError, FileNotFoundError):
                    if self._clock.now() > deadline:
                        raise LepaError(
                            "internal", f"no supervisor could be started in {self._directory}; see supervisor.log there"
                        ) from None
                await self._spawn()
        except OSError as error:
            raise LepaError("internal", f"the supervisor of {self._directory} cannot be reached: {error}") from error

    async def _spawn(self) -> None:
        """Start a supervisor; harmless when another one is just starting."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        command = [self._python, *PROGRAM, "--state", self._directory]
        # Not asyncio's subprocess: under uvloop it leaves a descriptor open in the daemon, and never sees the end.
        try:
            process = await asyncio.to_thread(_run_quietly, command)
        except subprocess.TimeoutExpired as error:
            raise LepaError("internal", "the supervisor did not start in time") from error
        if process.returncode == ANOTHER_RUNS:
            await self._clock.sleep(RECONNECT_FIRST_S)
        elif process.returncode != 0:
            last = process.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise LepaError("internal", f"the supervisor did not start: {last[0]}")


def _run_quietly(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, keeping only what it says on standard error. Raises TimeoutExpired."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=SPAWN_TIMEOUT_S,
        check=False,
    )


class RemoteSession:
    """A command running beside a task, on a connection of its own: the drivers' ExecSession.

    A reader who does not read output, and a command that does not read input, stop the other side through the socket.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._arrived: deque[Frame] = deque()
        self._exit: int | LepaError | None = None

    async def begin(self, what: dict[str, Any]) -> None:
        """Ask for the command. Raises LepaError when it is refused."""
        self._writer.write(encode_frame({"id": 1, "do": "exec", **what}))
        frame = await self._next()
        if frame is None:
            raise LepaError("internal", "the supervisor hung up")
        if (error := frame.head.get("error")) is not None:
            raise LepaError(error["code"], error["message"])

    async def write(self, data: bytes) -> None:
        """Send to its standard input; b"" closes it. Waits while the command takes no more."""
        pieces = [data[at : at + INPUT_BYTES_MAX] for at in range(0, len(data), INPUT_BYTES_MAX)] or [b""]
        for piece in pieces:
            await self._send({"do": "exec_write"}, piece)

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self._send({"do": "exec_resize", "rows": rows, "columns": columns})

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of ("stdout" | "stderr", data) until the command ends."""
        while self._exit is None:
            frame = await self._next()
            if frame is None:
                self._exit = LepaError("internal", "the connection to the supervisor was lost")
            elif frame.head.get("event") == "exec_output":
                yield frame.head["stream"], frame.body
            elif frame.head.get("event") == "exec_exited":
                error = frame.head["error"]
                self._exit = LepaError("invalid", error) if error else int(frame.head["code"])

    async def wait(self) -> int:
        """The command's exit code. Raises LepaError when the command could not be run, or was lost sight of."""
        async for _ in self.output():
            pass
        if isinstance(self._exit, LepaError):
            raise self._exit
        return self._exit or 0

    async def close(self) -> None:
        """End the command if it still runs; input it has not taken is dropped."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        with contextlib.suppress(OSError):
            self._writer.write(encode_frame(head, body))
            await self._writer.drain()

    async def _next(self) -> Frame | None:
        """The next frame; None when the connection has ended."""
        while not self._arrived:
            try:
                data = await self._reader.read(64 * 1024)
                self._arrived.extend(self._frames.feed(data))
            except (OSError, BrokenFrame):
                return None
            if not data:
                return None
        return self._arrived.popleft()


async def _connect(directory: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect by way of an open directory: a whole path may be too long for a socket address."""
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/supervisor.sock")
    finally:
        os.close(folder)


async def _hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
    """The first exchange: who is there."""
    writer.write(encode_frame({"id": 0, "do": "hello"}))
    frames = FrameReader()
    while data := await reader.read(64 * 1024):
        for frame in frames.feed(data):
            if frame.head.get("id") == 0:
                answer: dict[str, Any] = frame.head["ok"]
                return answer
    raise ConnectionResetError("it hung up")
