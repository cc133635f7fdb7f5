"""Waiting for something to happen, for so long and no longer, by the clock that was handed in."""

import asyncio

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks


async def happens(event: asyncio.Event, clock: Clock, within_s: float | None) -> bool:
    """Wait for `event`, at most within_s (None: for ever); whether it has happened."""
    if within_s is None:
        await event.wait()
    elif not event.is_set() and within_s > 0:
        async with Tasks("client.waiting") as tasks:
            either = {tasks.start("event", event.wait()), tasks.start("time", clock.sleep(within_s))}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    return event.is_set()
