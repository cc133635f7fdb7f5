"""Carries bytes both ways between two connected sockets, until both have said their last.

Each direction first copies: a read, a write. When a read fills the whole buffer there is much to carry, and the rest of
that direction goes through a pipe with `os.splice`, which the processor never sees; pipes come from a pool. A TLS
socket is always copied, since its bytes exist only after decryption.

An end of one side is handed on as an end of that direction alone (half-close); an abort of one side aborts the other. A
direction reads no further while its far side does not take what was read, so memory per connection is bounded by READ
plus a pipe.
"""

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from lepa.ingress.event_loop import HUNG_UP, READY_IN, READY_OUT, EventLoop

READ_MIN: Final = 4_096
READ: Final = 65_536
"""A read makes room for as much as it may bring, which costs time: the first of a side is small."""
PIPE_SIZE = 1 << 20
TURN_MAX = 4 << 20
"""Bytes that one direction carries before other connections get their turn."""
PIPES_KEPT_MAX = 64
SPLICE_FLAGS: Final = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE


class Pipes:
    """Empty pipes, ready for use."""

    def __init__(self) -> None:
        self._idle: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int] | None:
        """A pipe (read end, write end); None when there is no descriptor left."""
        if self._idle:
            return self._idle.pop()
        try:
            pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        # The kernel may grant users less; then the pipe stays at 64 KiB.
        with suppress(OSError):
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        return pipe

    def give(self, pipe: tuple[int, int], *, empty: bool) -> None:
        """Take a pipe back; one with bytes in it is closed."""
        if empty and len(self._idle) < PIPES_KEPT_MAX:
            self._idle.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        """Close those that are idle."""
        for pipe in self._idle:
            os.close(pipe[0])
            os.close(pipe[1])
        self._idle.clear()


class Leg:
    """One socket of a tunnel, and the direction that begins at it."""

    __slots__ = (
        "carried", "ended", "hung", "other", "pending", "pipe", "piped", "plain", "read_size", "readable", "shut",
        "sock", "tunnel", "unsure", "writable",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, tunnel: "Tunnel", pending: bytes) -> None:
        self.sock = sock
        self.tunnel = tunnel
        self.plain = type(sock) is socket.socket
        self.pending: bytes | memoryview = pending
        self.readable = True
        self.writable = True
        self.hung = False
        self.unsure = False
        """Whether a hang-up may have been told to the handler before this one, which no event will repeat."""
        self.read_size = READ_MIN
        self.ended = False
        self.shut = False
        self.pipe: tuple[int, int] | None = None
        self.piped = 0
        self.carried = 0
        self.other: Leg

    def ready(self, events: int) -> None:
        """The socket can be read, written, or has been hung up."""
        if events & HUNG_UP:
            self.hung = True
        if events & READY_OUT and not self.writable:
            self.writable = True
            if not self.carry(self.other):
                return
        if events & READY_IN:
            self.readable = True
            self.carry(self)

    def abort(self) -> None:
        """End both sides with a reset."""
        self.tunnel.abort()

    def carry(self, source: "Leg") -> bool:
        """Move what `source` has to its other side; False when the tunnel is over."""
        try:
            source.move()
        except OSError:
            # Reset, or a write to a side that reads no more: whoever still waits must not take it for an end.
            self.tunnel.abort()
            return False
        tunnel = self.tunnel
        if source.shut and source.other.shut:
            tunnel.close()
        return not tunnel.closed

    def move(self) -> None:
        """Carry on in this direction until one of the sides would block, or the turn is over."""
        if self.shut:
            return
        allowed = TURN_MAX
        while allowed > 0:
            moved = self._splice() if self.pipe is not None else self._copy()
            if moved < 0:
                return
            allowed -= moved
            self.carried += moved
        self.tunnel.loop.again(self._go_on)

    def _go_on(self) -> None:
        if not self.tunnel.closed:
            self.carry(self)

    def _copy(self) -> int:
        """One read and write; the bytes written, -1 when there is nothing to do before the next event."""
        other = self.other
        if self.pending:
            if not other.writable:
                return -1
        elif self.ended:
            return self._end()
        elif not self.readable:
            return -1
        else:
            try:
                data = self.sock.recv(self.read_size)
            except BlockingIOError:
                self.readable = self.unsure = False
                return -1
            size = len(data)
            if size < self.read_size:
                self._short_read(data)
                if not data:
                    return self._end()
            elif size < READ:
                self.read_size = READ
            elif self.plain and other.plain:
                self.pipe = self.tunnel.pipes.take()
            self.pending = data
            if not other.writable:
                return -1
        return self._write()

    def _short_read(self, data: bytes) -> None:
        """Less than asked for: no more is there (epoll(7)), unless the end is, or TLS cuts its records so."""
        if not data:
            self.ended = True
        elif self.plain and not self.hung and not self.unsure:
            self.readable = False

    def _write(self) -> int:
        data = self.pending
        try:
            sent = self.other.sock.send(data)
        except BlockingIOError:
            self.other.writable = False
            return -1
        if sent == len(data):
            self.pending = b""
        else:
            self.pending = memoryview(data)[sent:]
        return sent

    def _splice(self) -> int:
        """What is pending first, then through the pipe."""
        if self.pending:
            return self._write() if self.other.writable else -1
        assert self.pipe is not None
        if not self.piped:
            if self.ended:
                return self._end()
            if not self.readable:
                return -1
            try:
                self.piped = os.splice(self.sock.fileno(), self.pipe[1], PIPE_SIZE, flags=SPLICE_FLAGS)
            except BlockingIOError:
                self.readable = False
                return -1
            if not self.piped:
                self.ended = True
                return self._end()
        if not self.other.writable:
            return -1
        try:
            sent = os.splice(self.pipe[0], self.other.sock.fileno(), self.piped, flags=SPLICE_FLAGS)
        except BlockingIOError:
            self.other.writable = False
            return -1
        self.piped -= sent
        return sent

    def _end(self) -> int:
        """Hand on that this side has said its last."""
        if not self.shut:
            self.shut = True
            self._give_pipe()
            # When both directions have ended the sockets are closed at once, which says the same.
            if not self.other.shut:
                self.other.sock.shutdown(socket.SHUT_WR)
        return -1

    def _give_pipe(self) -> None:
        if self.pipe is not None:
            self.tunnel.pipes.give(self.pipe, empty=not self.piped)
            self.pipe = None

    def release(self) -> None:
        """Give back the pipe and the memory."""
        self._give_pipe()
        self.pending = b""


class Tunnel:
    """Two sockets, joined. ended: called once when both are closed, with whether it was an abort.

    early: what was read from the client already. late: the same of the target. spoken: whether the target may have sent
    something that no event will tell of.
    """

    __slots__ = ("client", "closed", "ended", "loop", "pipes", "target")

    def __init__(
        self,
        loop: EventLoop,
        pipes: Pipes,
        client: socket.socket,
        target: socket.socket,
        ended: Callable[["Tunnel", bool], None],
        early: bytes = b"",
        late: bytes = b"",
        *,
        spoken: bool = True,
    ) -> None:
        self.loop = loop
        self.pipes = pipes
        self.ended = ended
        self.closed = False
        self.client = Leg(client, self, early)
        self.target = Leg(target, self, late)
        self.target.readable = self.target.unsure = spoken
        self.client.other, self.target.other = self.target, self.client

    def begin(self) -> None:
        """Carry what is there already; both sockets are watched and belong to this tunnel from now on."""
        self.client.unsure = self.loop.is_watched(self.client.sock)
        self.loop.hand_over(self.client.sock, self.client)
        self.loop.hand_over(self.target.sock, self.target)
        if self.client.carry(self.client):
            self.target.carry(self.target)

    def close(self) -> None:
        """Close both sides in order."""
        self._finish(aborted=False)

    def abort(self) -> None:
        """Close both sides with a reset."""
        self._finish(aborted=True)

    def _finish(self, *, aborted: bool) -> None:
        if self.closed:
            return
        self.closed = True
        for leg in (self.client, self.target):
            leg.release()
            if aborted:
                self.loop.abort_socket(leg.sock)
            else:
                self.loop.close_socket(leg.sock)
        self.ended(self, aborted)
