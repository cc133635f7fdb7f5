"""Sessions begin, are renewed and end."""

import pytest
from tests.builders import make_node
from tests.world import World

from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError
from lepa.model.kv import KvOperation, Session
from lepa.model.service import CheckState, ServiceRegistration
from lepa.state.commands.catalog import register_outside
from lepa.state.commands.kv import apply_operations
from lepa.state.commands.sessions import broken, create_session, end_session, ends_at_ns, renew_session


def test_a_session_gets_an_id_and_a_time() -> None:
    world = World()
    created = world.do(create_session, Session(name="leader", ttl=10 * SECOND))
    stored = world.snapshot.session(created)
    assert stored is not None
    assert (stored.name, stored.renewed_at) == ("leader", world.now_ns)
    assert ends_at_ns(stored) == world.now_ns + 20 * SECOND


def test_a_session_without_a_ttl_never_ends_by_time() -> None:
    assert ends_at_ns(Session(id="s")) is None


@pytest.mark.parametrize("ttl", [1 * SECOND, 25 * 3600 * SECOND])
def test_a_ttl_has_bounds(ttl: int) -> None:
    with pytest.raises(LepaError, match="Invalid Session TTL"):
        World().do(create_session, Session(ttl=ttl))


def test_a_lock_delay_is_at_most_a_minute() -> None:
    with pytest.raises(LepaError, match="LockDelay"):
        World().do(create_session, Session(lock_delay=61 * SECOND))


def test_renewal_moves_the_end() -> None:
    world = World()
    created = world.do(create_session, Session(ttl=10 * SECOND))
    world.now_ns += 5 * SECOND
    world.do(renew_session, created)
    stored = world.snapshot.session(created)
    assert stored is not None
    assert stored.renewed_at == world.now_ns


def test_what_is_over_cannot_be_renewed() -> None:
    with pytest.raises(LepaError, match="not found"):
        World().do(renew_session, "gone")


@pytest.mark.parametrize(("behavior", "left"), [("release", [("a", "")]), ("delete", [])])
def test_the_end_releases_or_deletes_and_delays(behavior: str, left: list[tuple[str, str]]) -> None:
    world = World()
    created = world.do(create_session, Session(behavior=behavior, lock_delay=15 * SECOND))  # type: ignore[arg-type]
    world.do(apply_operations, [KvOperation(verb="lock", key="a", session=created)])
    world.do(end_session, created)
    assert [(entry.key, entry.session) for entry in world.snapshot.kv_entries()] == left
    delay = world.snapshot.kv_delay("a")
    assert delay is not None
    assert delay.until == world.now_ns + 15 * SECOND
    world.do(end_session, created)


def test_a_session_dies_with_its_node() -> None:
    world = World()
    world.node(make_node("n1"))
    wanted = Session(node="n1", node_id="n1", checks=("serfHealth",))
    created = world.do(create_session, wanted)
    stored = world.snapshot.session(created)
    assert stored is not None
    assert broken(world.snapshot, stored) == ""
    assert "serfHealth" in broken(World().snapshot, stored)


def test_a_session_dies_with_a_check_that_it_names() -> None:
    world = World()

    def register(status: str) -> None:
        check = CheckState(id="alive", status=status)
        service = ServiceRegistration(id="w", service_name="web", node_name="box", agent="box", checks=(check,))
        world.do(register_outside, service)

    with pytest.raises(LepaError, match="Missing check 'alive'"):
        world.do(create_session, Session(node="box", checks=("alive",)))
    register("passing")
    created = world.do(create_session, Session(node="box", checks=("alive",)))
    stored = world.snapshot.session(created)
    assert stored is not None
    assert broken(world.snapshot, stored) == ""
    register("critical")
    assert broken(world.snapshot, stored) == "Check 'alive' is in critical state"
