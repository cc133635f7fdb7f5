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

    def first(self, count: int) -> list[Entry]:
        """The best rows of a lane that was only filled."""
        columns = self._values[:count].tolist(), self._ties[:count].tolist(), self._rows[:count].tolist()
        return list(zip(*columns, strict=True))

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
        self._only: tuple[int, _Lane] | None = None

    def fill(self, keys: Ints, values: Floats, ties: NDArray[np.uint64], rows: Ints) -> None:
        """Put rows in their lanes, all at once. All arrays: (rows that fit,)."""
        if not len(rows):
            return
        order = np.lexsort((ties, -values, keys)) if keys.any() else np.lexsort((ties, -values))
        keys, values, ties, rows = keys[order], -values[order], ties[order], rows[order]
        starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            part, key = slice(start, end), int(keys[start])
            lane = self._add(key, _Lane(self._offset_of(key), values[part], ties[part], rows[part]))
            self._queue(key, lane)

    def best(self, count: int) -> list[int]:
        """The best rows, as they were filled in."""
        heads = [
            (negated - lane.offset, tie, row)
            for lane in self._lanes.values()
            for negated, tie, row in lane.first(count)
        ]
        return [row for _, _, row in heapq.nsmallest(count, heads)]

    def shift(self, key: int) -> None:
        """Let a lane, if there is one, have the offset that it should have now."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.offset = self._offset_of(key)
            self._queue(key, lane)

    def insert(self, key: int, value: float, tie: int, row: int) -> None:
        """Put one row in a lane."""
        entry = (-value, tie, row)
        self._moved[row] = entry
        lane = self._lanes.get(key) or self._add(key, _Lane(self._offset_of(key), *_NO_ROWS))
        lane.push(entry)
        self._queue(key, lane)

    def remove(self, row: int) -> None:
        """Make a row's place void."""
        self._moved[row] = None

    def pop(self) -> Head | None:
        """Remove and return the best row."""
        while (found := self._next()) is not None:
            key, lane, entry = found
            lane.pop(entry)
            self._queue(key, lane)
            if self._moved.get(entry[2], entry) is entry:
                self._moved[entry[2]] = None
                return Head(entry[0] - lane.offset, entry[1], entry[2])
        return None

    def _next(self) -> tuple[int, _Lane, Entry] | None:
        """The lane with the best head, and that head."""
        if self._only is not None:
            head = self._only[1].head()
            return (*self._only, head) if head is not None else None
        while self._heads:
            _, _, key, stamp = self._heads[0]
            lane = self._lanes[key]
            head = lane.head() if lane.stamp == stamp else None
            if head is not None:
                return key, lane, head
            heapq.heappop(self._heads)
        return None

    def _add(self, key: int, lane: _Lane) -> _Lane:
        """Add a lane. As long as there is only one, heads need not be compared."""
        only, self._only = self._only, (key, lane) if not self._lanes else None
        self._lanes[key] = lane
        if only is not None:
            self._queue(*only)
        return lane

    def _queue(self, key: int, lane: _Lane) -> None:
        """Let the lane's present head stand for it."""
        if self._only is not None:
            return
        lane.stamp += 1
        head = lane.head()
        if head is not None:
            heapq.heappush(self._heads, (head[0] - lane.offset, head[1], key, lane.stamp))


_NO_ROWS = np.zeros(0), np.zeros(0, np.uint64), np.zeros(0, np.int64)
