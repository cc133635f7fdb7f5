"""Rows in order of score."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lepa.scheduler.lanes import Lanes


def filled(values: list[float], keys: list[int], offsets: dict[int, float]) -> Lanes:
    lanes = Lanes(lambda key: offsets[key])
    rows = np.arange(len(values))
    lanes.fill(np.array(keys, np.int64), np.array(values), rows.astype(np.uint64), rows)
    return lanes


def test_rows_come_best_first_and_ties_by_bits() -> None:
    lanes = filled([1.0, 3.0, 3.0, 2.0], [0] * 4, {0: 0.0})
    assert lanes.best(3) == [1, 2, 3]
    assert [head.row for head in iter(lanes.pop, None)] == [1, 2, 3, 0]


def test_a_row_put_back_stands_where_it_now_belongs() -> None:
    lanes = filled([3.0, 2.0], [0, 0], {0: 0.0})
    head = lanes.pop()
    assert head is not None
    lanes.insert(0, 1.0, 0, head.row)
    assert [head.row for head in iter(lanes.pop, None)] == [1, 0]


def test_a_removed_row_does_not_come() -> None:
    lanes = filled([3.0, 2.0], [0, 0], {0: 0.0})
    lanes.remove(0)
    assert [head.row for head in iter(lanes.pop, None)] == [1]


def test_an_offset_moves_a_whole_lane() -> None:
    offsets = {1: 0.0, 2: 5.0}
    lanes = filled([3.0, 2.0, 1.0], [1, 1, 2], offsets)
    assert lanes.best(1) == [2]
    offsets[1] = 10.0
    lanes.shift(1)
    lanes.shift(9)
    assert [(head.row, -head.negated_score) for head in iter(lanes.pop, None)] == [(0, 13.0), (1, 12.0), (2, 6.0)]


def test_a_second_lane_may_appear_later() -> None:
    offsets: dict[int, float] = defaultdict(float)
    lanes = filled([3.0, 1.0], [0, 0], offsets)
    lanes.insert(7, 2.0, 0, 9)
    assert [head.row for head in iter(lanes.pop, None)] == [0, 9, 1]


scores = st.integers(-3, 3).map(float)


@given(st.lists(st.tuples(scores, st.integers(0, 2)), max_size=20), st.lists(st.tuples(st.integers(0, 25), scores)))
def test_pops_agree_with_sorting_everything(rows: list[tuple[float, int]], moves: list[tuple[int, float]]) -> None:
    offsets = {0: 0.5, 1: -1.0, 2: 2.0}
    lanes = filled([value for value, _ in rows], [key for _, key in rows], offsets)
    places = dict(enumerate(rows))
    for row, value in moves:
        if row in places:
            lanes.insert(places[row][1], value, row, row)
            places[row] = value, places[row][1]
        offsets[row % 3] += 0.25
        lanes.shift(row % 3)
    expected = sorted(places, key=lambda row: (-(places[row][0] + offsets[places[row][1]]), row))
    assert [head.row for head in iter(lanes.pop, None)] == expected
