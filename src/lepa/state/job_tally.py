"""Pure: what a job's allocations and evaluations add up to: its summary and its status.

A job's status is never stored; it follows from what is there:

    periodic, parameterized and system jobs    running until they are stopped, then dead
    any other job                              running  while an allocation lives
                                               dead     when it is stopped
                                               pending  while an evaluation is open
                                               dead     when all its allocations and evaluations have ended
                                               pending  when it has none yet

A dispatched child of a parameterized job is an ordinary job. An allocation lives while it is meant to run and its
tasks have not ended; an evaluation is open until it is complete, failed or canceled.

Counts are kept by adding and taking away as rows change, so that a report on one allocation of ten thousand costs
the same as on one of ten.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.job_views import TaskGroupSummary

JobKey = tuple[str, str]
"""Namespace and id."""

BUCKETS: Final = {
    "pending": "starting",
    "running": "running",
    "complete": "complete",
    "failed": "failed",
    "lost": "lost",
    "unknown": "unknown",
}
"""Where an allocation counts in the summary of its group, by client status."""

TERMINAL_CLIENT_STATUSES: Final = frozenset({"complete", "failed", "lost"})
TERMINAL_EVALUATION_STATUSES: Final = frozenset({"complete", "failed", "canceled"})


class JobTally(NamedTuple):
    """Counts of one job. counts: allocations by (group, bucket), no zeros. changed: when anything here last did."""

    counts: Mapping[tuple[str, str], int] = {}
    allocations: int = 0
    living: int = 0
    evaluations: int = 0
    open_evaluations: int = 0
    changed: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to count."""
        return not self.allocations and not self.evaluations


class TallyEdit:
    """One job's tally while a batch is reduced."""

    def __init__(self, tally: JobTally) -> None:
        self._before = tally
        self._counts = dict(tally.counts)
        self._allocations, self._living = tally.allocations, tally.living
        self._evaluations, self._open = tally.evaluations, tally.open_evaluations

    def count_allocation(self, alloc: Allocation, by: int) -> None:
        """Add (by 1) or take away (by -1) one allocation."""
        self._allocations += by
        self._living += by if lives(alloc) else 0
        bucket = (alloc.task_group, BUCKETS.get(alloc.client_status, "starting"))
        self._counts[bucket] = self._counts.get(bucket, 0) + by
        if not self._counts[bucket]:
            del self._counts[bucket]

    def count_evaluation(self, evaluation: Evaluation, by: int) -> None:
        """Add (by 1) or take away (by -1) one evaluation."""
        self._evaluations += by
        self._open += by if is_open(evaluation) else 0

    def finish(self) -> JobTally:
        """The tally after the batch; `changed` is still the one before."""
        return JobTally(
            self._counts, self._allocations, self._living, self._evaluations, self._open, self._before.changed
        )


def lives(alloc: Allocation) -> bool:
    """Whether the allocation is meant to run and has not ended."""
    return alloc.desired_status == "run" and alloc.client_status not in TERMINAL_CLIENT_STATUSES


def is_open(evaluation: Evaluation) -> bool:
    """Whether the evaluation has not ended."""
    return evaluation.status not in TERMINAL_EVALUATION_STATUSES


def job_status(job: Job, tally: JobTally) -> str:
    """pending, running or dead: the rules at the top of this module."""
    template = job.parameterized_job is not None and not job.dispatched
    if template or job.periodic is not None or job.type == "system":
        return "dead" if job.stop else "running"
    if tally.living:
        return "running"
    if job.stop:
        return "dead"
    if tally.open_evaluations or tally.empty:
        return "pending"
    return "dead"


def group_summaries(job: Job, tally: JobTally, queued: Mapping[str, int]) -> dict[str, TaskGroupSummary]:
    """Counts by group: the job's groups in their order, then groups that only have allocations left.

    queued: wanted allocations that could not be placed, by group.
    """
    names = dict.fromkeys([group.name for group in job.task_groups])
    names |= dict.fromkeys(sorted({group for group, _ in tally.counts} - names.keys()))
    counts: dict[str, dict[str, Any]] = {name: {"queued": queued.get(name, 0)} for name in names}
    for (group, bucket), count in tally.counts.items():
        counts[group][bucket] = count
    return {name: TaskGroupSummary(**fields) for name, fields in counts.items()}
