"""An event loop without a clock: time stands still while anything can run, and then jumps to what is due next.

Nothing waits for real, so an hour takes as long as what happens in it; and nothing depends on how quick the machine is,
so the same seed gives the same run. Threads are part of that: what goes to one is computed at once and delivered later.
"""

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

EPOCH_NS = 1_780_000_000 * 1_000_000_000
THREAD_S = 0.004
"""How long a thread computes at most."""
TIME_MAX_S = 7_200.0
"""A simulation that lasts longer does not end."""


class Deadlock(Exception):
    """Nothing can run, and nothing is due."""


class VirtualLoop(asyncio.BaseEventLoop):
    """seed: decides how long threads take.

    What is ready runs in the order in which it became so, and what is due at the same moment in the order in which it
    was asked for. The base class does the same for real clocks and sockets, at twice the time.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._now = 0.0
        self._chance = random.Random(seed)
        self._ripe: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._asked = itertools.count()
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ripe.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._asked), timer))
        return timer

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its place in the heap is passed over when its time comes."""

    def _run_once(self) -> None:
        """One turn of what can run, or a jump to what is due next. The base class calls this until it is stopped."""
        if not self._ripe:
            self._advance()
        for _ in range(len(self._ripe)):
            handle = self._ripe.popleft()
            if not handle.cancelled():
                handle._run()

    def _advance(self) -> None:
        """Go to the moment of the next timer, and let all run that are due at it."""
        if self._now > TIME_MAX_S:
            waiting = sorted(f"{task.get_name()}: {task.get_stack(limit=1)}" for task in asyncio.all_tasks(self))
            raise Deadlock("the simulation does not end; what waits: " + "; ".join(waiting))
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("everything waits for something that nobody will do")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ripe.append(heapq.heappop(timers)[2])

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """What a thread would find with the state of now, a little later."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            deliver = (done.set_result, function(*arguments))
        except Exception as error:
            deliver = (done.set_exception, error)  # type: ignore[assignment]
        self.call_later(self._chance.uniform(0, THREAD_S), _unless_cancelled, done, *deliver)
        return done

    def _write_to_self(self) -> None:
        """There are no threads to wake it from."""


def _unless_cancelled(done: asyncio.Future[Any], deliver: Callable[[Any], None], value: Any) -> None:
    if not done.done():
        deliver(value)


class Process:
    """A process that can be stopped and continued. Its clock shows virtual time; as a Clock it is the only one it has.

    skew_s: how far its wall clock is off.
    """

    def __init__(self, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    @property
    def is_stopped(self) -> bool:
        return not self._goes_on.is_set()

    def stop(self) -> None:
        """SIGSTOP: nothing that waits for time, network or disk goes on."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """SIGCONT."""
        self._goes_on.set()

    async def gate(self) -> None:
        """Return when the process runs."""
        await self._goes_on.wait()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ns(self) -> int:
        return EPOCH_NS + round((self.now() + self.skew_s) * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._goes_on.wait()
