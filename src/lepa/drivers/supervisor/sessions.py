"""Commands run beside a task for a person: `alloc exec`. Each belongs to one connection and ends with it."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable
from functools import partial
from typing import Any

from lepa.drivers.supervisor.messages import CONSOLE, Command
from lepa.drivers.supervisor.processes import Home, spawn
from lepa.drivers.supervisor.reactor import READABLE, WRITABLE, Reactor, Timer
from lepa.drivers.supervisor.reaper import Reaper

SESSIONS_MAX = 256
"""Commands run at once; further ones are refused."""
PIECE_BYTES_MAX = 64 * 1024
"""Output read at once."""
LINGER_S = 1.0
"""How long a stream may stay silent, held open by somebody else, after the command has ended."""
END_OF_INPUT = b"\x04"
"""What a terminal takes for the end of input."""

Tell = Callable[[dict[str, Any], bytes], None]


class Session:
    """One command with its streams.

    tell: takes "exec_output" events, then one "exec_exited"; nothing after it. `pause` stops reading output until
    `resume`, so that a slow reader slows the command down instead of filling memory.
    """

    def __init__(self, reactor: Reactor, reaper: Reaper, tell: Tell) -> None:
        self._reactor = reactor
        self._reaper = reaper
        self._tell = tell
        self._ended: Callable[[], None] = lambda: None
        self._pid = 0
        self._stdin = -1
        self._status_fd = -1
        self._outputs: dict[str, int] = {}
        self._paused = False
        self._terminal = False
        self._size = (0, 0)
        self._console: Console | None = None
        self._code: int | None = None
        self._error = ""
        self._linger: Timer | None = None
        self._unwritten = bytearray()
        self._end_input = False
        self._taken: Callable[[], None] = lambda: None

    @property
    def input_waits(self) -> bool:
        """Whether the command has not taken all input yet: more should not be sent now."""
        return bool(self._unwritten) or self._console is not None

    def start(
        self, command: Command, cgroups: tuple[str, ...], home: Home, ended: Callable[[], None], *, terminal: bool
    ) -> None:
        """Start the command; `ended` is called in any case. Raises OSError; else a failure shows in its exit."""
        self._terminal, self._ended = terminal, ended
        if CONSOLE in command.argv:
            console = self._console = Console(self._reactor, self._console_arrived)
            argv = tuple(console.path if word == CONSOLE else word for word in command.argv)
            command, terminal = command._replace(argv=argv), False
        child_ends = self._open_terminal() if terminal else self._open_pipes()
        try:
            child = spawn(command, child_ends, cgroups, home, terminal=terminal)
        except OSError:
            self._close_streams()
            raise
        finally:
            for fd in set(child_ends):
                os.close(fd)
        self._pid, self._status_fd = child.pid, child.status_fd
        self._reaper.forget_strays(child.pid)
        for stream, fd in self._outputs.items():
            os.set_blocking(fd, False)
            self._reactor.watch(fd, READABLE, partial(self._readable, stream))
        os.set_blocking(self._stdin, False)
        if self._console is not None:
            self._close_stdin()
            self._close_output("stdout")
        self._reaper.expect(child.pid, self._process_ended)

    def write(self, data: bytes, taken: Callable[[], None]) -> None:
        """Send to standard input, b"" ends it; `taken` is called when nothing waits to be written any more."""
        if (self._stdin < 0 and self._console is None) or self._end_input:
            return
        self._taken = taken
        self._unwritten += data or (END_OF_INPUT if self._terminal else b"")
        self._end_input = not data and not self._terminal
        if self._console is None:
            self._write_on()

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size."""
        self._size = (rows, columns)
        if self._terminal and self._stdin >= 0:
            fcntl.ioctl(self._stdin, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pause(self) -> None:
        """Read no output for now."""
        if not self._paused:
            self._paused = True
            for fd in self._outputs.values():
                self._reactor.change(fd, 0)

    def resume(self) -> None:
        """Read output again."""
        if self._paused:
            self._paused = False
            for fd in self._outputs.values():
                self._reactor.change(fd, READABLE)

    def close(self) -> None:
        """Nobody listens any more: end the command, politely first."""
        self._tell = lambda head, body: None
        if self._code is None:
            self._signal(signal.SIGTERM)
            self._reactor.after(LINGER_S, lambda: self._signal(signal.SIGKILL))
        self._close_streams()

    def _open_terminal(self) -> tuple[int, int, int]:
        ours, theirs = os.openpty()
        os.set_inheritable(theirs, False)
        self._stdin = os.dup(ours)
        self._outputs = {"stdout": ours}
        return theirs, theirs, theirs

    def _console_arrived(self, terminal: int) -> None:
        """The launcher made a terminal inside the container and handed us our side of it."""
        self._console = None
        self._stdin, self._outputs["stdout"] = os.dup(terminal), terminal
        for fd in (terminal, self._stdin):
            os.set_blocking(fd, False)
        self._reactor.watch(terminal, 0 if self._paused else READABLE, partial(self._readable, "stdout"))
        if self._size != (0, 0):
            self.resize(*self._size)
        self._write_on()

    def _open_pipes(self) -> tuple[int, int, int]:
        stdin, self._stdin = os.pipe()
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        self._outputs = {"stdout": out, "stderr": err}
        return stdin, stdout, stderr

    def _readable(self, stream: str, _: int) -> None:
        data = b""
        try:
            data = os.read(self._outputs[stream], PIECE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal says EIO when its last user is gone
                raise
        if data:
            self._tell({"event": "exec_output", "stream": stream}, data)
            self._restart_linger()
        else:
            self._close_output(stream)
            self._look_whether_ended()

    def _write_on(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._stdin, self._unwritten)]
        except BlockingIOError:
            if not self._reactor.watches(self._stdin):
                self._reactor.watch(self._stdin, WRITABLE, lambda mask: self._write_on())
            return
        except OSError:
            self._end_input = True
        self._unwritten.clear()
        self._reactor.unwatch(self._stdin)
        if self._end_input:
            self._close_stdin()
        self._taken()

    def _process_ended(self, status: int) -> None:
        if self._status_fd >= 0:
            self._error = os.read(self._status_fd, 4096).decode(errors="replace")
            os.close(self._status_fd)
        code = os.waitstatus_to_exitcode(status)
        self._code = code if code >= 0 else 128 - code
        self._restart_linger()
        self._look_whether_ended()

    def _restart_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
        if self._code is not None:
            self._linger = self._reactor.after(LINGER_S, self._lingered)

    def _lingered(self) -> None:
        if self._paused:
            self._restart_linger()
        else:
            self._close_streams()
            self._look_whether_ended()

    def _look_whether_ended(self) -> None:
        if self._code is None or self._outputs:
            return
        if self._linger is not None:
            self._linger.cancel()
        self._close_streams()
        self._tell({"event": "exec_exited", "code": self._code, "error": self._error}, b"")
        self._ended()

    def _signal(self, number: int) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def _close_output(self, stream: str) -> None:
        fd = self._outputs.pop(stream)
        self._reactor.unwatch(fd)
        os.close(fd)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._reactor.unwatch(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
            self._unwritten.clear()
            self._taken()

    def _close_streams(self) -> None:
        if self._console is not None:
            self._console.close()
            self._console = None
        for stream in list(self._outputs):
            self._close_output(stream)
        self._close_stdin()


class Console:
    """A socket on which an OCI runtime hands over the terminal of a process it starts (--console-socket).

    Its path goes by way of an open directory, because a whole path may be too long for a socket address.
    """

    def __init__(self, reactor: Reactor, arrived: Callable[[int], None]) -> None:
        self._reactor = reactor
        self._arrived = arrived
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._name = f"console-{self._listener.fileno()}"
        self._directory = os.open(".", os.O_PATH | os.O_DIRECTORY)
        self._unlink()
        self._listener.bind(f"/proc/self/fd/{self._directory}/{self._name}")
        self._listener.listen(1)
        self.path = f"/proc/{os.getpid()}/fd/{self._directory}/{self._name}"
        reactor.watch(self._listener.fileno(), READABLE, lambda mask: self._accept())

    def close(self) -> None:
        """Nobody will hand over anything any more."""
        if self._directory >= 0:
            self._reactor.unwatch(self._listener.fileno())
            self._listener.close()
            self._unlink()
            os.close(self._directory)
            self._directory = -1

    def _unlink(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._directory)

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            peer.settimeout(LINGER_S)
            _, descriptors, _, _ = socket.recv_fds(peer, 4096, 1)
        self.close()
        for fd in descriptors:
            os.set_inheritable(fd, False)
            self._arrived(fd)
