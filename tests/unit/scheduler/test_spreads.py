"""Spread blocks."""

import math

import numpy as np
import pytest
from tests.builders import make_alloc, make_group, make_job, make_node
from tests.fake_view import FakeView

from lepa.model.constraint import Spread, SpreadTarget
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.spreads import SpreadBlock, spread_blocks


def blocks(*spreads: Spread, count: int = 10, own: int = 0) -> tuple[list[SpreadBlock], dict[object, int]]:
    """Spreads over dc1, dc2, dc3 and the codes of their values; `own` allocations are in dc1."""
    view = FakeView(*(make_node(f"n{i}", datacenter=f"dc{i}") for i in (1, 2, 3)), make_node("n4", datacenter="dc4"))
    columns = NodeColumns()
    columns.refresh(view)
    group = make_group(count=count, spreads=spreads)
    allocs = [make_alloc(f"a{i}", node_id="n1") for i in range(own)]
    feasible = columns.exists & (np.array([node is not None and node.id != "n4" for node in columns.nodes]))
    found = spread_blocks(columns, make_job(groups=(group,)), group, allocs, feasible)
    codes = {columns.node(row).datacenter: int(found[0].codes[row]) for row in columns.row_of.values()}
    return found, codes


def test_without_targets_all_values_share_evenly() -> None:
    (block,), codes = blocks(Spread(attribute="${node.datacenter}"), count=9, own=2)
    assert [block.wanted[codes[dc]] for dc in ("dc1", "dc2", "dc3", "dc4")] == pytest.approx([3, 3, 3, 0])
    assert block.boost(codes["dc1"]) == pytest.approx(0)
    assert block.boost(codes["dc2"]) == pytest.approx(2 / 3)


def test_targets_want_their_percentage_and_others_share_the_rest() -> None:
    target = SpreadTarget(value="dc1", percent=60)
    (block,), codes = blocks(Spread(attribute="${node.datacenter}", spread_target=(target,)))
    assert [block.wanted[codes[dc]] for dc in ("dc1", "dc2", "dc3")] == [6, 2, 2]


def test_a_target_of_zero_percent_is_the_last_choice_and_finite() -> None:
    """B051."""
    targets = SpreadTarget(value="dc1", percent=100), SpreadTarget(value="dc2", percent=0)
    (block,), codes = blocks(Spread(attribute="${node.datacenter}", spread_target=targets), own=9)
    assert block.boost(codes["dc2"]) < block.boost(codes["dc1"])
    assert math.isfinite(block.boost(codes["dc2"]))


def test_weights_share_the_boost() -> None:
    both, codes = blocks(
        Spread(attribute="${node.datacenter}", weight=75), Spread(attribute="${node.datacenter}", weight=25)
    )
    assert both[0].boost(codes["dc1"]) == 3 * both[1].boost(codes["dc1"])
