"""Waiting for an event or for a time, whichever comes first, by the clock that was handed in."""

import asyncio

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks


class Alarm:
    """Sets an event when its time has come. One waiter at a time."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Return when the event is set; at `until` (the clock's `now`) the alarm sets it. None: no alarm."""
        if until is None:
            await event.wait()
            return
        ring = self._tasks.start("alarm", self._ring(event, until))
        try:
            await event.wait()
        finally:
            ring.cancel()

    async def _ring(self, event: asyncio.Event, until: float) -> None:
        await self._clock.sleep(max(0.0, until - self._clock.now()))
        event.set()
