"""Pure: rows waiting in order of score, where many scores may move together.

A *lane* holds rows whose scores differ from their own values by one common offset; moving the offset keeps their order.
In a lane most rows never move: they stay in sorted arrays and become Python tuples a chunk at a time; the few that come
back after a placement are in a heap beside them. The heads of the lanes are in one more heap, whose entries are thrown
away when their lane has changed since.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lepa.scheduler.columns import Floats, Ints

CHUNK = 512
"""Waiting rows turned into tuples at a time."""

Entry = tuple[float, int, int]
"""Negated value, tie bits, row: the smallest is the best."""


class Head(NamedTuple):
    """The best row there is, with its negated score."""

    negated_score: float
    tie: int
    row: int


class _Lane:
    __slots__ = ("_at", "_heap", "_pending", "_rows", "_ties", "_values", "offset", "stamp")

    def __init__(self, offset: float, values: Floats, ties: NDArray[np.uint64], rows: Ints) -> None:
        self.offset, self.stamp = offset, 0
        self._values, self._ties, self._rows, self._at = values, ties, rows, 0
        self._pending: list[Entry] = []
        self._heap: list[Entry] = []

    def push(self, entry: Entry) -> None:
        heapq.heappush(self._heap, entry)

    def head(self) -> Entry | None:
        if not self._pending and self._at < len(self._rows):
            self._load_chunk()
        if not self._heap:
            return self._pending[-1] if self._pending else None
        if self._pending and self._pending[-1] < self._heap[0]:
            return self._pending[-1]
        return self._heap[0]

    def pop(self, head: Entry) -> None:
        if self._heap and self._heap[0] is head:
            heapq.heappop(self._heap)
        else:
            self._pending.pop()

    def _load_chunk(self) -> None:
        part = slice(self._at, self._at + CHUNK)
        self._at += CHUNK
        columns = self._values[part].tolist(), self._ties[part].tolist(), self._rows[part].tolist()
        self._pending = list(zip(*columns, strict=True))[::-1]


class Lanes:
    """All lanes. A row stands in at most one of them; inserting it again makes its earlier place void.

    offset_of: what every row of the lane with a key has on top of its own value, now.
    """

    def __init__(self, offset_of: Callable[[int], float]) -> None:
        self._offset_of = offset_of
        self._lanes: dict[int, _Lane] = {}
        self._heads: list[tuple[float, int, int, int]] = []
        self._moved: dict[int, Entry | None] = {}

    def fill(self, keys: Ints, values: Floats, ties: NDArray[np.uint64], rows: Ints) -> None:
        """Put rows in their lanes, all at once. All arrays: (rows that fit,)."""
        if not len(rows):
            return
        order = np.lexsort((ties, -values, keys)) if keys.any() else np.lexsort((ties, -values))
        keys, values, ties, rows = keys[order], -values[order], ties[order], rows[order]
        starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            part, key = slice(start, end), int(keys[start])
            self._lanes[key] = _Lane(self._offset_of(key), values[part], ties[part], rows[part])
            self._queue(key)

    def shift(self, key: int) -> None:
        """Let a lane, if there is one, have the offset that it should have now."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.offset = self._offset_of(key)
            self._queue(key)

    def insert(self, key: int, value: float, tie: int, row: int) -> None:
        """Put one row in a lane."""
        entry = (-value, tie, row)
        self._moved[row] = entry
        self._lane(key).push(entry)
        self._queue(key)

    def remove(self, row: int) -> None:
        """Make a row's place void."""
        self._moved[row] = None

    def pop(self) -> Head | None:
        """Remove and return the best row."""
        while self._heads:
            score, _, key, stamp = self._heads[0]
            lane = self._lanes[key]
            entry = lane.head() if lane.stamp == stamp else None
            if entry is None:
                heapq.heappop(self._heads)
                continue
            lane.pop(entry)
            self._queue(key)
            if self._moved.get(entry[2], entry) is entry:
                self._moved[entry[2]] = None
                return Head(score, entry[1], entry[2])
        return None

    def _lane(self, key: int) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            empty = np.zeros(0)
            lane = self._lanes[key] = _Lane(
                self._offset_of(key), empty, empty.astype(np.uint64), empty.astype(np.int64)
            )
        return lane

    def _queue(self, key: int) -> None:
        """Let the lane's present head stand for it."""
        lane = self._lanes[key]
        lane.stamp += 1
        head = lane.head()
        if head is not None:
            heapq.heappush(self._heads, (head[0] - lane.offset, head[1], key, lane.stamp))
