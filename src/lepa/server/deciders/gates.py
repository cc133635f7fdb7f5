"""Pure: which waiting jobs may begin: those that nothing holds any more, the oldest children first."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from lepa.model.job import Job
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_job
from lepa.state.gates import begun, may_wait, waits_for
from lepa.state.snapshot import Snapshot


class Begin(NamedTuple):
    """Ask for the first look at a job."""

    namespace: str
    job_id: str
    reason: str = "nothing holds the job any more"

    def apply(self, draft: Draft) -> None:
        """Ask, if that is still so: a sister may have begun meanwhile."""
        job = draft.job(self.namespace, self.job_id)
        snapshot = draft.snapshot
        if job is not None and may_wait(snapshot, job) and not begun(snapshot, job) and not waits_for(snapshot, job):
            evaluate_job(draft, job, "job-register")


class Decision(NamedTuple):
    """Jobs that may begin. Nothing here depends on the time."""

    orders: tuple[Begin, ...]
    wake_at_ns: int | None = None


def decide(snapshot: Snapshot, now_ns: int) -> Decision:
    """Every job that waited for nothing but what is there now. Of children as many as may run are let begin."""
    waiting = [job for job in _candidates(snapshot) if may_wait(snapshot, job) and not begun(snapshot, job)]
    turns: Counter[tuple[str, str]] = Counter()
    orders = []
    for job in sorted(waiting, key=lambda job: job.create_index):
        parent = (job.namespace, job.parent_id)
        if not waits_for(snapshot, job, besides=turns[parent]):
            turns[parent] += 1
            orders.append(Begin(job.namespace, job.id))
    return Decision(tuple(orders))


def _candidates(snapshot: Snapshot) -> Iterable[Job]:
    """Jobs of which anything could hold one, each once: few, where there may be ten thousand others."""
    dependent = snapshot.dependent_jobs()
    seen = {(job.namespace, job.id) for job in dependent}
    children = (snapshot.children(job.namespace, job.id) for job in snapshot.limiting_jobs())
    return [*dependent, *(job for job in chain.from_iterable(children) if (job.namespace, job.id) not in seen)]
