"""Waiting by the clock that was handed in."""

import asyncio

from tests.clocks import ManualClock, settle

from lepa.client.waiting import happens


async def test_it_ends_when_the_event_happens_or_the_time_is_over() -> None:
    clock, event = ManualClock(), asyncio.Event()
    waiting = asyncio.create_task(happens(event, clock, 5.0))
    await clock.advance(4.0)
    assert not waiting.done()
    await clock.advance(1.0)
    assert await waiting is False
    waiting = asyncio.create_task(happens(event, clock, None))
    await settle()
    event.set()
    assert await waiting is True
    assert await happens(event, clock, 0.0) is True
    event.clear()
    assert await happens(event, clock, 0.0) is False
