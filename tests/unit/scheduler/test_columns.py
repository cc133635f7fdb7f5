"""Nodes as columns, and the proposal on top of them."""

import numpy as np
from tests.builders import make_alloc, make_node
from tests.fake_view import FakeView

from lepa.scheduler.ahead import Ahead
from lepa.scheduler.columns import CODED_COLUMNS_MAX, CPU, NodeColumns, Proposal
from lepa.scheduler.feasible import Check, FieldColumn, TargetColumn

RACK = TargetColumn("${meta.rack}")


def passing(columns: NodeColumns, rack: str) -> set[str]:
    """Ids of the nodes of a rack."""
    rows = np.flatnonzero(columns.exists & columns.passing(Check("", RACK, rack.__eq__)))
    return {columns.node(int(row)).id for row in rows}


def used_cpu(columns: NodeColumns, node_id: str) -> float:
    return float(columns.used[CPU, columns.row_of[node_id]])


def test_refresh_follows_nodes_and_allocations() -> None:
    view = FakeView(make_node("a", meta={"rack": "1"}), make_node("b", meta={"rack": "2"}))
    columns = NodeColumns()
    columns.refresh(view)
    assert passing(columns, "1") == {"a"}
    view.put_node(make_node("c", meta={"rack": "1"}))
    view.change_node("a", meta={"rack": "2"})
    view.put_alloc(make_alloc("x", node_id="b"))
    columns.refresh(view)
    assert passing(columns, "1") == {"c"}
    assert passing(columns, "2") == {"a", "b"}
    assert used_cpu(columns, "b") == 100
    view.put_alloc(view.alloc("x"), client_status="complete")
    view.remove_node("a")
    columns.refresh(view)
    assert passing(columns, "2") == {"b"}
    assert used_cpu(columns, "b") == 0


def test_nodes_are_looked_at_again_when_asked() -> None:
    view = FakeView(make_node("a"), make_node("b"))
    columns = NodeColumns()
    columns.refresh(view)
    columns.look_again(["a", "gone"])
    columns.refresh(Ahead(view, [make_alloc("x", node_id="a"), make_alloc("y", node_id="b")]))
    assert (used_cpu(columns, "a"), used_cpu(columns, "b")) == (100, 0)
    columns.look_again(["a"])
    columns.refresh(view)
    assert used_cpu(columns, "a") == 0


def test_a_freed_row_is_given_to_a_later_node() -> None:
    view = FakeView(make_node("a", meta={"rack": "1"}))
    columns = NodeColumns()
    columns.refresh(view)
    assert passing(columns, "1") == {"a"}
    view.remove_node("a")
    columns.refresh(view)
    assert passing(columns, "1") == set()
    view.put_node(make_node("b", meta={"rack": "2"}))
    columns.refresh(view)
    assert columns.row_of == {"b": 0}
    assert passing(columns, "2") == {"b"}


def test_an_older_view_is_read_anew() -> None:
    newer, older = FakeView(make_node("a"), make_node("b")), FakeView(make_node("a"))
    columns = NodeColumns()
    columns.refresh(newer)
    columns.refresh(older)
    assert set(columns.row_of) == {"a"}


def test_a_check_is_asked_once_a_distinct_value() -> None:
    view = FakeView(*(make_node(f"n{i}", meta={"rack": str(i % 3)}) for i in range(30)))
    columns = NodeColumns()
    columns.refresh(view)
    asked = []
    columns.passing(Check("", RACK, lambda value: asked.append(value) is None))
    assert len(asked) == 3
    assert columns.counts(RACK, columns.exists) == {"0": 10, "1": 10, "2": 10}


def test_kept_columns_are_bounded() -> None:
    view = FakeView(make_node("a", meta={"rack": "1"}))
    columns = NodeColumns()
    columns.refresh(view)
    for number in range(CODED_COLUMNS_MAX + 10):
        columns.coded(TargetColumn(f"${{meta.k{number}}}"))
    assert passing(columns, "1") == {"a"}
    assert columns.coded(FieldColumn("name")).values == ["a"]


def test_proposal_leaves_the_columns_alone() -> None:
    alloc = make_alloc("x", node_id="a")
    view = FakeView(make_node("a", node_max_allocs=2), allocs=[alloc])
    columns = NodeColumns()
    columns.refresh(view)
    proposal = Proposal(view, columns)
    stopped = make_alloc("x", node_id="a", desired_status="stop")
    proposal.put(stopped, alloc)
    proposal.put(make_alloc("y", node_id="a"))
    proposal.put(make_alloc("z", node_id="a"))
    row = columns.row_of["a"]
    assert proposal.used[CPU, row] == 200
    assert proposal.slots[row] == 0
    assert used_cpu(columns, "a") == 100
    assert proposal.current(alloc) is stopped
    assert [a.id for a in proposal.node_allocations("a")] == ["x", "y", "z"]
