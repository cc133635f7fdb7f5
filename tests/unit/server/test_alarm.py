"""An event or a time, whichever comes first."""

import asyncio

from tests.clocks import ManualClock, settle

from lepa.kit.tasks import Tasks
from lepa.server.alarm import Alarm


async def test_the_alarm_rings_at_its_time() -> None:
    clock = ManualClock()
    async with Tasks("test") as tasks:
        event = asyncio.Event()
        waiting = tasks.start("wait", Alarm(clock, tasks).wait(event, 5))
        await clock.advance(4)
        assert not waiting.done()
        await clock.advance(1)
        assert waiting.done()


async def test_the_event_comes_first() -> None:
    clock = ManualClock()
    async with Tasks("test") as tasks:
        event = asyncio.Event()
        waiting = tasks.start("wait", Alarm(clock, tasks).wait(event, 5))
        await settle()
        event.set()
        await settle()
        assert waiting.done()
        assert len(tasks) == 0


async def test_without_a_time_only_the_event_counts() -> None:
    async with Tasks("test") as tasks:
        event = asyncio.Event()
        waiting = tasks.start("wait", Alarm(ManualClock(), tasks).wait(event, None))
        await settle()
        assert not waiting.done()
        event.set()
        await settle()
        assert waiting.done()
