"""Pure: wanted against existing: every change a service or batch job needs, listed before any is made.

What is decided here is *what* should happen to which allocation and which ones should be made; *where* is decided by
`lepa.scheduler.place`. Each group goes its own way (`lepa.scheduler.group_step`); the deployment of the job's version
is opened, completed or cancelled for all of them together. Changes are such that a second look at the state they lead
to changes nothing more.
"""

from collections.abc import Callable, Sequence

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.deployment import DeploymentState
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.usage import is_stopped
from lepa.scheduler.changes import Changes, stop_group
from lepa.scheduler.group_step import GroupStep, JobNow, is_healthy
from lepa.scheduler.rollout import complete_when_done, current_deployment, new_deployment
from lepa.scheduler.updates import find_group
from lepa.scheduler.view import View

DEPLOYMENT_PENDING = "Deployment is pending, waiting for peer region"


def reconcile(evaluation: Evaluation, view: View, now_ns: int, new_id: Callable[[], str]) -> Changes:
    """What a service or batch job needs changed."""
    return _Reconciler(evaluation, view, now_ns, new_id).decide()


class _Reconciler:
    def __init__(self, evaluation: Evaluation, view: View, now_ns: int, new_id: Callable[[], str]) -> None:
        self._evaluation, self._view, self._now_ns, self._new_id = evaluation, view, now_ns, new_id
        self._changes = Changes()
        job = view.job(evaluation.namespace, evaluation.job_id)
        self._job = job if job is not None and not job.stop else None
        self._deployment = current_deployment(evaluation, view, self._job, self._changes)
        self._opened: dict[str, DeploymentState] = {}
        self._deployment_id = self._deployment.id if self._deployment else ""

    def decide(self) -> Changes:
        by_group: dict[str, list[Allocation]] = {}
        for alloc in self._view.job_allocations(self._evaluation.namespace, self._evaluation.job_id):
            by_group.setdefault(alloc.task_group, []).append(alloc)
        job = self._job
        for name in sorted(by_group):
            if job is None or find_group(job, name) is None:
                stop_group(self._changes, self._view, name, by_group[name])
        if job is not None:
            job_now = JobNow(job, self._evaluation, self._view, self._deployment, self._now_ns)
            for group in job.task_groups:
                self._reconcile_group(job_now, group, by_group.get(group.name, []))
            self._open_deployment(job)
            self._complete_deployment(by_group)
        return self._changes

    # Deployments.

    def _open_deployment(self, job: Job) -> None:
        if not self._opened:
            return
        self._changes.deployment = new_deployment(
            self._deployment_id, job, self._evaluation, self._opened, self._now_ns
        )
        if job.multiregion is not None:
            self._wait_for_peers()

    def _wait_for_peers(self) -> None:
        """A job of several regions changes nothing before it is this region's turn; then it is looked at again."""
        opened = self._changes.deployment
        assert opened is not None
        waiting = msgspec.structs.replace(
            opened, is_multiregion=True, status="pending", status_description=DEPLOYMENT_PENDING
        )
        cancelled = self._changes.deployment_updates
        self._changes = Changes(deployment=waiting, deployment_updates=cancelled, desired=self._changes.desired)

    def _complete_deployment(self, by_group: dict[str, list[Allocation]]) -> None:
        """Done is what has nothing left to change and as many healthy allocations as it wants."""
        deployment, changes = self._deployment, self._changes
        if changes.placements or changes.stops or changes.updates or changes.followups or changes.deployment:
            return

        def is_done(name: str, state: DeploymentState) -> bool:
            assert deployment is not None
            healthy = [a for a in by_group.get(name, ()) if not is_stopped(a) and is_healthy(a, deployment.id)]
            return len(healthy) >= state.desired_total

        complete_when_done(deployment, changes, is_done)

    # Groups.

    def _reconcile_group(self, now: JobNow, group: TaskGroup, allocs: Sequence[Allocation]) -> None:
        step = GroupStep(now, group, allocs, self._changes, self._deployment, self._deployment_id, self._new_id)
        step.run()
        if step.opened is not None:
            self._deployment_id = step.deployment_id
            self._opened[group.name] = step.opened
