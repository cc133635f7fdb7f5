"""Pure: sorts the allocations of one group into what must be done about them; and the index of their names.

Every allocation lands in exactly one set:

    live          counts towards the group: it runs, or is about to
    settled       counts and is left alone: finished batch work, a failure without tries left, a move that waits
    migrating     counts; is to be stopped here and placed elsewhere
    failed        counts; is to be stopped and placed elsewhere now
    failed_later  counts; the same, at a later time
    lost          does not count; its node is gone; is to be marked lost and replaced
    lost_later    counts for now: its node is gone, its replacement waits until the client has stopped it by itself
    unknown       does not count; its node is disconnected, it may come back; has a replacement, or should get one
    away          counts; its node is disconnected and it is not to be replaced
    reconnecting  came back while a replacement runs: one of the two must go
    over          does not count and needs nothing, but for a status that has to be put right (`lost_stopped`)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from lepa.kit.durations import SECOND, parse_rfc3339, rfc3339
from lepa.model.allocation import Allocation, AllocState
from lepa.model.deployment import Deployment
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.usage import has_ended, is_stopped
from lepa.scheduler.reschedule import WINDOW_NS, next_move, reschedules_at_all

UNKNOWN = "unknown"
ACTIVE_DEPLOYMENTS = frozenset({"running", "paused", "initializing", "pending", "blocked", "unblocking"})
HELD = frozenset({"paused", "failed", "pending"})
"""Statuses of deployments that make nothing new: somebody has to decide, or it is another region's turn."""


@dataclass
class AllocSets:
    """See the module. Times are Unix nanoseconds. newly_disconnected: those of unknown and away to be marked so now."""

    live: list[Allocation] = field(default_factory=list)
    settled: list[Allocation] = field(default_factory=list)
    migrating: list[Allocation] = field(default_factory=list)
    failed: list[Allocation] = field(default_factory=list)
    failed_later: list[tuple[Allocation, int]] = field(default_factory=list)
    lost: list[Allocation] = field(default_factory=list)
    lost_later: list[tuple[Allocation, int]] = field(default_factory=list)
    unknown: list[Allocation] = field(default_factory=list)
    away: list[Allocation] = field(default_factory=list)
    newly_disconnected: list[tuple[Allocation, int]] = field(default_factory=list)
    reconnecting: list[Allocation] = field(default_factory=list)
    lost_stopped: list[Allocation] = field(default_factory=list)

    def named(self) -> list[Allocation]:
        """All that count, and so keep their names."""
        later = [alloc for alloc, _ in (*self.failed_later, *self.lost_later)]
        return [*self.live, *self.settled, *self.migrating, *self.failed, *later, *self.away]


class AllocSorter:
    """Sorts by the rules of one job at one moment.

    node: a node by id. evaluation_id: the evaluation at work; an allocation that waits for it is due. deployment: the
    job's latest.
    """

    def __init__(
        self,
        job: Job,
        node: Callable[[str], Node | None],
        deployment: Deployment | None,
        evaluation_id: str,
        now_ns: int,
    ) -> None:
        self._job = job
        self._batch = job.type in ("batch", "sysbatch")
        self._node = node
        self._deployment = deployment
        self._evaluation_id = evaluation_id
        self._now_ns = now_ns

    def sort(self, group: TaskGroup, allocs: Iterable[Allocation]) -> AllocSets:
        """Sort all allocations of a group."""
        allocs = list(allocs)
        replaced = {alloc.previous_allocation for alloc in allocs if not _is_over(alloc)}
        sets = AllocSets()
        for alloc in allocs:
            if is_stopped(alloc):
                self._sort_stopped(sets, group, alloc, alloc.id in replaced)
            elif has_ended(alloc):
                self._sort_ended(sets, group, alloc)
            elif alloc.client_status == UNKNOWN:
                self._sort_unknown(sets, group, alloc, alloc.id in replaced)
            else:
                self._sort_running(sets, group, alloc)
        return sets

    def _sort_stopped(self, sets: AllocSets, group: TaskGroup, alloc: Allocation, replaced: bool) -> None:
        node = self._node(alloc.node_id)
        if not has_ended(alloc):
            if node is None or node.status == "down":
                sets.lost_stopped.append(alloc)
        elif self._batch and ran_to_completion(alloc) and alloc.job_version == self._job.version:
            sets.settled.append(alloc)
        elif alloc.client_status == "lost" and not replaced and (wait := stop_after(group)) is not None:
            due = lost_since(alloc) + wait
            if due > self._now_ns + WINDOW_NS and alloc.followup_eval_id != self._evaluation_id:
                sets.settled.append(alloc)

    def _sort_ended(self, sets: AllocSets, group: TaskGroup, alloc: Allocation) -> None:
        if self._batch and alloc.job_version != self._job.version:
            return
        if alloc.client_status == "complete" and self._batch:
            sets.settled.append(alloc)
        elif alloc.client_status == "failed" and not alloc.next_allocation:
            self._sort_failed(sets, group, alloc)

    def _sort_failed(self, sets: AllocSets, group: TaskGroup, alloc: Allocation) -> None:
        transition = alloc.desired_transition
        if transition.force_reschedule:
            sets.failed.append(alloc)
            return
        move = next_move(alloc, group.reschedule_policy)
        if move is None or (self._belongs_to_failed_deployment(alloc) and not transition.reschedule):
            sets.settled.append(alloc)
        elif move.at_ns <= self._now_ns + WINDOW_NS or alloc.followup_eval_id == self._evaluation_id:
            sets.failed.append(alloc)
        elif alloc.followup_eval_id:
            sets.settled.append(alloc)
        else:
            sets.failed_later.append((alloc, move.at_ns))

    def _belongs_to_failed_deployment(self, alloc: Allocation) -> bool:
        deployment = self._deployment
        return deployment is not None and deployment.status == "failed" and alloc.deployment_id == deployment.id

    def _sort_unknown(self, sets: AllocSets, group: TaskGroup, alloc: Allocation, replaced: bool) -> None:
        node = self._node(alloc.node_id)
        expires = unknown_since(alloc) + lost_after(group)
        if node is None or expires <= self._now_ns or not lost_after(group):
            sets.lost.append(alloc)
        elif replaced or (node.status != "ready" and replaces_while_away(group)):
            sets.unknown.append(alloc)
        else:
            sets.away.append(alloc)

    def _sort_running(self, sets: AllocSets, group: TaskGroup, alloc: Allocation) -> None:
        node = self._node(alloc.node_id)
        if node is None or node.status == "down":
            self._sort_lost(sets, group, alloc, node)
        elif node.status == "disconnected":
            self._sort_disconnecting(sets, group, alloc, node)
        elif alloc.alloc_states and alloc.alloc_states[-1].value == UNKNOWN:
            sets.reconnecting.append(alloc)
        elif alloc.desired_transition.migrate:
            sets.migrating.append(alloc)
        else:
            sets.live.append(alloc)

    def _sort_lost(self, sets: AllocSets, group: TaskGroup, alloc: Allocation, node: Node | None) -> None:
        wait = stop_after(group)
        gone_since = node.status_updated_at * SECOND if node else self._now_ns
        if wait is not None and gone_since + wait > self._now_ns + WINDOW_NS:
            sets.lost_later.append((alloc, gone_since + wait))
        else:
            sets.lost.append(alloc)

    def _sort_disconnecting(self, sets: AllocSets, group: TaskGroup, alloc: Allocation, node: Node) -> None:
        """Only what ran can go on by itself; what had not started is lost at once."""
        if alloc.client_status != "running" or not lost_after(group):
            self._sort_lost(sets, group, alloc, node)
            return
        sets.newly_disconnected.append((alloc, self._now_ns + lost_after(group)))
        (sets.unknown if replaces_while_away(group) else sets.away).append(alloc)


def _is_over(alloc: Allocation) -> bool:
    return is_stopped(alloc) or has_ended(alloc)


def ran_to_completion(alloc: Allocation) -> bool:
    """Whether batch work ended by itself and well, rather than being killed."""
    events = [event.type for state in alloc.task_states.values() for event in state.events]
    failed = any(state.failed for state in alloc.task_states.values())
    return alloc.client_status == "complete" and not failed and "Killed" not in events and "Killing" not in events


def stop_after(group: TaskGroup) -> int | None:
    """Nanoseconds after which a client that lost its servers stops the group by itself, or None."""
    if group.disconnect is not None and group.disconnect.stop_on_client_after is not None:
        return group.disconnect.stop_on_client_after
    return group.stop_after_client_disconnect


def lost_after(group: TaskGroup) -> int:
    """Nanoseconds for which an allocation may stay unknown; 0 when it is lost at once."""
    if group.disconnect is not None:
        return group.disconnect.lost_after
    return group.max_client_disconnect or 0


def replaces_while_away(group: TaskGroup) -> bool:
    """Whether a disconnected allocation gets a replacement before it is lost."""
    wanted = group.disconnect is None or group.disconnect.replace
    return wanted and reschedules_at_all(group.reschedule_policy)


def unknown_since(alloc: Allocation) -> int:
    """Unix nanoseconds since when it is unknown."""
    return _state_since(alloc, UNKNOWN)


def lost_since(alloc: Allocation) -> int:
    """Unix nanoseconds since when it is lost."""
    return _state_since(alloc, "lost")


def _state_since(alloc: Allocation, value: str) -> int:
    for state in reversed(alloc.alloc_states):
        if state.value == value:
            return parse_rfc3339(state.time)
    return alloc.modify_time


def with_client_status(alloc: Allocation, status: str, now_ns: int, **changes: str) -> Allocation:
    """The allocation with a client status that scheduling has to remember."""
    states = (*alloc.alloc_states, AllocState(field=0, value=status, time=rfc3339(now_ns)))
    return msgspec.structs.replace(alloc, client_status=status, alloc_states=states, **changes)


def name_of(job_id: str, group: str, index: int) -> str:
    """The name of an allocation: `<job>.<group>[index]`."""
    return f"{job_id}.{group}[{index}]"


def index_of(name: str) -> int:
    """The index in a name; -1 when there is none."""
    start = name.rfind("[")
    digits = name[start + 1 : -1]
    return int(digits) if start >= 0 and digits.isdigit() else -1


class NameIndex:
    """Gives the lowest names that are not taken."""

    def __init__(self, job_id: str, group: str, taken: Iterable[str]) -> None:
        self._prefix = f"{job_id}.{group}["
        self._taken = {index_of(name) for name in taken}
        self._next = 0

    def take(self) -> str:
        """A free name, taken from now on."""
        while self._next in self._taken:
            self._next += 1
        self._taken.add(self._next)
        return f"{self._prefix}{self._next}]"

    def claim(self, name: str) -> bool:
        """Take a certain name if it is free."""
        index = index_of(name)
        if index in self._taken:
            return False
        self._taken.add(index)
        return True


def surplus_first(allocs: Sequence[Allocation], version: int, preferred: set[str]) -> list[Allocation]:
    """Allocations in the order in which a group gives them up: doubles of newer ones, then the highest names, so
    that the lowest stay.

    preferred: ids that go first of those with the same name: what would be moved or replaced anyway.
    """
    current = {alloc.name for alloc in allocs if alloc.job_version == version}

    def key(alloc: Allocation) -> tuple[bool, int, bool, bool, str]:
        doubled = alloc.job_version != version and alloc.name in current
        return (
            not doubled,
            -index_of(alloc.name),
            alloc.id not in preferred,
            alloc.job_version == version,
            alloc.id,
        )

    return sorted(allocs, key=key)
