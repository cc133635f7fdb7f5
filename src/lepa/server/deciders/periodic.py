"""Pure: which periodic jobs are due.

A launch is known by its child, whose id holds the time at which it was due; so a server that begins to lead knows from
the state what was launched last. A launch that was missed while nobody led is made up for once. When all children have
been collected, only what was due since this server began to lead, or since the job was registered, is launched.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from lepa.kit.cron import parse_cron
from lepa.kit.durations import SECOND
from lepa.model.job import Job
from lepa.model.policies import PeriodicConfig
from lepa.model.policy_checks import periodic_specs, time_zone
from lepa.state.commands.children import launch_periodic, launched_at
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot


class Launch(NamedTuple):
    """The child of a periodic job that is due at launch_s (Unix seconds)."""

    namespace: str
    job_id: str
    launch_s: int
    reason: str = "the job is due"

    def apply(self, draft: Draft) -> None:
        """Launch it, while the job is still periodic and runs."""
        job = draft.job(self.namespace, self.job_id)
        if job is not None and launches(job):
            launch_periodic(draft, self.namespace, self.job_id, self.launch_s)


class Decision(NamedTuple):
    """Launches, and when the next one is due (Unix nanoseconds)."""

    orders: tuple[Launch, ...]
    wake_at_ns: int | None


class Periodic:
    """Periodic jobs as a leader sees them. since_s: when it began to lead, Unix seconds."""

    def __init__(self, since_s: int) -> None:
        self._since_s = since_s
        self._passed: dict[tuple[str, str], int] = {}

    def decide(self, snapshot: Snapshot, now_ns: int) -> Decision:
        """What is due, at most one launch a job."""
        now_s = now_ns // SECOND
        orders, due = [], []
        for job in snapshot.periodic_jobs():
            if not launches(job):
                continue
            key = (job.namespace, job.id)
            next_s = next_launch(job.periodic, self._last(snapshot, job))
            if next_s is not None and next_s <= now_s:
                self._passed[key] = now_s
                if not _overlaps(snapshot, job):
                    orders.append(Launch(job.namespace, job.id, next_s))
                next_s = next_launch(job.periodic, now_s)
            if next_s is not None:
                due.append(next_s * SECOND)
        return Decision(tuple(orders), min(due, default=None))

    def _last(self, snapshot: Snapshot, job: Job) -> int:
        """The time after which the next launch is looked for."""
        registered_s = job.submit_time // SECOND
        children = [launched_at(child) for child in snapshot.children(job.namespace, job.id)]
        if children:
            last_s = max(*children, registered_s)
        else:
            last_s = max(registered_s, self._since_s)
        return max(last_s, self._passed.get((job.namespace, job.id), 0))


def launches(job: Job) -> bool:
    """Whether the job is launched by time: a parameterized one has to be dispatched first."""
    return (
        job.periodic is not None
        and job.periodic.enabled
        and not job.stop
        and (job.parameterized_job is None or job.dispatched)
    )


def next_launch(periodic: PeriodicConfig | None, after_s: int) -> int | None:
    """Unix seconds of the first launch after `after_s`, or None when there is none or an expression cannot be read."""
    if periodic is None:
        return None
    try:
        after = datetime.fromtimestamp(after_s, UTC).astimezone(time_zone(periodic.time_zone))
        times = [parse_cron(spec).next_after(after) for spec in periodic_specs(periodic)]
    except (ValueError, OverflowError, OSError):
        return None
    return _earliest(times)


def _earliest(times: Iterable[datetime | None]) -> int | None:
    return min((int(time.timestamp()) for time in times if time is not None), default=None)


def _overlaps(snapshot: Snapshot, job: Job) -> bool:
    """Whether a launch would run beside an earlier one although the job does not want that."""
    if job.periodic is None or not job.periodic.prohibit_overlap:
        return False
    return any(child.status != "dead" for child in snapshot.children(job.namespace, job.id))
