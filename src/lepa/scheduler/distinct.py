"""Pure: `distinct_hosts` and `distinct_property`: which nodes are closed because of where other allocations are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lepa.model.allocation import Allocation
from lepa.model.constraint import Constraint
from lepa.model.job import Job, TaskGroup
from lepa.scheduler.columns import Ints, Mask, NodeColumns
from lepa.scheduler.feasible import DISTINCT_HOSTS, TargetColumn, constraint_text, distinct_constraints


class DistinctRules:
    """`distinct_hosts` and `distinct_property`: rows that are closed because of where siblings are."""

    def __init__(
        self,
        columns: NodeColumns,
        job: Job,
        group: TaskGroup,
        own: Sequence[Allocation],
        siblings: Sequence[Allocation],
    ) -> None:
        self._hosts = False
        self._on_host: Ints = np.zeros(len(columns.nodes), np.int64)
        self._limits: list[_PropertyLimit] = []
        for constraint, whole_job in distinct_constraints(job, group):
            counted = siblings if whole_job else own
            if constraint.operand == DISTINCT_HOSTS:
                self._hosts = True
                self._on_host += columns.count_rows(counted)
            else:
                self._limits.append(_PropertyLimit(columns, constraint, counted))

    def count(self, row: int, change: int = 1) -> None:
        """Count a placement, or with -1 one that is gone."""
        if self._hosts:
            self._on_host[row] += change
        for limit in self._limits:
            limit.used[int(limit.codes[row])] += change

    def closed(self, row: int) -> bool:
        """Whether a row may get no more of the group."""
        if not self._hosts and not self._limits:
            return False
        return (self._hosts and self._on_host.item(row) > 0) or any(limit.reached(row) for limit in self._limits)

    def closed_rows(self) -> Mask:
        """(rows,) all that are closed."""
        closed: Mask = self._on_host > 0
        for limit in self._limits:
            closed |= limit.reached_rows()
        return closed

    def closed_by_reason(self, among: Mask) -> dict[str, Mask]:
        """Closed rows of some, by the constraint that closes them."""
        found = {DISTINCT_HOSTS: among & (self._on_host > 0)} if self._hosts else {}
        for limit in self._limits:
            found[limit.text] = among & limit.reached_rows()
        return {reason: rows for reason, rows in found.items() if rows.any()}


class _PropertyLimit:
    """One `distinct_property`: how many allocations each value of it has, and may have."""

    def __init__(self, columns: NodeColumns, constraint: Constraint, counted: Sequence[Allocation]) -> None:
        coded = columns.coded(TargetColumn(constraint.ltarget))
        self.text = constraint_text(constraint)
        self.codes: NDArray[np.int32] = coded.codes
        self._absent = [value is None for value in coded.values]
        self._limit = int(constraint.rtarget) if constraint.rtarget.isdigit() else 1
        self.used = np.bincount(coded.codes, columns.count_rows(counted), len(coded.values)).astype(int).tolist()

    def reached(self, row: int) -> bool:
        """Whether the row has no value, or its value has all it may have."""
        code = int(self.codes[row])
        return self._absent[code] or self.used[code] >= self._limit

    def reached_rows(self) -> Mask:
        """(rows,) the same for all."""
        full = [gone or used >= self._limit for gone, used in zip(self._absent, self.used, strict=True)]
        rows: Mask = np.array(full or [True], np.bool_)[self.codes]
        return rows
