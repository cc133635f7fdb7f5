"""Transactions on keys, and locks."""

from typing import Any

import pytest
from tests.world import World

from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError
from lepa.model.kv import KvDelay, KvOperation, Session
from lepa.state import keys
from lepa.state.commands import kv
from lepa.state.commands.kv import Applied, apply_operations


@pytest.fixture
def world() -> World:
    return World()


def do(world: World, verb: Any, key: str = "a", value: bytes = b"", **more: Any) -> Applied:
    return world.do(apply_operations, [KvOperation(verb=verb, key=key, value=value, **more)])


def session(world: World, session_id: str = "s1") -> str:
    world.do(lambda d: d.put(keys.session_key(session_id), Session(id=session_id), None))
    return session_id


def value(world: World, key: str = "a") -> bytes | None:
    entry = world.snapshot.kv_entry(key)
    return entry.value if entry else None


def test_a_key_is_set_read_and_deleted(world: World) -> None:
    do(world, "set", value=b"1", flags=7)
    (entry,) = do(world, "get").entries
    assert (entry.value, entry.flags) == (b"1", 7)
    do(world, "delete")
    assert value(world) is None


def test_writing_the_same_again_leaves_the_index(world: World) -> None:
    do(world, "set", value=b"1")
    draft = world.draft()
    apply_operations(draft, [KvOperation(verb="set", key="a", value=b"1")])
    assert draft.empty


def test_check_and_set_takes_only_the_present_index(world: World) -> None:
    assert not do(world, "cas", value=b"1", index=0).errors
    assert do(world, "cas", value=b"2", index=0).errors
    entry = world.snapshot.kv_entry("a")
    assert entry is not None
    assert do(world, "cas", value=b"2", index=entry.modify_index + 1).errors
    assert not do(world, "cas", value=b"2", index=entry.modify_index).errors
    assert value(world) == b"2"


def test_check_and_set_of_a_missing_key_needs_index_zero(world: World) -> None:
    assert do(world, "cas", value=b"1", index=5).errors
    assert value(world) is None


def test_delete_by_index(world: World) -> None:
    do(world, "set", value=b"1")
    entry = world.snapshot.kv_entry("a")
    assert entry is not None
    assert do(world, "delete-cas", index=entry.modify_index + 9).errors
    assert not do(world, "delete-cas", index=entry.modify_index).errors
    assert not do(world, "delete-cas", index=1).errors, "what is gone is gone"


def test_a_tree_is_read_and_deleted_by_its_prefix(world: World) -> None:
    for key in ("a/1", "a/2", "b"):
        do(world, "set", key, b"x")
    assert [entry.key for entry in do(world, "get-tree", "a/").entries] == ["a/1", "a/2"]
    do(world, "delete-tree", "a/")
    assert [entry.key for entry in world.snapshot.kv_entries()] == ["b"]


def test_a_transaction_sees_its_own_writes(world: World) -> None:
    operations = [KvOperation(verb="set", key="a", value=b"1"), KvOperation(verb="get", key="a")]
    assert [entry.value for entry in world.do(apply_operations, operations).entries] == [b"1", b"1"]


def test_a_transaction_is_done_whole_or_not_at_all(world: World) -> None:
    operations = [
        KvOperation(verb="set", key="a", value=b"1"),
        KvOperation(verb="check-not-exists", key="a"),
        KvOperation(verb="get", key="nowhere"),
    ]
    applied = world.do(apply_operations, operations)
    assert [error.op_index for error in applied.errors] == [1, 2]
    assert value(world) is None


def test_entries_of_a_write_have_the_index_of_its_commit(world: World) -> None:
    applied = do(world, "set", value=b"1")
    (entry,) = applied.entries_at(77)
    assert (entry.create_index, entry.modify_index) == (77, 77)


def test_a_lock_is_held_by_one_session(world: World) -> None:
    first, second = session(world, "s1"), session(world, "s2")
    assert not do(world, "lock", value=b"mine", session=first).errors
    assert do(world, "lock", value=b"mine too", session=second).errors
    assert do(world, "unlock", session=second).errors
    entry = world.snapshot.kv_entry("a")
    assert entry is not None
    assert (entry.session, entry.lock_index, entry.value) == ("s1", 1, b"mine")


def test_the_holder_may_lock_again_without_another_count(world: World) -> None:
    owner = session(world)
    do(world, "lock", session=owner)
    do(world, "lock", value=b"more", session=owner)
    entry = world.snapshot.kv_entry("a")
    assert entry is not None
    assert (entry.lock_index, entry.value) == (1, b"more")


def test_a_released_lock_counts_anew(world: World) -> None:
    owner = session(world)
    for _ in range(2):
        do(world, "lock", session=owner)
        do(world, "unlock", session=owner)
    entry = world.snapshot.kv_entry("a")
    assert entry is not None
    assert (entry.session, entry.lock_index) == ("", 2)


def test_a_plain_write_keeps_the_lock(world: World) -> None:
    owner = session(world)
    do(world, "lock", session=owner)
    do(world, "set", value=b"x")
    entry = world.snapshot.kv_entry("a")
    assert entry is not None
    assert entry.session == owner


def test_a_lock_delay_refuses_locks_but_no_writes(world: World) -> None:
    owner = session(world)
    delay = KvDelay(key="a", until=world.now_ns + 15 * SECOND)
    world.do(lambda draft: draft.overwrite(keys.kv_delay_key("a"), delay))
    assert do(world, "lock", session=owner).errors
    assert not do(world, "set", value=b"x").errors
    world.now_ns += 16 * SECOND
    assert not do(world, "lock", session=owner).errors


def test_a_lock_needs_a_session_that_lives(world: World) -> None:
    with pytest.raises(LepaError, match='invalid session "nobody"'):
        do(world, "lock", session="nobody")


@pytest.mark.parametrize("key", ["", " a", "a ", "../a", "a/./b", "x" * 1025])
def test_keys_that_are_refused(world: World, key: str) -> None:
    with pytest.raises(LepaError):
        do(world, "set", key)


def test_values_and_transactions_are_bounded() -> None:
    with pytest.raises(LepaError, match="byte limit"):
        kv.check_operations([KvOperation(verb="set", key="a", value=b"x" * (kv.VALUE_MAX + 1))])
    with pytest.raises(LepaError, match="too many operations"):
        kv.check_operations([KvOperation(verb="get", key="a")] * (kv.OPERATIONS_MAX + 1))
