"""One thread that waits on many sockets: edge-triggered epoll, and a method call for each socket that is ready.

Every socket is registered once, for reading, writing and hang-ups alike; what it was ready for is remembered by its
handler until a call says that it would block. So no connection ever costs a change of its registration. asyncio is not
used here because its transports hide the sockets that `os.splice` needs, and uvloop because it ends the interpreter
when both sides of a connection half-close under load.

Handlers run on the loop's thread and must not block. What another thread has to say comes in through `call`.
"""

import logging
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from lepa.kit.sources import Clock

log = logging.getLogger(__name__)

READY_IN = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
READY_OUT = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
HUNG_UP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
FAILED = select.EPOLLHUP | select.EPOLLERR
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
READABLE = select.EPOLLIN

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""
EVENTS_MAX = 256
"""Sockets served before the loop looks at everything else."""
SWEEP_S = 0.25
"""How often deadlines are looked at; no time-out is finer."""
CALLS_MAX = 10_000
"""Calls of other threads that wait; more than that means that the loop is stuck."""


class Handler(Protocol):
    """What serves one socket."""

    def ready(self, events: int) -> None:
        """The socket can be read, written, or has been hung up."""

    def abort(self) -> None:
        """`ready` failed by a bug: end the connection."""


class EventLoop:
    """A loop. now: monotonic seconds at the beginning of the current turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._fresh: set[int] = set()
        self._again: deque[Callable[[], None]] = deque()
        self._calls: deque[Callable[[], None]] = deque(maxlen=CALLS_MAX)
        self._sweeps: list[Callable[[], None]] = []
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_out.setblocking(False)
        self._epoll.register(self._wake_out.fileno(), READABLE)
        self._ready[self._wake_out.fileno()] = self._take_calls
        self._stopping = False
        self.now = clock.now()
        self.bugs = 0

    def watch(self, sock: socket.socket, handler: Handler, events: int = EDGES) -> None:
        """Call the handler whenever the socket is ready, from the next turn on."""
        number = sock.fileno()
        self._ready[number] = handler.ready
        self._fresh.add(number)
        self._epoll.register(number, events)

    def is_watched(self, sock: socket.socket) -> bool:
        """Whether some handler has had the events of a socket so far."""
        return sock.fileno() in self._ready

    def forget(self, sock: socket.socket) -> None:
        """Watch a socket no longer, which stays open."""
        if self._ready.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())

    def close_socket(self, sock: socket.socket) -> None:
        """Close a socket, which ends the watch too: the kernel knows (epoll(7), question 6)."""
        self._ready.pop(sock.fileno(), None)
        sock.close()

    def abort_socket(self, sock: socket.socket) -> None:
        """Close with a reset instead of an end: the peer learns that it did not get everything."""
        self._ready.pop(sock.fileno(), None)
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()

    def hand_over(self, sock: socket.socket, handler: Handler) -> None:
        """Let another handler serve a socket from now on, watched before or not."""
        number = sock.fileno()
        if number in self._ready:
            self._ready[number] = handler.ready
        else:
            self.watch(sock, handler)

    def again(self, call: Callable[[], None]) -> None:
        """Go on with something after the sockets that are ready now; on the loop's thread."""
        self._again.append(call)

    def call(self, call: Callable[[], None]) -> None:
        """Run something on the loop's thread; from any thread."""
        self._calls.append(call)
        # A full buffer means that it has been woken often enough.
        with suppress(OSError):
            self._wake_in.send(b"\0", socket.MSG_DONTWAIT)

    def every_sweep(self, call: Callable[[], None]) -> None:
        """Run something every SWEEP_S."""
        self._sweeps.append(call)

    def stop(self) -> None:
        """End `run` after this turn."""
        self._stopping = True

    def run(self) -> None:
        """Serve until `stop`."""
        swept = self.now
        poll, ready, fresh, again = self._epoll.poll, self._ready, self._fresh, self._again
        while not self._stopping:
            events = poll(0 if again else SWEEP_S, EVENTS_MAX)
            self.now = now = self._clock.now()
            fresh.clear()
            for number, flags in events:
                # A number that was closed and given out again in this turn has events of its former owner.
                if (serve := ready.get(number)) is not None and number not in fresh:
                    try:
                        serve(flags)
                    except Exception:
                        self._failed(serve)
            for _ in range(len(again)):
                self._guarded(again.popleft())
            if now - swept >= SWEEP_S:
                swept = now
                for sweep in self._sweeps:
                    self._guarded(sweep)

    def close(self) -> None:
        """Give the loop's own descriptors back; after `run`."""
        self._epoll.close()
        self._wake_in.close()
        self._wake_out.close()

    def _take_calls(self, events: int) -> None:
        with suppress(BlockingIOError):
            self._wake_out.recv(4_096)
        while self._calls:
            self._guarded(self._calls.popleft())

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            self._failed(call)

    def _failed(self, call: Callable[..., None]) -> None:
        """Whatever one connection does to us, the others must be served."""
        self.bugs += 1
        log.exception("ingress connection failed")
        abort = getattr(getattr(call, "__self__", None), "abort", None)
        if abort is not None:
            with suppress(Exception):
                abort()
