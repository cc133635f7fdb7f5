"""Sessions that are over, and lock delays that have passed."""

from tests.world import World

from lepa.kit.durations import SECOND
from lepa.model.kv import KvOperation, Session
from lepa.server.deciders.sessions import ForgetDelay, decide
from lepa.state.commands.kv import apply_operations
from lepa.state.commands.sessions import create_session, renew_session


def test_a_session_ends_when_nobody_renews_it() -> None:
    world = World()
    created = world.do(create_session, Session(ttl=10 * SECOND))
    early = decide(world.snapshot, world.now_ns + 19 * SECOND)
    assert early.orders == ()
    assert early.wake_at_ns == world.now_ns + 20 * SECOND
    world.now_ns += 20 * SECOND
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert world.snapshot.session(created) is None


def test_a_renewal_that_was_just_in_time_wins() -> None:
    world = World()
    created = world.do(create_session, Session(ttl=10 * SECOND))
    world.now_ns += 20 * SECOND
    orders = decide(world.snapshot, world.now_ns).orders
    world.do(renew_session, created)
    world.carry_out(orders)
    assert world.snapshot.session(created) is not None


def test_a_session_whose_node_is_gone_ends() -> None:
    world = World()
    world.do(create_session, Session())
    stored = Session(id="s", node_id="gone", checks=("serfHealth",))
    world.do(lambda draft: draft.put("sessions/s", stored, None))
    (order,) = decide(world.snapshot, world.now_ns).orders
    assert "serfHealth" in order.reason


def test_a_lock_delay_is_forgotten_when_it_has_passed() -> None:
    world = World()
    created = world.do(create_session, Session(ttl=10 * SECOND, lock_delay=15 * SECOND))
    world.do(apply_operations, [KvOperation(verb="lock", key="a", session=created)])
    world.now_ns += 20 * SECOND
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert decide(world.snapshot, world.now_ns).wake_at_ns == world.now_ns + 15 * SECOND
    world.now_ns += 15 * SECOND
    assert decide(world.snapshot, world.now_ns).orders == (ForgetDelay("a"),)
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert list(world.snapshot.kv_delays()) == []
