"""A clock that only moves when a test says so."""

import asyncio
import heapq
import itertools


class ManualClock:
    """Starts at `now` 0 and some day in 2026; `advance` moves both times and lets sleepers go on in order."""

    def __init__(self, wall_ns: int = 1_770_000_000_000_000_000) -> None:
        self._now = 0.0
        self._wall_ns = wall_ns
        self._numbers = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def now_ns(self) -> int:
        return self._wall_ns + int(self._now * 1e9)

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._numbers), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass; everything that was due has had its turn when this returns."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self._now = end
        await settle()


async def settle(rounds: int = 20) -> None:
    """Let everything run that can run without time passing."""
    for _ in range(rounds):
        await asyncio.sleep(0)
