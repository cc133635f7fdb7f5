"""lepa.serving.fine_timer"""

import asyncio

from lepa.serving.fine_timer import FineTimer


async def test_a_timer_is_due_once_at_the_time_last_set() -> None:
    fired = asyncio.Event()
    count = 0

    def due() -> None:
        nonlocal count
        count += 1
        fired.set()

    timer = FineTimer(due)
    timer.set(3600.0)
    timer.set(0.0002)
    await asyncio.wait_for(fired.wait(), 5)
    assert count == 1
    timer.set(-1.0)
    fired.clear()
    await asyncio.wait_for(fired.wait(), 5)
    assert count == 2
    timer.close()
