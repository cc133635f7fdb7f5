"""A transaction in the making."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_eval
from tests.world import World

from lepa.state import keys
from lepa.store.protocol import Compare, Limits, Put


def test_what_is_replaced_is_compared_with_what_was_seen() -> None:
    world = World()
    seen = world.put_alloc(make_alloc())
    draft = world.draft()
    draft.put_allocation(replace(seen, client_status="failed"))
    draft.put_evaluation(make_eval())
    assert draft.txn().compares == (
        Compare(keys.alloc_key("alloc-1"), modified=seen.modify_index),
        Compare(keys.eval_key("eval-1"), modified=0),
    )


def test_a_command_sees_what_an_earlier_one_drafted() -> None:
    draft = World().draft()
    draft.put_allocation(make_alloc(client_status="failed"))
    seen = draft.allocation("alloc-1")
    assert seen is not None
    assert seen.client_status == "failed"


def test_a_large_draft_becomes_several_transactions_in_order() -> None:
    draft = World().draft()
    for number in range(5):
        draft.put_evaluation(make_eval(f"eval-{number}"))
    parts = draft.txns(Limits(operations_max=2, bytes_max=1_000_000))
    assert [len(part.operations) for part in parts] == [2, 2, 1]
    assert [op.key for part in parts for op in part.operations] == [keys.eval_key(f"eval-{n}") for n in range(5)]
    assert all({c.key for c in part.compares} == {op.key for op in part.operations} for part in parts)
    small = draft.txns(Limits(operations_max=100, bytes_max=150))
    assert all(part.size <= 150 or len(part.operations) == 1 for part in small)


def test_changes_are_what_a_watch_will_say() -> None:
    world = World()
    seen = world.put_alloc(make_alloc())
    draft = world.draft()
    draft.put_allocation(replace(seen, client_status="failed"))
    draft.erase("services/default/web/1")
    put, gone = draft.changes(9)
    assert (put.created, put.revision, gone.value) == (seen.create_index, 9, None)
    assert isinstance(draft.txn().operations[0], Put)
