"""Pure: wanted against existing: every change a service or batch job needs, listed before any is made.

What is decided here is *what* should happen to which allocation and which ones should be made; *where* is decided by
`lepa.scheduler.place`. Each group goes its own way (`lepa.scheduler.group_step`); the deployment of the job's version
is opened, completed or cancelled for all of them together. Changes are such that a second look at the state they lead
to changes nothing more.
"""

from collections.abc import Callable, Sequence

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.plan import DeploymentStatusUpdate
from lepa.model.usage import is_stopped
from lepa.scheduler.alloc_sets import ACTIVE_DEPLOYMENTS
from lepa.scheduler.changes import Changes, stop_group
from lepa.scheduler.group_step import GroupStep, JobNow, is_healthy
from lepa.scheduler.updates import find_group
from lepa.scheduler.view import View

CANCELLED_STOPPED = "Cancelled because job is stopped"
CANCELLED_NEWER = "Cancelled due to newer version of job"
DEPLOYMENT_RUNNING = "Deployment is running"
DEPLOYMENT_DONE = "Deployment completed successfully"
DEPLOYMENT_PENDING = "Deployment is pending, waiting for peer region"


def reconcile(evaluation: Evaluation, view: View, now_ns: int, new_id: Callable[[], str]) -> Changes:
    """What a service or batch job needs changed."""
    return _Reconciler(evaluation, view, now_ns, new_id).decide()


class _Reconciler:
    def __init__(self, evaluation: Evaluation, view: View, now_ns: int, new_id: Callable[[], str]) -> None:
        self._evaluation, self._view, self._now_ns, self._new_id = evaluation, view, now_ns, new_id
        self._changes = Changes()
        self._job = view.job(evaluation.namespace, evaluation.job_id)
        self._deployment = self._current_deployment()
        self._opened: dict[str, DeploymentState] = {}
        self._deployment_id = self._deployment.id if self._deployment else ""

    def decide(self) -> Changes:
        by_group: dict[str, list[Allocation]] = {}
        for alloc in self._view.job_allocations(self._evaluation.namespace, self._evaluation.job_id):
            by_group.setdefault(alloc.task_group, []).append(alloc)
        job = self._job if self._job is not None and not self._job.stop else None
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

    def _current_deployment(self) -> Deployment | None:
        """The deployment of the present version, whatever its status; one of another version is cancelled."""
        job, evaluation = self._job, self._evaluation
        latest = self._view.latest_deployment(evaluation.namespace, evaluation.job_id)
        if latest is None:
            return None
        if job is None or job.stop:
            self._cancel(latest, CANCELLED_STOPPED)
            return None
        if latest.job_version != job.version or latest.job_create_index != job.create_index:
            self._cancel(latest, CANCELLED_NEWER)
            return None
        return latest

    def _cancel(self, deployment: Deployment, reason: str) -> None:
        if deployment.status in ACTIVE_DEPLOYMENTS:
            update = DeploymentStatusUpdate(deployment_id=deployment.id, status="cancelled", status_description=reason)
            self._changes.deployment_updates.append(update)

    def _open_deployment(self, job: Job) -> None:
        if not self._opened:
            return
        states = self._opened.values()
        description = DEPLOYMENT_RUNNING
        waiting = [state for state in states if state.desired_canaries]
        if waiting and all(state.auto_promote for state in waiting):
            description += " pending automatic promotion"
        elif waiting:
            description += " but requires manual promotion"
        self._changes.deployment = Deployment(
            id=self._deployment_id,
            namespace=job.namespace,
            job_id=job.id,
            job_version=job.version,
            job_modify_index=job.modify_index,
            job_spec_modify_index=job.job_modify_index,
            job_create_index=job.create_index,
            task_groups=self._opened,
            status_description=description,
            eval_priority=self._evaluation.priority,
            create_time=self._now_ns,
            modify_time=self._now_ns,
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
        """A deployment is done when nothing is left to change and every group has its healthy allocations."""
        deployment, changes = self._deployment, self._changes
        if deployment is None or deployment.status != "running" or deployment.is_multiregion:
            return
        if changes.placements or changes.stops or changes.updates or changes.followups or changes.deployment:
            return
        for name, state in deployment.task_groups.items():
            healthy = [a for a in by_group.get(name, ()) if not is_stopped(a) and is_healthy(a, deployment.id)]
            if len(healthy) < state.desired_total or (state.desired_canaries and not state.promoted):
                return
        update = DeploymentStatusUpdate(
            deployment_id=deployment.id, status="successful", status_description=DEPLOYMENT_DONE
        )
        changes.deployment_updates.append(update)

    # Groups.

    def _reconcile_group(self, now: JobNow, group: TaskGroup, allocs: Sequence[Allocation]) -> None:
        step = GroupStep(now, group, allocs, self._changes, self._deployment, self._deployment_id, self._new_id)
        step.run()
        if step.opened is not None:
            self._deployment_id = step.deployment_id
            self._opened[group.name] = step.opened
