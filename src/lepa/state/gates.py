"""Pure: jobs that wait before they begin: for another job (`after`), or for a sister to end (`max_running`).

A job that has something to wait for is stored without an evaluation, so that nothing is placed. A decider asks for one
as soon as nothing holds it any more. A job waits only until it has begun: what becomes of the other job later does not
stop it. Somebody who evaluates it by hand starts it at once.
"""

from collections.abc import Iterator

from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, JobDependency
from lepa.state.commands.evaluations import places
from lepa.state.job_tally import lives
from lepa.state.snapshot import Snapshot


def waits_for(snapshot: Snapshot, job: Job, *, besides: int = 0) -> str:
    """What keeps a job from beginning, in words, or "". besides: sisters that are about to begin."""
    for dependency in job.after:
        reason = _dependency(snapshot, job, dependency)
        if reason:
            return reason
    limit = children_at_once(snapshot, job)
    if limit:
        running = besides + sum(1 for _ in running_children(snapshot, job.namespace, job.parent_id, but=job.id))
        if running >= limit:
            return f'{running} of at most {limit} children of job "{job.parent_id}" run'
    return ""


def may_wait(snapshot: Snapshot, job: Job) -> bool:
    """Whether a job is of a kind that something may hold."""
    return not job.stop and places(job) and (bool(job.after) or children_at_once(snapshot, job) > 0)


def holds_new_version(snapshot: Snapshot, job: Job) -> str:
    """What a version waits for that is about to be stored, or ""; while something of the job lives it does not wait."""
    if not may_wait(snapshot, job) or any(map(lives, snapshot.job_allocations(job.namespace, job.id))):
        return ""
    return waits_for(snapshot, job)


def begun(snapshot: Snapshot, job: Job) -> bool:
    """Whether the present version of a job has been looked at, or something of it lives."""
    if any(evaluation.job_modify_index >= job.job_modify_index for evaluation in _evaluations(snapshot, job)):
        return True
    allocs = snapshot.job_allocations(job.namespace, job.id)
    return any(lives(alloc) or alloc.job_version == job.version for alloc in allocs)


def held(snapshot: Snapshot, job: Job) -> str:
    """What a job waits for that has not begun, or ""."""
    if not may_wait(snapshot, job) or begun(snapshot, job):
        return ""
    return waits_for(snapshot, job)


def children_at_once(snapshot: Snapshot, child: Job) -> int:
    """How many children of a child's parent may run at once; 0 for any number, and for a job that is no child."""
    parent = snapshot.job(child.namespace, child.parent_id) if child.parent_id else None
    if parent is None:
        return 0
    if child.dispatched and parent.parameterized_job is not None:
        return parent.parameterized_job.max_running
    return parent.periodic.max_running if parent.periodic is not None else 0


def running_children(snapshot: Snapshot, namespace: str, parent_id: str, *, but: str = "") -> Iterator[Job]:
    """Children of a job that have begun and not ended; but: leave this one out."""
    for child in snapshot.children(namespace, parent_id):
        if child.id != but and child.status != "dead" and begun(snapshot, child):
            yield child


def _evaluations(snapshot: Snapshot, job: Job) -> Iterator[Evaluation]:
    return (each for each in snapshot.job_evaluations(job.namespace, job.id) if each.status != "canceled")


def _dependency(snapshot: Snapshot, job: Job, wanted: JobDependency) -> str:
    other = snapshot.job(wanted.namespace or job.namespace, wanted.job)
    if other is None:
        return f'job "{wanted.job}" is not there'
    if not places(other):
        children = snapshot.children(other.namespace, other.id)
        if not children:
            return f'job "{other.id}" has no children yet'
        other = max(children, key=lambda child: child.create_index)
    done = {"complete": _complete, "running": _runs, "dead": _dead}[wanted.status]
    return "" if done(snapshot, other) else f'job "{other.id}" is not {wanted.status} yet'


def _dead(snapshot: Snapshot, job: Job) -> bool:
    return job.status == "dead"


def _complete(snapshot: Snapshot, job: Job) -> bool:
    """Whether a job has ended, and every allocation of its newest version that nothing replaced did so well."""
    if job.status != "dead":
        return False
    last = [
        alloc
        for alloc in snapshot.job_allocations(job.namespace, job.id)
        if alloc.job_version == job.version and not alloc.next_allocation
    ]
    return bool(last) and all(alloc.client_status == "complete" for alloc in last)


def _runs(snapshot: Snapshot, job: Job) -> bool:
    """Whether as many allocations of each group run as are wanted."""
    summary = snapshot.job_summary(job.namespace, job.id)
    counts = summary.summary if summary is not None else {}
    return not job.stop and all(
        group.name in counts and counts[group.name].running >= group.count for group in job.task_groups
    )
