"""Connections to targets that speak HTTP: one exchange at a time, kept for the next when both sides allow it."""

import socket
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

from lepa.ingress.event_loop import HUNG_UP, READY_IN, READY_OUT, EventLoop
from lepa.ingress.routes import Target

IDLE_MAX_PER_TARGET = 256
IDLE_S = 4.0
"""How long a connection waits for the next request. Many servers end theirs after 5 s; ours is to be first."""
READ_MIN: Final = 4_096
READ_MAX: Final = 65_536
"""A read makes room for as much as it may bring, which costs time: most answers are short, so the first is small."""


class Exchange(Protocol):
    """What a connection tells of its progress."""

    def upstream_readable(self) -> None:
        """There is something to read."""

    def upstream_writable(self) -> None:
        """All that was written has been taken."""

    def upstream_ended(self, reason: str) -> None:
        """The connection is broken."""


class Upstream:
    """One connection to a target. reused: whether it has served an exchange before this one."""

    __slots__ = (
        "broken", "closed", "exchange", "hung", "idle_since", "key", "loop", "out", "plain", "pool", "read_size",
        "readable", "reused", "sock", "unsure", "writable",
    )  # fmt: skip

    def __init__(self, pool: "Upstreams", sock: socket.socket, key: str) -> None:
        self.pool = pool
        self.loop = pool.loop
        self.sock = sock
        self.key = key
        self.plain = type(sock) is socket.socket
        self.exchange: Exchange | None = None
        self.out = bytearray()
        self.read_size = READ_MIN
        self.readable = True
        self.writable = True
        self.hung = False
        self.unsure = True
        """Whether a hang-up may have been told before this handler was there, which no event will repeat."""
        self.broken = False
        self.closed = False
        self.reused = False
        self.idle_since = 0.0

    def ready(self, events: int) -> None:
        """The socket can be read, written, or has been hung up."""
        if events & HUNG_UP:
            self.hung = True
        if events & READY_OUT:
            self.writable = True
            if self.out:
                self._flush()
                if not self.out and self.exchange is not None:
                    self.exchange.upstream_writable()
        if events & READY_IN and not self.closed:
            self.readable = True
            if self.exchange is not None:
                self.exchange.upstream_readable()
            else:
                # Nothing is due on an idle connection: it ends, or its peer is confused.
                self.pool.drop(self)

    def abort(self) -> None:
        """A bug in the exchange, which is told."""
        exchange = self.exchange
        self.close()
        if exchange is not None:
            exchange.upstream_ended("internal error")

    def write(self, data: bytes) -> None:
        """Send, now or as soon as the target takes it. A failure shows when the answer is read."""
        if self.broken:
            return
        if self.out:
            self.out += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            self.writable = False
            sent = 0
        except OSError:
            self.broken = True
            return
        if sent < len(data):
            self.out += memoryview(data)[sent:]

    def _flush(self) -> None:
        try:
            with memoryview(self.out) as waiting:
                sent = self.sock.send(waiting)
            del self.out[:sent]
        except BlockingIOError:
            self.writable = False
        except OSError:
            self.broken = True
            self.out.clear()

    def read(self) -> bytes | None:
        """What is there, None when nothing is, b"" at the end. Raises OSError when the connection is broken."""
        if not self.readable:
            return None
        size = self.read_size
        try:
            data = self.sock.recv(size)
        except BlockingIOError:
            self.readable = self.unsure = False
            return None
        if len(data) == size:
            self.read_size = READ_MAX
        elif self.plain and not self.hung and not self.unsure:
            self.readable = False
        return data

    def is_silent(self) -> bool:
        """Whether an idle connection still stands, asked of the kernel: for requests that must not be sent twice."""
        try:
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def leave(self) -> socket.socket:
        """The socket, which serves something else from now on."""
        self.closed = True
        self.exchange = None
        return self.sock

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            self.closed = True
            self.exchange = None
            self.loop.close_socket(self.sock)


class Upstreams:
    """Idle connections by target, the one used last first."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self._idle: dict[str, deque[Upstream]] = {}
        loop.every_sweep(self._expire)

    def take(self, target: Target, *, sure: bool) -> Upstream | None:
        """An idle connection. sure: look again whether it stands."""
        waiting = self._idle.get(_pool_key(target))
        while waiting:
            upstream = waiting.pop()
            if not upstream.closed and (not sure or upstream.is_silent()):
                upstream.reused = True
                return upstream
            upstream.close()
        return None

    def open(self, sock: socket.socket, target: Target) -> Upstream:
        """A connection just made."""
        upstream = Upstream(self, sock, _pool_key(target))
        self.loop.hand_over(sock, upstream)
        return upstream

    def give(self, upstream: Upstream) -> None:
        """Keep a connection whose exchange is over."""
        upstream.exchange = None
        waiting = self._idle.setdefault(upstream.key, deque())
        if len(waiting) >= IDLE_MAX_PER_TARGET or upstream.hung:
            upstream.close()
            return
        upstream.idle_since = self.loop.now
        upstream.read_size = READ_MIN
        waiting.append(upstream)

    def close_idle(self, target: Target) -> None:
        """Close what is idle to a target: one of them was found broken, so the others may be too."""
        for upstream in self._idle.pop(_pool_key(target), ()):
            upstream.close()

    def drop(self, upstream: Upstream) -> None:
        """Close an idle connection."""
        with suppress(ValueError):
            self._idle.get(upstream.key, deque()).remove(upstream)
        upstream.close()

    @property
    def idle(self) -> int:
        """How many connections wait."""
        return sum(map(len, self._idle.values()))

    def _expire(self) -> None:
        late = self.loop.now - IDLE_S
        for key, waiting in list(self._idle.items()):
            while waiting and waiting[0].idle_since < late:
                waiting.popleft().close()
            if not waiting:
                del self._idle[key]

    def close(self) -> None:
        """Close everything idle."""
        for waiting in self._idle.values():
            for upstream in waiting:
                upstream.close()
        self._idle.clear()


def _pool_key(target: Target) -> str:
    """Connections can be shared by routes that reach the target alike."""
    options = target.options
    return f"{target.key}|{options.tls_verify:d}|{options.tls_name}" if options.tls else target.key
