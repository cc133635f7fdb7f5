"""Variables: check-and-set, locks, paths. Covers lepa.server.deciders.variable_locks."""

import pytest
from tests.world import World

from lepa.kit.durations import SECOND
from lepa.model.acl import Variable, VariableLock
from lepa.model.errors import LepaError
from lepa.model.tenancy import Namespace
from lepa.server.deciders.variable_locks import decide
from lepa.state.commands import variables as v
from lepa.state.commands.tenancy import delete_namespace, upsert_namespace


def variable(path: str = "app/db", data: bytes = b"x", lock: VariableLock | None = None) -> Variable:
    return Variable(namespace="default", path=path, key_id="k", data=data, lock=lock)


def stored(world: World, path: str = "app/db") -> Variable:
    found = world.snapshot.variable("default", path)
    assert found is not None
    return found


def test_set_keeps_when_it_was_made() -> None:
    world = World()
    world.do(v.apply_variable, "set", variable())
    first = stored(world)
    world.now_ns += SECOND
    world.do(v.apply_variable, "set", variable(data=b"y"))
    second = stored(world)
    assert (second.create_time, second.create_index) == (first.create_time, first.create_index)
    assert (second.modify_time, second.data) == (world.now_ns, b"y")
    assert second.modify_index > first.modify_index


def test_the_same_items_change_nothing() -> None:
    world = World()
    world.do(v.apply_variable, "set", variable())
    assert not world.do(v.apply_variable, "set", variable(data=b"other nonce"), same=True).changed


def test_check_and_set_answers_with_what_stands_in_the_way() -> None:
    world = World()
    missing = world.do(v.apply_variable, "cas", variable(), cas=7)
    assert missing.conflict == Variable(namespace="default", path="app/db")
    assert world.do(v.apply_variable, "cas", variable(), cas=0).changed
    index = stored(world).modify_index
    assert world.do(v.apply_variable, "cas", variable(), cas=0).conflict == stored(world)
    assert world.do(v.apply_variable, "cas", variable(data=b"y"), cas=index).changed
    assert world.do(v.apply_variable, "delete-cas", variable(), cas=index).conflict is not None
    assert world.do(v.apply_variable, "delete-cas", variable(), cas=stored(world).modify_index).changed
    assert world.snapshot.variable("default", "app/db") is None


def test_a_lock_keeps_others_out_until_it_is_released() -> None:
    world = World()
    taken = world.do(v.apply_variable, "lock-acquire", variable(lock=VariableLock(ttl=20 * SECOND)))
    assert taken.variable is not None
    lock = taken.variable.lock
    assert lock is not None
    assert lock.ttl == 20 * SECOND
    for operation in ("set", "delete"):
        with pytest.raises(LepaError, match="locked variable"):
            world.do(v.apply_variable, operation, variable(data=b"y"))
    assert world.do(v.apply_variable, "lock-acquire", variable(lock=VariableLock())).conflict is not None
    world.do(v.apply_variable, "set", variable(data=b"mine", lock=VariableLock(id=lock.id)))
    assert (stored(world).data, stored(world).lock) == (b"mine", lock)
    assert world.do(v.apply_variable, "lock-release", Variable(namespace="default", path="app/db", lock=lock)).changed
    assert stored(world).lock is None
    assert list(world.snapshot.variable_leases()) == []
    world.do(v.apply_variable, "set", variable(data=b"y"))
    with pytest.raises(LepaError, match="doesn't hold a lock"):
        world.do(v.apply_variable, "lock-release", Variable(namespace="default", path="app/db", lock=lock))


def test_renewal_moves_the_end_and_does_not_change_the_variable() -> None:
    world = World()
    world.do(v.apply_variable, "lock-acquire", variable(lock=VariableLock(ttl=10 * SECOND)))
    before = stored(world)
    assert before.lock is not None
    world.now_ns += 9 * SECOND
    world.do(v.renew_lock, "default", "app/db", before.lock.id)
    assert stored(world).modify_index == before.modify_index
    assert decide(world.snapshot, world.now_ns + 9 * SECOND).orders == ()
    assert decide(world.snapshot, world.now_ns).wake_at_ns == world.now_ns + 10 * SECOND
    with pytest.raises(LepaError, match="doesn't hold a lock"):
        world.do(v.renew_lock, "default", "app/db", "guess")


def test_a_lock_that_is_not_renewed_is_taken_away_and_delays_the_next() -> None:
    world = World()
    lock = VariableLock(ttl=10 * SECOND, lock_delay=12 * SECOND)
    world.do(v.apply_variable, "lock-acquire", variable(lock=lock))
    world.now_ns += 10 * SECOND
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert stored(world).lock is None
    world.now_ns += 11 * SECOND
    assert world.do(v.apply_variable, "lock-acquire", variable(lock=lock)).conflict is not None
    world.now_ns += 2 * SECOND
    assert world.do(v.apply_variable, "lock-acquire", variable(lock=lock)).changed


def test_a_late_order_spares_a_lock_that_was_renewed() -> None:
    world = World()
    world.do(v.apply_variable, "lock-acquire", variable(lock=VariableLock(ttl=10 * SECOND)))
    orders = decide(world.snapshot, world.now_ns + 10 * SECOND).orders
    held = stored(world).lock
    assert held is not None
    world.now_ns += SECOND
    world.do(v.renew_lock, "default", "app/db", held.id)
    world.carry_out(orders)
    assert stored(world).lock == held


@pytest.mark.parametrize(
    "path", ["a", "a/b-c_d~e", "nomad/jobs", "nomad/jobs/web/g/t", "nomad/job-templates/x", "x" * 128]
)
def test_paths_that_can_be(path: str) -> None:
    v.check_path(path)


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", "a b", "a.b", "x" * 129, "nomad", "nomad/x", "nomad/jobs/a/b/c/d", "nomad/jobs/", "../a"],
)
def test_paths_that_cannot(path: str) -> None:
    with pytest.raises(LepaError) as refused:
        v.check_path(path)
    assert refused.value.code == "invalid"


def test_items_have_a_bound() -> None:
    v.check_items({"k": "x" * (64 * 1024 - 1)})
    with pytest.raises(LepaError, match="limited to 64KiB"):
        v.check_items({"k": "x" * (64 * 1024)})
    with pytest.raises(LepaError, match="empty"):
        v.check_items({})


def test_a_namespace_has_to_be_there_and_cannot_go_while_it_has_variables() -> None:
    """B162."""
    world = World()
    ghost = Variable(namespace="ghost", path="a", key_id="k", data=b"x")
    with pytest.raises(LepaError, match="nonexistent namespace"):
        world.do(v.apply_variable, "set", ghost)
    world.do(upsert_namespace, Namespace(name="ghost"))
    world.do(v.apply_variable, "set", ghost)
    with pytest.raises(LepaError, match="variables"):
        world.do(delete_namespace, "ghost")


@pytest.mark.parametrize("ttl", [9 * SECOND, 25 * 3600 * SECOND])
def test_a_ttl_has_bounds(ttl: int) -> None:
    with pytest.raises(LepaError, match="invalid TTL"):
        v.checked_lock(VariableLock(ttl=ttl))
