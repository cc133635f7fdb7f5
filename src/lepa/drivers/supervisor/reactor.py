"""A small event loop: epoll, timers, and work at the end of each turn. No threads, no coroutines."""

import heapq
import select
import time
import traceback
from collections.abc import Callable
from functools import partial

from lepa.drivers.supervisor.notes import note

READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
WRITABLE = select.EPOLLOUT


class Timer:
    """A call to come; `cancel` makes it not come."""

    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], None] | None) -> None:
        self.at = at
        self.call = call

    def cancel(self) -> None:
        """Forget the call."""
        self.call = None

    def __lt__(self, other: "Timer") -> bool:
        return self.at < other.at


class Reactor:
    """Calls handlers when descriptors are ready and timers are due, until `stop`.

    A handler that raises has a bug: it is written to the log and the loop goes on, because other tasks depend on it.
    """

    def __init__(self, each_turn: Callable[[], None]) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[Timer] = []
        self._each_turn = each_turn
        self._running = True

    @staticmethod
    def now() -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Call `handler(mask)` while `fd` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        """Wait for something else on a watched descriptor."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Stop watching; call it before the descriptor is closed. Harmless for one that is not watched."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watches(self, fd: int) -> bool:
        """Whether a descriptor is watched."""
        return fd in self._handlers

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call once, later."""
        timer = Timer(self.now() + max(0.0, seconds), call)
        heapq.heappush(self._timers, timer)
        return timer

    def stop(self) -> None:
        """Leave `run` at the end of this turn."""
        self._running = False

    def run(self) -> None:
        """Turn until stopped."""
        while self._running:
            for fd, mask in self._epoll.poll(self._until_next_timer()):
                handler = self._handlers.get(fd)
                if handler is not None:
                    self._guard(partial(handler, mask))
            self._fire_timers()
            self._guard(self._each_turn)

    def _until_next_timer(self) -> float:
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0].at - self.now()) if self._timers else -1

    def _fire_timers(self) -> None:
        now = self.now()
        while self._timers and self._timers[0].at <= now:
            call = heapq.heappop(self._timers).call
            if call is not None:
                self._guard(call)

    @staticmethod
    def _guard(call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            note(traceback.format_exc())
