"""What a server hears of the one that leads."""

from types import SimpleNamespace
from typing import Any, cast

from tests.clocks import ManualClock

from lepa.kit.telemetry import Metrics
from lepa.rpc.server_requests import PulseRequest, ServerRecord
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


async def test_a_server_is_overdue_when_its_word_to_the_leader_is_late() -> None:
    clock = ManualClock()
    me, other = ServerRecord(name="a.global"), ServerRecord(name="b.global", rpc_address="b:4647")
    roster: Any = SimpleNamespace(me=me, servers=lambda: (me, other))
    leadership: Any = SimpleNamespace(leading=object(), key=SimpleNamespace(created=1), leader_address="")
    replica: Any = SimpleNamespace(snapshot=SimpleNamespace(index=9))
    contact = Contact(leadership, roster, replica, cast(Any, object()), clock, Metrics())
    contact.answer(PulseRequest(name="b.global"))
    await clock.advance(0.4)
    assert contact.overdue_ms() == {"b.global": 0}
    await clock.advance(0.5)
    assert contact.overdue_ms() == {"b.global": 400}
    assert contact.answer(PulseRequest(name="b.global")).overdue_ms == {"b.global": 0}
