"""What a server hears of the one that leads."""

from types import SimpleNamespace
from typing import Any, cast

from tests.clocks import ManualClock

from lepa.kit.telemetry import Metrics
from lepa.server.contact import Contact


async def test_a_new_leader_is_not_blamed_for_the_silence_of_the_one_before() -> None:
    """Else calls to it would be given up at once, and their callers told that they may have been done."""
    clock = ManualClock()
    leadership: Any = SimpleNamespace(leading=None, key=SimpleNamespace(created=1))
    contact = Contact(leadership, cast(Any, None), cast(Any, None), None, clock, Metrics())
    assert contact.silence_ms() == 0
    await clock.advance(2.5)
    leadership.key.created = 7
    assert (contact.age_ms(), contact.silence_ms()) == (2_500, 0)
    await clock.advance(0.5)
    assert (contact.age_ms(), contact.silence_ms()) == (3_000, 500)
    leadership.leading = object()
    assert (contact.age_ms(), contact.silence_ms()) == (0, 0)
