"""Pure: the deployment of a job's present version, for all its groups: which one it is, opened, ended.

Service and system jobs have deployments; how their groups take part is decided where the groups are.
"""

from collections.abc import Callable, Iterable, Mapping

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.plan import DeploymentStatusUpdate
from lepa.scheduler.alloc_sets import ACTIVE_DEPLOYMENTS
from lepa.scheduler.changes import Changes
from lepa.scheduler.view import View

CANCELLED_STOPPED = "Cancelled because job is stopped"
CANCELLED_NEWER = "Cancelled due to newer version of job"
DEPLOYMENT_RUNNING = "Deployment is running"
DEPLOYMENT_DONE = "Deployment completed successfully"


def has_started(job: Job, allocs: Iterable[Allocation]) -> bool:
    """Whether a version had allocations before. Those of a purged job of the same name are not its own."""
    return any(a.job_version == job.version and a.create_index >= job.create_index for a in allocs)


def current_deployment(evaluation: Evaluation, view: View, job: Job | None, changes: Changes) -> Deployment | None:
    """The deployment of the present version, whatever its status; one of another version is cancelled.

    job: None when it is gone or stopped.
    """
    latest = view.latest_deployment(evaluation.namespace, evaluation.job_id)
    if latest is None:
        return None
    if job is None:
        _cancel(latest, CANCELLED_STOPPED, changes)
        return None
    if latest.job_version != job.version or latest.job_create_index != job.create_index:
        _cancel(latest, CANCELLED_NEWER, changes)
        return None
    return latest


def _cancel(deployment: Deployment, reason: str, changes: Changes) -> None:
    if deployment.status in ACTIVE_DEPLOYMENTS:
        update = DeploymentStatusUpdate(deployment_id=deployment.id, status="cancelled", status_description=reason)
        changes.deployment_updates.append(update)


def new_deployment(
    deployment_id: str, job: Job, evaluation: Evaluation, groups: Mapping[str, DeploymentState], now_ns: int
) -> Deployment:
    """A deployment that begins, with the groups that take part."""
    description = DEPLOYMENT_RUNNING
    waiting = [state for state in groups.values() if state.desired_canaries]
    if waiting and all(state.auto_promote for state in waiting):
        description += " pending automatic promotion"
    elif waiting:
        description += " but requires manual promotion"
    return Deployment(
        id=deployment_id,
        namespace=job.namespace,
        job_id=job.id,
        job_version=job.version,
        job_modify_index=job.modify_index,
        job_spec_modify_index=job.job_modify_index,
        job_create_index=job.create_index,
        task_groups=dict(groups),
        status_description=description,
        eval_priority=evaluation.priority,
        create_time=now_ns,
        modify_time=now_ns,
    )


def complete_when_done(
    deployment: Deployment | None, changes: Changes, group_is_done: Callable[[str, DeploymentState], bool]
) -> None:
    """A deployment is done when nobody waits for a promotion, and every group is done."""
    if deployment is None or deployment.status != "running" or deployment.is_multiregion:
        return
    for name, state in deployment.task_groups.items():
        if (state.desired_canaries and not state.promoted) or not group_is_done(name, state):
            return
    update = DeploymentStatusUpdate(
        deployment_id=deployment.id, status="successful", status_description=DEPLOYMENT_DONE
    )
    changes.deployment_updates.append(update)
