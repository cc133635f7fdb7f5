"""Pure: jobs that need a look for which nobody has asked.

A change that concerns more jobs than one transaction takes (a node with hundreds of jobs goes down) is written in
several, and a server may die in between: the change is there, some of the evaluations that follow from it are not. So
a server that begins to lead, and every so often after that, asks of each job what changed that it has to react to, and
whether an evaluation has looked at a state that new or is about to.

    what changed                                                 since
    an allocation lives on a node that is down or gone           the node's change
    an allocation on a draining node was asked to move           the allocation's change
    a system job, and a node takes work                          the node's change
    any other job, and fewer allocations live than are wanted    the job's change, or that of one that gave out

Asking once too often does no harm: a look at a state that needs nothing changes nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from lepa.kit.durations import parse_rfc3339
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_jobs, places
from lepa.state.gates import held
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES, JobKey, JobTally, lives
from lepa.state.snapshot import Snapshot

SYSTEM_TYPES = ("system", "sysbatch")
FOLLOW_UP = "failed-follow-up"


class Look(NamedTuple):
    """A job that has to be looked at. trigger: what its evaluation says."""

    namespace: str
    job_id: str
    trigger: str
    reason: str

    def apply(self, draft: Draft) -> None:
        """Ask for it, unless somebody has."""
        if not _asked_for(draft.snapshot, (self.namespace, self.job_id)):
            evaluate_jobs(draft, [(self.namespace, self.job_id)], self.trigger)


class _Need(NamedTuple):
    """A reason to look at a job at the state of revision `since` or a later one."""

    job: JobKey
    since: int
    trigger: str
    reason: str


def find_overlooked(snapshot: Snapshot) -> tuple[Look, ...]:
    """One look for each job that was overlooked."""
    newest: dict[JobKey, _Need] = {}
    for need in (*_on_lost_nodes(snapshot), *_asked_to_move(snapshot), *_incomplete(snapshot)):
        if need.job not in newest or newest[need.job].since < need.since:
            newest[need.job] = need
    return tuple(
        Look(*need.job, need.trigger, need.reason)
        for need in newest.values()
        if _looked_at(snapshot, need.job) < need.since and not _asked_for(snapshot, need.job)
    )


def _looked_at(snapshot: Snapshot, job: JobKey) -> int:
    """The newest state that an evaluation of the job has looked at."""
    return max((e.snapshot_index for e in snapshot.job_evaluations(*job)), default=0)


def _asked_for(snapshot: Snapshot, job: JobKey) -> bool:
    """Whether an evaluation is about to look: not one that waits for an hour that a single allocation has to wait."""
    return any(e.status == "pending" and (not _delayed(e) or e.triggered_by == FOLLOW_UP) for e in _open(snapshot, job))


def _open(snapshot: Snapshot, job: JobKey) -> tuple[Evaluation, ...]:
    tally = snapshot.tallies.get(job)
    return snapshot.job_evaluations(*job) if tally is not None and tally.open_evaluations else ()


def _delayed(evaluation: Evaluation) -> bool:
    return bool(evaluation.wait or parse_rfc3339(evaluation.wait_until))


def _on_lost_nodes(snapshot: Snapshot) -> Iterator[_Need]:
    for node_id in snapshot.tables["allocs"].groups["node"]:
        node = snapshot.node(str(node_id))
        if node is not None and node.status not in ("down", "disconnected"):
            continue
        since = snapshot.table_index("nodes") if node is None else node.modify_index
        for alloc in snapshot.node_allocations(str(node_id)):
            known = node is not None and node.status == "disconnected" and alloc.client_status == "unknown"
            if lives(alloc) and not known:
                yield _Need((alloc.namespace, alloc.job_id), since, "node-update", "an allocation's node is lost")


def _asked_to_move(snapshot: Snapshot) -> Iterator[_Need]:
    for node in snapshot.nodes():
        if node.drain_strategy is None:
            continue
        for alloc in snapshot.node_allocations(node.id):
            if lives(alloc) and alloc.desired_transition.migrate:
                job = alloc.namespace, alloc.job_id
                yield _Need(job, alloc.modify_index, "node-drain", "an allocation has to leave its node")


def _incomplete(snapshot: Snapshot) -> Iterator[_Need]:
    joined = max((node.modify_index for node in snapshot.nodes() if _takes_work(node)), default=0)
    for job in snapshot.jobs():
        if job.stop or not places(job) or held(snapshot, job) or (job.type == "sysbatch" and job.status == "dead"):
            continue
        key = job.namespace, job.id
        if job.type in SYSTEM_TYPES:
            yield _Need(key, joined, "node-update", "a node may want one of a system job")
        elif snapshot.tallies.get(key, JobTally()).living < sum(group.count for group in job.task_groups):
            yield _Need(key, _gave_out(snapshot, job), "queued-allocs", "fewer allocations live than are wanted")


def _takes_work(node: Node) -> bool:
    return node.status == "ready" and node.scheduling_eligibility == "eligible" and node.drain_strategy is None


def _gave_out(snapshot: Snapshot, job: Job) -> int:
    """When the job last came to have less than it wants: it changed, or one ended that it has no successor for."""
    ended = (
        alloc.modify_index
        for alloc in snapshot.job_allocations(job.namespace, job.id)
        if alloc.desired_status == "run"
        and alloc.client_status in TERMINAL_CLIENT_STATUSES
        and not alloc.next_allocation
        and not (job.type == "batch" and alloc.client_status == "complete")
    )
    return max((job.modify_index, *ended))
