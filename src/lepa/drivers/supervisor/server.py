"""Answers the agent over a Unix socket, and holds tasks and sessions together."""

import os
import select
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from lepa import __version__
from lepa.drivers.supervisor.frames import BrokenFrame, Frame, FrameReader, encode_frame
from lepa.drivers.supervisor.messages import PROGRAM, TaskInfo, command, task_spec, to_json
from lepa.drivers.supervisor.notes import note
from lepa.drivers.supervisor.reactor import READABLE, WRITABLE, Reactor
from lepa.drivers.supervisor.reaper import Reaper
from lepa.drivers.supervisor.sessions import SESSIONS_MAX, Session
from lepa.drivers.supervisor.tasks import StartFailed, Tasks

CONNECTIONS_MAX = SESSIONS_MAX + 16
"""Peers at once: a connection for each session, and those of agents and tools."""
OUTBOX_PAUSE_BYTES = 1024 * 1024
"""With more than this unsent, output of the connection's session is not read."""
OUTBOX_BYTES_MAX = 64 * 1024 * 1024
"""A peer that has let so much pile up does not read: it is dropped, and hears all again when it reconnects."""
TASK_ID_LENGTH_MAX = 200
ACCEPT_AGAIN_S = 1.0
"""Pause after a connection could not be accepted, as when no descriptor is free."""
REPLACE_WITHIN_S = 5.0
"""How long a replacement waits for a moment without starts and ends under way."""


class Refused(Exception):
    """A request that cannot be served: code as in lepa's errors, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Connection:
    """One peer: frames in, frames out, and the session that ends with it, if it asked for one.

    Its input is not read while the session's command does not take what it was sent.
    """

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.reader = FrameReader()
        self.outbox: deque[memoryview] = deque()
        self.unsent = 0
        self.session: Session | None = None
        self.open = True

    @property
    def interest(self) -> int:
        """What to wait for."""
        full = self.session is not None and self.session.input_waits
        return (0 if full else READABLE) | (WRITABLE if self.outbox else 0)


class Server:
    """The supervisor's one object: everything happens in `run`."""

    def __init__(self, directory: str, listener: socket.socket) -> None:
        self._reactor = Reactor(self._end_turn)
        self._reaper = Reaper(self._reactor)
        self._tasks = Tasks(self._reactor, self._reaper, directory, self._tell_exit)
        self._listener = listener
        self._connections: set[Connection] = set()
        self._sessions = 0
        self._ending = False
        self.replace_with: list[str] = []

    def run(self, descriptors: dict[str, dict[str, int]], deadlines: dict[str, float]) -> None:
        """Serve until told to end or to be replaced (then `replace_with` says by what)."""
        self._tasks.recover(descriptors, deadlines)
        self._listen()
        self._reactor.run()

    def handover(self) -> dict[str, Any]:
        """What a successor in the same process must be told beyond the journal."""
        return {"descriptors": self._tasks.descriptors(), "deadlines": self._tasks.deadlines()}

    def leave(self) -> None:
        """End without touching running tasks; called on SIGTERM too."""
        self._reactor.stop()

    def hang_up(self) -> None:
        """End all connections, and with them all sessions."""
        for connection in list(self._connections):
            self._drop(connection)

    def close(self) -> None:
        """Let go of everything; running tasks go on."""
        self.hang_up()
        self._tasks.close()

    # ---- connections

    def _listen(self) -> None:
        self._reactor.watch(self._listener.fileno(), READABLE, lambda mask: self._accept())

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError as error:
            note(f"connection not accepted reason={error}")
            self._reactor.unwatch(self._listener.fileno())
            self._reactor.after(ACCEPT_AGAIN_S, self._listen)
            return
        if len(self._connections) >= CONNECTIONS_MAX or not _is_ours(peer):
            peer.close()
            return
        peer.setblocking(False)
        connection = Connection(peer)
        self._connections.add(connection)
        self._reactor.watch(peer.fileno(), READABLE, lambda mask: self._ready(connection, mask))

    def _ready(self, connection: Connection, mask: int) -> None:
        if mask & WRITABLE:
            self._send(connection)
        if connection.open and mask & READABLE and (connection.interest & READABLE or mask & select.EPOLLHUP):
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.peer.recv(256 * 1024)
            frames = connection.reader.feed(data)
        except BlockingIOError:
            return
        except (OSError, BrokenFrame) as error:
            note(f"connection dropped reason={error}")
            data, frames = b"", []
        for frame in frames:
            self._serve(connection, frame)
        if not data:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if not connection.open:
            return
        connection.open = False
        self._connections.discard(connection)
        self._reactor.unwatch(connection.peer.fileno())
        connection.peer.close()
        if connection.session is not None:
            connection.session.close()

    def _post(self, connection: Connection, head: dict[str, Any], body: bytes = b"") -> None:
        """Put a frame in the outbox; it leaves at the end of the turn, after the journal is safe."""
        if not connection.open:
            return
        frame = encode_frame(head, body)
        connection.outbox.append(memoryview(frame))
        connection.unsent += len(frame)
        if connection.unsent > OUTBOX_BYTES_MAX:
            self._drop(connection)
        elif connection.unsent > OUTBOX_PAUSE_BYTES and connection.session is not None:
            connection.session.pause()

    def _send(self, connection: Connection) -> None:
        try:
            while connection.outbox:
                piece = connection.outbox[0]
                sent = connection.peer.send(piece)
                connection.unsent -= sent
                if sent < len(piece):
                    connection.outbox[0] = piece[sent:]
                else:
                    connection.outbox.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)
            return
        self._reactor.change(connection.peer.fileno(), connection.interest)
        if connection.session is not None and connection.unsent < OUTBOX_PAUSE_BYTES // 2:
            connection.session.resume()

    def _end_turn(self) -> None:
        self._tasks.settle()
        for connection in list(self._connections):
            if connection.outbox:
                self._send(connection)
        if self._ending and self._tasks.running == 0:
            self._reactor.stop()

    def _tell_exit(self, task: TaskInfo) -> None:
        for connection in list(self._connections):
            self._post(connection, {"event": "task_exited", "task": to_json(task)})

    # ---- requests

    def _serve(self, connection: Connection, frame: Frame) -> None:
        number = frame.head.get("id")
        serve = _REQUESTS.get(str(frame.head.get("do")))

        def answer(result: Any) -> None:
            self._post(connection, {"id": number, "ok": result})

        def refuse(error: Refused) -> None:
            self._post(connection, {"id": number, "error": {"code": error.code, "message": str(error)}})

        try:
            if serve is None:
                raise Refused("unsupported", f"this supervisor cannot do {frame.head.get('do')!r}")
            serve(self, connection, frame, answer, refuse)
        except Refused as error:
            refuse(error)
        except (KeyError, TypeError, ValueError) as error:
            refuse(Refused("invalid", f"{frame.head.get('do')}: {type(error).__name__}: {error}"))
        except OSError as error:
            refuse(Refused("internal", f"{frame.head.get('do')}: {error}"))

    def _hello(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        answer({"version": __version__, "pid": os.getpid()})

    def _list(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        answer([to_json(task) for task in self._tasks.infos()])

    def _inspect(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        answer(to_json(self._known(frame)))

    def _start(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        spec = task_spec(frame.head["spec"])
        if not _fit_for_file_names(spec.id):
            raise Refused("invalid", f"task id {spec.id!r} is not fit for a file name")
        if self._ending or self.replace_with:
            raise Refused("conflict", "the supervisor is about to end")

        def done(result: TaskInfo | StartFailed) -> None:
            if isinstance(result, StartFailed):
                refuse(Refused("internal", str(result)))
            else:
                answer(to_json(result))

        self._tasks.start(spec, done)

    def _stop(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        self._tasks.stop(self._known(frame).id, int(frame.head["signal"]), float(frame.head["timeout_s"]))
        answer(None)

    def _signal(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        self._tasks.signal(self._known(frame).id, int(frame.head["signal"]))
        answer(None)

    def _hold(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        if not self._tasks.hold(self._known(frame).id, str(frame.head["cores"])):
            raise Refused("unsupported", "this host has no cgroups that hold a task to certain cores")
        answer(None)

    def _forget(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        self._tasks.forget(str(frame.head["task"]))
        answer(None)

    def _known(self, frame: Frame) -> TaskInfo:
        task = self._tasks.info(str(frame.head["task"]))
        if task is None:
            raise Refused("not_found", f"no task {frame.head['task']!r} is known to the supervisor")
        return task

    def _exec(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        task = self._known(frame)
        if task.exit is not None:
            raise Refused("conflict", f"task {task.id!r} has ended")
        if connection.session is not None:
            raise Refused("invalid", "this connection has a session already")
        if self._sessions >= SESSIONS_MAX:
            raise Refused("conflict", f"{SESSIONS_MAX} commands run already")
        session = Session(self._reactor, self._reaper, lambda head, body: self._post(connection, head, body))
        joined = self._tasks.cgroups_of(task.id) if frame.head["join_task"] else ()
        try:
            session.start(
                command(frame.head["command"]),
                joined,
                self._tasks.home,
                self._session_ended,
                terminal=frame.head["terminal"],
            )
        except OSError as error:
            raise Refused("internal", f"cannot start the command: {error}") from error
        self._sessions += 1
        connection.session = session
        answer(None)

    def _session_ended(self) -> None:
        self._sessions -= 1

    def _exec_write(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        def taken() -> None:
            if connection.open:
                self._reactor.change(connection.peer.fileno(), connection.interest)

        self._session(connection).write(frame.body, taken)
        taken()

    def _exec_resize(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        self._session(connection).resize(int(frame.head["rows"]), int(frame.head["columns"]))

    def _session(self, connection: Connection) -> Session:
        if connection.session is None:
            raise Refused("not_found", "this connection has no session")
        return connection.session

    def _upgrade(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        argv = [str(part) for part in frame.head.get("argv") or ()]
        self.replace_with = argv or [sys.executable, *PROGRAM]
        if not os.access(self.replace_with[0], os.X_OK):
            program, self.replace_with = self.replace_with[0], []
            raise Refused("invalid", f"{program} cannot be run")
        answer(None)
        deadline = self._reactor.now() + REPLACE_WITHIN_S
        self._stop_when_settled(deadline)

    def _stop_when_settled(self, deadline: float) -> None:
        if self._tasks.settled or self._reactor.now() > deadline:
            self._reactor.stop()
        else:
            self._reactor.after(0.01, lambda: self._stop_when_settled(deadline))

    def _shutdown(self, connection: Connection, frame: Frame, answer: "Answer", refuse: "Refuse") -> None:
        if self._tasks.running and not frame.head.get("kill"):
            raise Refused("conflict", f"{self._tasks.running} tasks run")
        self._ending = True
        self._tasks.kill_all()
        answer(None)


Answer = Callable[[Any], None]
Refuse = Callable[[Refused], None]

_REQUESTS: dict[str, Callable[[Server, Connection, Frame, Answer, Refuse], None]] = {
    "hello": Server._hello,
    "list": Server._list,
    "inspect": Server._inspect,
    "start": Server._start,
    "stop": Server._stop,
    "signal": Server._signal,
    "hold": Server._hold,
    "forget": Server._forget,
    "exec": Server._exec,
    "exec_write": Server._exec_write,
    "exec_resize": Server._exec_resize,
    "upgrade": Server._upgrade,
    "shutdown": Server._shutdown,
}


def _is_ours(peer: socket.socket) -> bool:
    """Whether the peer is our own user or root; the socket's mode says the same, this does not depend on it."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.geteuid())


def _fit_for_file_names(task_id: str) -> bool:
    return 0 < len(task_id) <= TASK_ID_LENGTH_MAX and task_id[0] != "." and "/" not in task_id and "\0" not in task_id
