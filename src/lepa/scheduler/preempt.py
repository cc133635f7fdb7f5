"""Pure: whom to evict so that a job of higher priority fits.

Only allocations of jobs at least ten priorities lower may be evicted. On each node as few and as unimportant ones as
possible are chosen: the lowest priority first, among equals the one that helps most, and afterwards everyone is spared
who turns out not to be needed. Of all nodes the one whose victims weigh least is taken. Nothing is evicted unless the
placement then fits in every respect, ports and devices included.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.usage import Usage, allocation_usage, free_core_ids, node_capacity, occupies
from lepa.scheduler.columns import NodeColumns, Proposal
from lepa.scheduler.devices import assign_devices, devices_in_use
from lepa.scheduler.ports import NodePorts
from lepa.scheduler.rank import GroupRanking
from lepa.scheduler.view import View

PRIORITY_DELTA = 10
"""How much higher a job's priority has to be before it may evict another's allocation."""


class Victims(NamedTuple):
    """Allocations of one row to evict. weight: sums up how much is lost: total priority, then number."""

    weight: tuple[int, int]
    tie: int
    row: int
    allocs: Sequence[Allocation]


def choose_victims(
    candidates: Sequence[tuple[int, Allocation]], missing: Usage, fits: Callable[[set[str]], bool]
) -> list[Allocation] | None:
    """The least that has to go, or None when even all of them do not help.

    candidates: (priority, allocation). missing: what the node lacks, at least 0 in each dimension. fits: whether the
    placement fits when allocations with these ids are gone.
    """
    ordered = sorted(candidates, key=lambda item: (item[0], -_help(item[1], missing), item[1].id))
    gone: set[str] = set()
    chosen: list[tuple[int, Allocation]] = []
    for priority, alloc in ordered:
        if fits(gone):
            break
        gone.add(alloc.id)
        chosen.append((priority, alloc))
    if not fits(gone):
        return None
    for _, alloc in sorted(chosen, key=lambda item: (-item[0], _help(item[1], missing))):
        if fits(gone - {alloc.id}):
            gone.discard(alloc.id)
    return [alloc for _, alloc in chosen if alloc.id in gone]


def _help(alloc: Allocation, missing: Usage) -> float:
    """How much of what is missing an allocation gives back, 0..1 for each dimension."""
    usage = allocation_usage(alloc)
    return sum(min(1.0, given / short) for given, short in zip(usage, missing, strict=True) if short > 0)


class Preemptor:
    """All nodes on which evictions would make room for one group, the cheapest first."""

    def __init__(self, view: View, columns: NodeColumns, proposal: Proposal, job: Job, ranking: GroupRanking) -> None:
        self._view, self._columns, self._proposal, self._job, self._ranking = view, columns, proposal, job, ranking
        self._group = next(group for group in job.task_groups if group.name == ranking.group_name)
        self._priorities: dict[tuple[str, str, int], int] = {}
        self._heap: list[Victims] | None = None

    def take(self) -> Victims | None:
        """The cheapest evictions, looked at again in case the plan has changed since; None when none help."""
        if self._heap is None:
            rows = self._ranking.open_rows().nonzero()[0].tolist()
            self._heap = [victims for row in rows if (victims := self.on(row)) is not None]
            heapq.heapify(self._heap)
        while self._heap:
            victims = heapq.heappop(self._heap)
            now = self.on(victims.row) if self._ranking.is_open(victims.row) else None
            if now is None:
                continue
            heapq.heappush(self._heap, now)
            if now.weight <= victims.weight:
                return now
        return None

    def on(self, row: int) -> Victims | None:
        """The evictions that would make room on one row, or None."""
        node = self._columns.node(row)
        allocs = self._proposal.node_allocations(node.id)
        candidates = []
        for alloc in allocs:
            if occupies(alloc) and (alloc.namespace, alloc.job_id) != (self._job.namespace, self._job.id):
                priority = self._priority(alloc)
                if priority <= self._job.priority - PRIORITY_DELTA:
                    candidates.append((priority, alloc))
        if not candidates:
            return None
        missing = Usage(*(max(0, short) for short in self._needed(row, node, allocs, set())))
        victims = choose_victims(candidates, missing, lambda gone: self._fits(row, node, allocs, gone))
        if not victims:
            return None
        weights = {alloc.id: priority for priority, alloc in candidates}
        weight = sum(weights[alloc.id] for alloc in victims), len(victims)
        return Victims(weight, self._ranking.tie(row), row, victims)

    def _priority(self, alloc: Allocation) -> int:
        key = alloc.namespace, alloc.job_id, alloc.job_version
        if key not in self._priorities:
            job = alloc.job or self._view.job_version(*key) or self._view.job(alloc.namespace, alloc.job_id)
            self._priorities[key] = job.priority if job else 0
        return self._priorities[key]

    def _needed(self, row: int, node: Node, allocs: Sequence[Allocation], gone: set[str]) -> Usage:
        """What the node lacks in each dimension; 0 or less where there is enough."""
        used = self._ranking.ask(row)
        for alloc in allocs:
            if occupies(alloc) and alloc.id not in gone:
                used = used.plus(allocation_usage(alloc))
        return used.minus(node_capacity(node))

    def _fits(self, row: int, node: Node, allocs: Sequence[Allocation], gone: set[str]) -> bool:
        if any(short > 0 for short in self._needed(row, node, allocs, gone)):
            return False
        left = [_evicted(alloc) if alloc.id in gone else alloc for alloc in allocs]
        running = [alloc for alloc in left if occupies(alloc)]
        if node.node_max_allocs and len(running) >= node.node_max_allocs:
            return False
        ports = NodePorts(node, left, (self._job.namespace, self._job.id))
        asked = [*self._group.networks, *(n for task in self._group.tasks for n in task.resources.networks)]
        if isinstance(ports.assign(asked, 0), str):
            return False
        devices = [device for task in self._group.tasks for device in task.resources.devices]
        if isinstance(assign_devices(node, devices_in_use(running), devices), str):
            return False
        return sum(task.resources.cores for task in self._group.tasks) <= len(free_core_ids(node, running))


def _evicted(alloc: Allocation) -> Allocation:
    return msgspec.structs.replace(alloc, desired_status="evict")
