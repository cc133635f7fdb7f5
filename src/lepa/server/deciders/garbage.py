"""Pure: what has ended long enough ago to be forgotten.

    a job          dead, and nothing of it is open, for long enough; with all that belongs to it. A service and a
                   template (periodic, parameterized) only when stopped. Children and tagged versions keep their job
    an evaluation  ended, and all allocations that it made too, for long enough; those go with it. Evaluations of batch
                   jobs that are not dead stay: their allocations say what work is done
    a deployment   ended, and not the latest of a living job
    a node         down, with no allocation that has not ended

The newest evaluation with allocations is all a living job is known by, so what a failed allocation still needs (a move
to come, its place in a chain) keeps it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from lepa.kit.durations import SECOND
from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.server.settings import GarbageSettings
from lepa.state.commands.deployments import ACTIVE
from lepa.state.commands.garbage import Garbage
from lepa.state.gates import held
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES, TERMINAL_EVALUATION_STATUSES
from lepa.state.snapshot import Snapshot


class _Before(NamedTuple):
    """What ended at these times (Unix nanoseconds) or before may go."""

    job: int
    evaluation: int
    batch_evaluation: int
    deployment: int
    node: int


def find_garbage(snapshot: Snapshot, settings: GarbageSettings, now_ns: int, *, force: bool = False) -> Garbage:
    """Everything that may go. force: however recently it ended."""

    def before(age_s: float) -> int:
        return now_ns if force else now_ns - int(age_s * SECOND)

    limits = _Before(
        before(settings.job_s),
        before(settings.evaluation_s),
        before(settings.batch_evaluation_s),
        before(settings.deployment_s),
        before(settings.node_s),
    )
    jobs = {(job.namespace, job.id) for job in snapshot.jobs() if _job_may_go(snapshot, job, limits.job)}
    evaluations = [e for e in snapshot.evaluations() if _evaluation_may_go(snapshot, e, jobs, limits)]
    gone = {evaluation.id for evaluation in evaluations}
    allocs = [
        alloc
        for alloc in snapshot.allocations()
        if (alloc.namespace, alloc.job_id) in jobs
        or (alloc.eval_id in gone and _ended(alloc))
        or _left_behind(snapshot, alloc, limits)
    ]
    return Garbage(
        evaluations=tuple(gone),
        allocations=tuple(alloc.id for alloc in allocs),
        jobs=tuple(sorted(jobs)),
        deployments=tuple(_deployments(snapshot, jobs, limits.deployment)),
        nodes=tuple(_nodes(snapshot, limits.node)),
    )


def _left_behind(snapshot: Snapshot, alloc: Allocation, limits: _Before) -> bool:
    """Whether somebody deleted the evaluation of an allocation that would have gone with it."""
    if not _ended(alloc) or alloc.modify_time > limits.evaluation or snapshot.evaluation(alloc.eval_id) is not None:
        return False
    job = snapshot.job(alloc.namespace, alloc.job_id)
    batch = job is not None and job.type in ("batch", "sysbatch") and not job.stop
    return not batch and not _needed(alloc, job)


def _job_may_go(snapshot: Snapshot, job: Job, before_ns: int) -> bool:
    ends = job.stop or job.type in ("batch", "sysbatch")
    if not ends or job.status != "dead" or job.submit_time > before_ns:
        return False
    if any(version.version_tag is not None for version in snapshot.job_versions(job.namespace, job.id)):
        return False
    if snapshot.children(job.namespace, job.id) or held(snapshot, job):
        return False
    evaluations = snapshot.job_evaluations(job.namespace, job.id)
    allocs = snapshot.job_allocations(job.namespace, job.id)
    return all(_over(evaluation, before_ns) for evaluation in evaluations) and all(
        _ended(alloc) and alloc.modify_time <= before_ns for alloc in allocs
    )


def _evaluation_may_go(snapshot: Snapshot, evaluation: Evaluation, jobs: set[tuple[str, str]], limits: _Before) -> bool:
    key = (evaluation.namespace, evaluation.job_id)
    if key in jobs:
        return True
    job = snapshot.job(*key)
    batch = evaluation.type in ("batch", "sysbatch")
    if batch and job is not None and not job.stop:
        return False
    before_ns = limits.batch_evaluation if batch else limits.evaluation
    if not _over(evaluation, before_ns):
        return False
    return all(
        _ended(alloc) and alloc.modify_time <= before_ns and not _needed(alloc, job)
        for alloc in snapshot.evaluation_allocations(evaluation.id)
    )


def may_be_deleted(snapshot: Snapshot, evaluation: Evaluation) -> bool:
    """Whether an evaluation may go at once: its job has ended, or nothing of it runs or is to be replaced."""
    job = snapshot.job(evaluation.namespace, evaluation.job_id)
    if job is None or job.stop or job.status == "dead":
        return True
    allocs = snapshot.evaluation_allocations(evaluation.id)
    return all(_ended(alloc) and not _needed(alloc, job) for alloc in allocs)


def _needed(alloc: Allocation, job: Job | None) -> bool:
    """Whether a living job still has something to learn from an allocation that has ended."""
    if job is None or job.stop or alloc.desired_status != "run":
        return False
    return alloc.client_status == "failed" and not alloc.next_allocation


def _deployments(snapshot: Snapshot, jobs: set[tuple[str, str]], before_ns: int) -> Iterator[str]:
    for deployment in snapshot.deployments():
        key = (deployment.namespace, deployment.job_id)
        if key in jobs:
            yield deployment.id
        elif deployment.status not in ACTIVE and deployment.modify_time <= before_ns:
            latest = snapshot.latest_deployment(*key)
            allocs = snapshot.deployment_allocations(deployment.id)
            orphan = snapshot.job(*key) is None
            if all(map(_ended, allocs)) and (orphan or latest is None or latest.id != deployment.id):
                yield deployment.id


def _nodes(snapshot: Snapshot, before_ns: int) -> Iterator[str]:
    for node in snapshot.nodes():
        long_down = node.status == "down" and node.status_updated_at * SECOND <= before_ns
        if long_down and all(map(_ended, snapshot.node_allocations(node.id))):
            yield node.id


def _over(evaluation: Evaluation, before_ns: int) -> bool:
    return evaluation.status in TERMINAL_EVALUATION_STATUSES and evaluation.modify_time <= before_ns


def _ended(alloc: Allocation) -> bool:
    return alloc.client_status in TERMINAL_CLIENT_STATUSES
