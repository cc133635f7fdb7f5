"""Pure: all nodes as numpy columns, kept between evaluations.

A row is a node. What a node has and what its allocations use are numbers; every other property that checks, spreads
and `distinct_property` look at is a *coded column*: an array of small integers beside the list of distinct values they
stand for. Reading a property costs one call a node the first time and one call a changed node after that, asking a
question of ten thousand nodes costs one verdict a distinct value.

One `NodeColumns` belongs to one worker; `refresh` brings it to a view's index by looking again only at the nodes that
the view says were touched. Rows of vanished nodes are given to later ones, so the order of rows means nothing: whoever
needs an order that a seed alone decides sorts by `tie_bits`.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lepa.model.allocation import Allocation
from lepa.model.node import Node
from lepa.model.usage import Usage, allocation_usage, core_mhz, has_ended, node_capacity, occupies
from lepa.scheduler.chance import text_bits
from lepa.scheduler.feasible import Check, Column
from lepa.scheduler.ports import held_ports
from lepa.scheduler.view import View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]

CODED_COLUMNS_MAX = 256
"""Coded columns kept at a time; the one made first goes first."""

CPU, MEMORY, DISK, CORES = range(4)


class CodedColumn:
    """codes: (rows,) positions in `values`, the distinct values met so far."""

    def __init__(self, rows: int) -> None:
        self.codes: Codes = np.zeros(rows, np.int32)
        self.values: list[Hashable] = []
        self._code_of: dict[Hashable, int] = {}

    def set(self, row: int, value: Hashable) -> None:
        """Give a row a value."""
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        self.codes[row] = code

    def widen(self, rows: int) -> None:
        """Make place for more rows."""
        self.codes = np.concatenate([self.codes, np.zeros(rows - len(self.codes), np.int32)])


class NodeColumns:
    """capacity, used: (4, rows) float64: MHz, MiB, MiB of disk, whole cores. exists: rows that stand for a node."""

    def __init__(self) -> None:
        self.index = 0
        self._again: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self.nodes: list[Node | None] = []
        self.row_of: dict[str, int] = {}
        self.exists: Mask = np.zeros(0, np.bool_)
        self.capacity: Floats = np.zeros((4, 0))
        self.used: Floats = np.zeros((4, 0))
        self.core_mhz: Floats = np.zeros(0)
        self.slots: Floats = np.zeros(0)
        self.tie_bits: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._free_rows: list[int] = []
        self._coded: dict[Column, CodedColumn] = {}
        self._port_rows: dict[int, set[int]] = {}
        self._row_ports: dict[int, set[int]] = {}

    def refresh(self, view: View) -> None:
        """Bring all columns to the index of `view`."""
        touched = view.touched_nodes(self.index) if 0 < self.index <= view.index else None
        if touched is None:
            self._clear()
            nodes = list(view.nodes())
            self._widen(len(nodes))
            for node in nodes:
                self._set_node(node, view)
        else:
            for node_id in sorted(touched | self._again):
                changed = view.node(node_id)
                if changed is None:
                    self._remove(node_id)
                else:
                    self._set_node(changed, view)
        self.index = view.index
        self._again = set()

    def look_again(self, node_ids: Iterable[str]) -> None:
        """Read these nodes at the next refresh, though the view may not say that they were touched."""
        self._again.update(node_ids)

    def node(self, row: int) -> Node:
        """The node a row stands for."""
        node = self.nodes[row]
        assert node is not None
        return node

    def coded(self, column: Column) -> CodedColumn:
        """A property of all nodes; read now if it is not kept yet."""
        kept = self._coded.get(column)
        if kept is None:
            while len(self._coded) >= CODED_COLUMNS_MAX:
                self._coded.pop(next(iter(self._coded)))
            kept = self._coded[column] = CodedColumn(len(self.nodes))
            for row, node in enumerate(self.nodes):
                if node is not None:
                    kept.set(row, column.read(node))
        return kept

    def passing(self, check: Check) -> Mask:
        """(rows,) which nodes pass a check; the check is asked once a distinct value."""
        column = self.coded(check.column)
        if not self.row_of:
            return np.zeros(len(self.nodes), np.bool_)
        verdicts = np.array([check.passes(value) for value in column.values], np.bool_)
        return verdicts[column.codes]

    def counts(self, column: Column, rows: Mask) -> dict[Any, int]:
        """How many of some rows have each value."""
        coded = self.coded(column)
        counted = np.bincount(coded.codes[rows], minlength=len(coded.values))
        return {coded.values[code]: int(counted[code]) for code in np.flatnonzero(counted)}

    def count_rows(self, allocs: Iterable[Allocation]) -> Ints:
        """(rows,) how many of some allocations each node has."""
        counted: Ints = np.zeros(len(self.nodes), np.int64)
        for alloc in allocs:
            row = self.row_of.get(alloc.node_id)
            if row is not None:
                counted[row] += 1
        return counted

    def rows_using_port(self, port: int) -> set[int]:
        """Rows on which an allocation holds a host port, on whatever address."""
        return self._port_rows.get(port, set())

    def _widen(self, more: int) -> None:
        start, rows = len(self.nodes), len(self.nodes) + more
        self.nodes.extend([None] * more)
        self._free_rows.extend(range(rows - 1, start - 1, -1))
        self.exists = np.concatenate([self.exists, np.zeros(more, np.bool_)])
        self.capacity = np.concatenate([self.capacity, np.zeros((4, more))], axis=1)
        self.used = np.concatenate([self.used, np.zeros((4, more))], axis=1)
        self.core_mhz = np.concatenate([self.core_mhz, np.zeros(more)])
        self.slots = np.concatenate([self.slots, np.zeros(more)])
        self.tie_bits = np.concatenate([self.tie_bits, np.zeros(more, np.uint64)])
        for column in self._coded.values():
            column.widen(rows)

    def _row_for(self, node_id: str) -> int:
        row = self.row_of.get(node_id)
        if row is None:
            if not self._free_rows:
                self._widen(max(64, len(self.nodes) // 2))
            row = self.row_of[node_id] = self._free_rows.pop()
            self.tie_bits[row] = text_bits(node_id)
        return row

    def _set_node(self, node: Node, view: View) -> None:
        row = self._row_for(node.id)
        if self.nodes[row] is not node:
            for column, kept in self._coded.items():
                kept.set(row, column.read(node))
            self.capacity[:, row] = node_capacity(node)
            self.core_mhz[row] = core_mhz(node)
        self.nodes[row] = node
        self.exists[row] = True
        self._set_allocations(row, node, view)

    def _set_allocations(self, row: int, node: Node, view: View) -> None:
        used, running = view.node_usage(node.id)
        self.used[:, row] = used
        self.slots[row] = node.node_max_allocs - running if node.node_max_allocs else np.inf
        allocs = view.node_allocations(node.id)
        self._set_ports(row, {value for alloc in allocs if not has_ended(alloc) for _, value in held_ports(alloc)})

    def _set_ports(self, row: int, ports: set[int]) -> None:
        before = self._row_ports.get(row, set())
        for port in before - ports:
            self._port_rows[port].discard(row)
        for port in ports - before:
            self._port_rows.setdefault(port, set()).add(row)
        self._row_ports[row] = ports

    def _remove(self, node_id: str) -> None:
        row = self.row_of.pop(node_id, None)
        if row is not None:
            self.nodes[row] = None
            self.exists[row] = False
            self._set_ports(row, set())
            self._free_rows.append(row)


class Proposal:
    """The cluster as a plan in the making would leave it: the columns' numbers less what stops, plus what is placed.

    `used` and `slots` start as copies, so the columns stay as the view has them.
    """

    def __init__(self, view: View, columns: NodeColumns) -> None:
        self._view = view
        self._columns = columns
        self.used: Floats = columns.used.copy()
        self.slots: Floats = columns.slots.copy()
        self._changed: dict[str, dict[str, Allocation]] = {}

    def put(self, alloc: Allocation, before: Allocation | None = None) -> None:
        """Let an allocation be as given from now on. before: what it was."""
        row = self._columns.row_of.get(alloc.node_id)
        if row is not None:
            if before is not None and occupies(before):
                self.occupy(row, Usage().minus(allocation_usage(before)), -1)
            if occupies(alloc):
                self.occupy(row, allocation_usage(alloc))
        self.note(alloc)

    def note(self, alloc: Allocation) -> None:
        """`put` for an allocation whose row was occupied already."""
        self._changed.setdefault(alloc.node_id, {})[alloc.id] = alloc

    def occupy(self, row: int, usage: Usage, count: int = 1) -> None:
        """Let a row have `count` more allocations that use so much together."""
        used = self.used
        used[0, row] += usage[0]
        used[1, row] += usage[1]
        used[2, row] += usage[2]
        used[3, row] += usage[3]
        self.slots[row] -= count

    def current(self, alloc: Allocation) -> Allocation:
        """An allocation of the view as the plan leaves it."""
        return self._changed.get(alloc.node_id, {}).get(alloc.id, alloc)

    def node_allocations(self, node_id: str) -> list[Allocation]:
        """Allocations on a node that have not ended, as the plan leaves them."""
        changed = self._changed.get(node_id, {})
        kept = [a for a in self._view.node_allocations(node_id) if a.id not in changed and not has_ended(a)]
        return kept + [a for a in changed.values() if not has_ended(a)]
