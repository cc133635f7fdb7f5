"""Pure: how allocations leave draining nodes.

Service allocations move a few at a time, as their group's migrate block allows: as long as at least
count - max_parallel of the group are healthy elsewhere. Batch work is left until it is done or the deadline comes.
System jobs go last, when everything else has ended, or stay where the drain says so. At the deadline whatever is left
is told to go. When nothing is left the drain is complete.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lepa.kit.durations import parse_rfc3339
from lepa.model.allocation import Allocation
from lepa.model.job import Job, TaskGroup
from lepa.model.node import DrainStrategy, Node
from lepa.model.policies import MigrateStrategy
from lepa.state.commands.allocations import group_of, migrate_allocations
from lepa.state.commands.draft import Draft
from lepa.state.commands.nodes import complete_drain
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES
from lepa.state.snapshot import Snapshot

SYSTEM_TYPES = ("system", "sysbatch")


class Migrate(NamedTuple):
    """Allocations that have to leave now. place False: they are not replaced elsewhere."""

    alloc_ids: tuple[str, ...]
    reason: str
    place: bool = True

    def apply(self, draft: Draft) -> None:
        """Ask them to."""
        migrate_allocations(draft, self.alloc_ids, place=self.place)


class Complete(NamedTuple):
    """Nothing is left on a draining node."""

    node_id: str
    reason: str = "nothing is left"

    def apply(self, draft: Draft) -> None:
        """Note it."""
        complete_drain(draft, self.node_id)


class Decision(NamedTuple):
    """Orders, and when to look again (Unix nanoseconds, None: when something changes)."""

    orders: tuple[Migrate | Complete, ...]
    wake_at_ns: int | None


def decide(snapshot: Snapshot, now_ns: int) -> Decision:
    """What all draining nodes need."""
    draining = [(node, node.drain_strategy) for node in snapshot.nodes() if node.drain_strategy is not None]
    orders: list[Migrate | Complete] = []
    moving: dict[tuple[str, str, str], list[Allocation]] = defaultdict(list)
    for node, drain in draining:
        left = _Left(snapshot, node, drain)
        if left.empty:
            orders.append(Complete(node.id))
        elif _is_over(drain, now_ns):
            orders += left.all_at_once()
        else:
            for alloc in left.services:
                moving[alloc.namespace, alloc.job_id, alloc.task_group].append(alloc)
            orders += left.system_when_last()
    orders += [Migrate(ids, "node is draining") for ids in _next_moves(snapshot, moving) if ids]
    deadlines = [at for _, drain in draining if (at := parse_rfc3339(drain.force_deadline)) > now_ns]
    return Decision(tuple(orders), min(deadlines, default=None))


class _Left:
    """Allocations of a draining node that have not ended, by how they leave."""

    def __init__(self, snapshot: Snapshot, node: Node, drain: DrainStrategy) -> None:
        self.services: list[Allocation] = []
        self.batch: list[Allocation] = []
        self.system: list[Allocation] = []
        self.going: list[Allocation] = []
        for alloc in snapshot.node_allocations(node.id):
            if alloc.client_status in TERMINAL_CLIENT_STATUSES:
                continue
            job = snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version) or snapshot.job(
                alloc.namespace, alloc.job_id
            )
            kind = job.type if job is not None else "service"
            if kind in SYSTEM_TYPES and drain.ignore_system_jobs:
                continue
            if alloc.desired_status != "run":
                self.going.append(alloc)
            elif kind in SYSTEM_TYPES:
                self.system.append(alloc)
            elif kind == "batch":
                self.batch.append(alloc)
            else:
                self.services.append(alloc)

    @property
    def empty(self) -> bool:
        return not (self.services or self.batch or self.system or self.going)

    def all_at_once(self) -> Iterator[Migrate]:
        """The deadline has come."""
        for allocs, place in (([*self.services, *self.batch], True), (self.system, False)):
            if ids := _not_told(allocs):
                yield Migrate(ids, "the drain's deadline has passed", place)

    def system_when_last(self) -> Iterator[Migrate]:
        """System jobs serve the others, so they leave when those have ended."""
        others_gone = not self.services and not self.batch and all(alloc in self.system for alloc in self.going)
        if others_gone and (ids := _not_told(self.system)):
            yield Migrate(ids, "only system jobs are left", False)


def _is_over(drain: DrainStrategy, now_ns: int) -> bool:
    if drain.deadline < 0:
        return True
    deadline_ns = parse_rfc3339(drain.force_deadline)
    return 0 < deadline_ns <= now_ns


def _not_told(allocs: Iterable[Allocation]) -> tuple[str, ...]:
    return tuple(alloc.id for alloc in allocs if not alloc.desired_transition.migrate)


def _next_moves(snapshot: Snapshot, moving: dict[tuple[str, str, str], list[Allocation]]) -> Iterator[tuple[str, ...]]:
    """For each group the allocations that may leave now without leaving too few healthy ones."""
    for (namespace, job_id, _), allocs in moving.items():
        job = snapshot.job(namespace, job_id)
        group = group_of(job, allocs[0])
        waiting = [alloc for alloc in allocs if not alloc.desired_transition.migrate]
        if job is None or group is None or job.stop:
            yield tuple(alloc.id for alloc in waiting)
            continue
        needed = group.count - (group.migrate or MigrateStrategy()).max_parallel
        spare = _healthy(snapshot, job, group) - needed
        sick = [alloc for alloc in waiting if not _is_healthy(snapshot, group, alloc)]
        well = [alloc for alloc in waiting if _is_healthy(snapshot, group, alloc)]
        yield tuple(alloc.id for alloc in (*sick, *well[: max(0, spare)]))


def _healthy(snapshot: Snapshot, job: Job, group: TaskGroup) -> int:
    """Allocations of the group that work and are not about to leave."""
    return sum(
        alloc.task_group == group.name
        and alloc.desired_status == "run"
        and not alloc.desired_transition.migrate
        and _is_healthy(snapshot, group, alloc)
        for alloc in snapshot.job_allocations(job.namespace, job.id)
    )


def _is_healthy(snapshot: Snapshot, group: TaskGroup, alloc: Allocation) -> bool:
    """Its node says so. Where nobody asks the node about its health, what runs counts as healthy."""
    if alloc.client_status != "running":
        return False
    status = alloc.deployment_status
    if status is not None and status.healthy is not None:
        return status.healthy
    previous = snapshot.allocation(alloc.previous_allocation) if alloc.previous_allocation else None
    moved = previous is not None and previous.desired_transition.migrate is True
    return not alloc.deployment_id and not (moved and group.migrate is not None)
