"""Decoded rows share what they have in common."""

from tests.builders import make_alloc, make_metric, make_task_state

from lepa.model.allocation import Allocation
from lepa.model.wire import from_msgpack, to_msgpack
from lepa.state.sharing import share_allocation


def shared() -> Allocation:
    row = make_alloc(metrics=make_metric("node-1", "node-2"), task_states={"web": make_task_state("Started")})
    alloc = from_msgpack(to_msgpack(row), Allocation)
    share_allocation(alloc)
    return alloc


def test_equal_texts_of_two_rows_are_one() -> None:
    first, second = shared(), shared()
    assert first.node_id is second.node_id
    assert first.task_states["web"].events[0].type is second.task_states["web"].events[0].type
    assert first.metrics is not None
    assert second.metrics is not None
    assert first.metrics.score_meta_data[0].node_id is second.metrics.score_meta_data[0].node_id


def test_sharing_changes_no_value() -> None:
    plain = make_alloc(metrics=make_metric("node-1", "node-2"), task_states={"web": make_task_state("Started")})
    assert shared() == plain
