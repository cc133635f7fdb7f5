"""Pure: what the roll-out of a job's version writes: counts of health, promotion, success, failure, going back."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from lepa.kit.durations import ZERO_TIME, parse_rfc3339, rfc3339
from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.errors import invalid, not_found
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.job_rules import spec_changed
from lepa.state import keys
from lepa.state.commands import jobs
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_job
from lepa.state.snapshot import Snapshot

ACTIVE: Final = frozenset({"initializing", "running", "paused", "pending", "blocked", "unblocking"})
"""Statuses of a deployment that goes on."""

DEPLOYMENT_NOT_FOUND: Final = "deployment not found"
RUNNING: Final = "Deployment is running"
PAUSED: Final = "Deployment is paused"
SUCCESSFUL: Final = "Deployment completed successfully"
UNHEALTHY: Final = "Failed due to unhealthy allocations"
NO_PROGRESS: Final = "Failed due to progress deadline"
FAILED_BY_USER: Final = "Deployment marked as failed"
JOB_STOPPED: Final = "Cancelled because job is stopped"
BLOCKED: Final = "Deployment is complete but waiting for peer region"
FAILED_BY_PEER: Final = "Failed because of an error in peer region"


class DeploymentWritten(NamedTuple):
    """What became of a deployment. reverted_to: the version that is registered again."""

    deployment: Deployment
    evaluation: Evaluation | None
    reverted_to: int | None = None


def count_health(draft: Draft, before: Allocation, after: Allocation) -> None:
    """Count an allocation into its deployment when its health has become known."""
    now = _healthy(after)
    if now is None or now == _healthy(before) or not after.deployment_id:
        return
    deployment = draft.deployment(after.deployment_id)
    state = deployment.task_groups.get(after.task_group) if deployment is not None else None
    if deployment is None or state is None or deployment.status not in ACTIVE:
        return
    if now:
        counted = replace(state, healthy_allocs=state.healthy_allocs + 1, require_progress_by=_later(state, after))
    else:
        counted = replace(state, unhealthy_allocs=state.unhealthy_allocs + 1)
    if now and _healthy(before) is False:
        counted = replace(counted, unhealthy_allocs=max(0, counted.unhealthy_allocs - 1))
    elif not now and _healthy(before):
        counted = replace(counted, healthy_allocs=max(0, counted.healthy_allocs - 1))
    groups = deployment.task_groups | {after.task_group: counted}
    draft.put_deployment(replace(deployment, task_groups=groups, modify_time=draft.now_ns))


def count_placements(draft: Draft, placed: Iterable[Allocation]) -> None:
    """Count new allocations into their deployments; the first ones start the progress deadline."""
    for alloc in placed:
        deployment = draft.deployment(alloc.deployment_id) if alloc.deployment_id else None
        state = deployment.task_groups.get(alloc.task_group) if deployment is not None else None
        if deployment is None or state is None:
            continue
        canary = alloc.deployment_status is not None and alloc.deployment_status.canary
        known = canary and alloc.id not in state.placed_canaries
        counted = replace(
            state,
            placed_allocs=state.placed_allocs + 1,
            placed_canaries=(*state.placed_canaries, alloc.id) if known else state.placed_canaries,
            require_progress_by=_first_deadline(draft, state),
        )
        groups = deployment.task_groups | {alloc.task_group: counted}
        draft.put_deployment(replace(deployment, task_groups=groups, modify_time=draft.now_ns))


def succeed_deployment(draft: Draft, deployment_id: str) -> None:
    """Everything wanted is healthy: the version counts as stable from now on."""
    deployment = _active(draft, deployment_id)
    set_deployment_status(draft, deployment, "successful", SUCCESSFUL)


def set_deployment_status(draft: Draft, deployment: Deployment, status: str, description: str) -> None:
    """Store a status; success marks the job's version as stable."""
    draft.put_deployment(replace(deployment, status=status, status_description=description, modify_time=draft.now_ns))
    version = draft.snapshot.job_version(deployment.namespace, deployment.job_id, deployment.job_version)
    if status == "successful" and version is not None:
        jobs.mark_stable(draft, deployment.namespace, deployment.job_id, deployment.job_version, stable=True)


def fail_deployment(
    draft: Draft, deployment_id: str, description: str, *, revert: bool | None = None
) -> DeploymentWritten:
    """End a deployment as failed, and go back to the newest stable version where that is wanted.

    revert None: where any group has auto_revert.
    """
    deployment = existing_deployment(draft, deployment_id)
    if deployment.status not in ACTIVE:
        raise invalid("can't fail terminal deployment")
    if revert is None:
        revert = any(state.auto_revert for state in deployment.task_groups.values())
    job = draft.job(deployment.namespace, deployment.job_id)
    target = None
    if revert and job is not None:
        target = stable_version(draft.snapshot, deployment)
        description += _revert_note(job, target)
        target = None if target is None or not _differs(job, target) else target
    set_deployment_status(draft, deployment, "failed", description)
    if job is None:
        return DeploymentWritten(deployment, None)
    if target is not None:
        earlier = replace(target, stop=False, version_tag=None)
        reverted = jobs.register_job(draft, earlier, trigger="deployment-watcher")
        return DeploymentWritten(deployment, reverted.evaluation, target.version)
    return DeploymentWritten(deployment, _evaluate(draft, deployment, job))


def pause_deployment(draft: Draft, deployment_id: str, *, pause: bool) -> DeploymentWritten:
    """Hold a deployment, or go on with it; its groups then get their whole progress deadline again."""
    deployment = existing_deployment(draft, deployment_id)
    if deployment.status not in ACTIVE:
        raise invalid(f"can't {'pause' if pause else 'resume'} terminal deployment")
    if pause:
        draft.put_deployment(replace(deployment, status="paused", status_description=PAUSED, modify_time=draft.now_ns))
        return DeploymentWritten(deployment, None)
    groups = {name: _restarted(draft, state) for name, state in deployment.task_groups.items()}
    resumed = replace(
        deployment, status="running", status_description=RUNNING, task_groups=groups, modify_time=draft.now_ns
    )
    draft.put_deployment(resumed)
    job = draft.job(deployment.namespace, deployment.job_id)
    return DeploymentWritten(resumed, _evaluate(draft, resumed, job) if job is not None else None)


def promote_deployment(draft: Draft, deployment_id: str, groups: Collection[str] | None = None) -> DeploymentWritten:
    """Let the canaries of these groups (None: of all) take over. Refused while any of them is not healthy."""
    deployment = existing_deployment(draft, deployment_id)
    if deployment.status not in ACTIVE:
        raise invalid("can't promote terminal deployment")
    if groups is not None and not groups:
        raise invalid("must specify groups to promote or all")
    if groups is not None and (unknown := sorted(set(groups) - deployment.task_groups.keys())):
        raise invalid(f'deployment has no group "{unknown[0]}"')
    wanted = {
        name: state
        for name, state in deployment.task_groups.items()
        if state.desired_canaries and not state.promoted and (groups is None or name in groups)
    }
    if not wanted:
        raise invalid("no canaries to promote")
    if short := [
        _shortage(name, state, count)
        for name, state in wanted.items()
        if (count := healthy_canaries(draft.snapshot, deployment, name)) < state.desired_canaries
    ]:
        raise invalid("; ".join(short))
    promoted = {name: replace(state, promoted=True) for name, state in wanted.items()}
    after = deployment.task_groups | promoted
    written = replace(
        deployment,
        task_groups=after,
        status="running" if deployment.status != "paused" else deployment.status,
        status_description=RUNNING if deployment.status != "paused" else deployment.status_description,
        modify_time=draft.now_ns,
    )
    draft.put_deployment(written)
    for name in promoted:
        _end_canaries(draft, deployment, name)
    job = draft.job(deployment.namespace, deployment.job_id)
    return DeploymentWritten(written, _evaluate(draft, written, job) if job is not None else None)


def block_deployment(draft: Draft, deployment_id: str) -> None:
    """Everything wanted is healthy here; other regions are not done yet."""
    set_deployment_status(draft, _active(draft, deployment_id), "blocked", BLOCKED)


def unblock_deployment(draft: Draft, deployment_id: str) -> DeploymentWritten:
    """Success, whatever becomes of other regions."""
    deployment = _active(draft, deployment_id)
    if deployment.status != "blocked":
        raise invalid(f'can\'t unblock deployment "{deployment.id}": it is {deployment.status}, not blocked')
    succeed_deployment(draft, deployment_id)
    return DeploymentWritten(deployment, None)


def step_deployment(draft: Draft, deployment_id: str, act: str) -> DeploymentWritten:
    """What the other regions of a job mean for its deployment here: start, fail or succeed."""
    deployment = _active(draft, deployment_id)
    if act == "fail":
        return fail_deployment(draft, deployment_id, FAILED_BY_PEER)
    if act == "start" and deployment.status == "pending":
        return pause_deployment(draft, deployment_id, pause=False)
    if act == "succeed" and deployment.status == "blocked":
        return unblock_deployment(draft, deployment_id)
    raise invalid(f'deployment "{deployment.id}" is {deployment.status}: "{act}" is not its next step')


def set_health(
    draft: Draft, deployment_id: str, *, healthy: Iterable[str], unhealthy: Iterable[str]
) -> DeploymentWritten:
    """An operator says which allocations work: for health_check = "manual"."""
    deployment = existing_deployment(draft, deployment_id)
    if deployment.status not in ACTIVE:
        raise invalid("can't set health of allocations for a terminal deployment")
    for alloc_ids, value in ((healthy, True), (unhealthy, False)):
        for alloc_id in alloc_ids:
            alloc = draft.allocation(alloc_id)
            if alloc is None or alloc.deployment_id != deployment_id:
                raise invalid(f'unknown allocation "{alloc_id}" in deployment')
            canary = alloc.deployment_status.canary if alloc.deployment_status else False
            status = AllocDeploymentStatus(
                healthy=value, timestamp=rfc3339(draft.now_ns), canary=canary, modify_index=keys.THIS_REVISION
            )
            updated = replace(alloc, deployment_status=status, modify_time=draft.now_ns)
            draft.put_allocation(updated)
            count_health(draft, alloc, updated)
    job = draft.job(deployment.namespace, deployment.job_id)
    return DeploymentWritten(deployment, _evaluate(draft, deployment, job) if job is not None else None)


def cancel_deployment(draft: Draft, deployment_id: str, description: str) -> None:
    """What the deployment was about is gone."""
    deployment = draft.deployment(deployment_id)
    if deployment is not None and deployment.status in ACTIVE:
        set_deployment_status(draft, deployment, "cancelled", description)


def evaluate_deployment(draft: Draft, deployment_id: str) -> Evaluation | None:
    """Look at the job again because its deployment got on."""
    deployment = _active(draft, deployment_id)
    job = draft.job(deployment.namespace, deployment.job_id)
    return _evaluate(draft, deployment, job) if job is not None else None


def stable_version(snapshot: Snapshot, deployment: Deployment) -> Job | None:
    """The newest stable version before the one that is rolled out."""
    versions = snapshot.job_versions(deployment.namespace, deployment.job_id)
    return next((job for job in versions if job.stable and job.version < deployment.job_version), None)


def healthy_canaries(snapshot: Snapshot, deployment: Deployment, group: str) -> int:
    """How many of the group's canaries are healthy and meant to run."""
    canaries = (snapshot.allocation(alloc_id) for alloc_id in deployment.task_groups[group].placed_canaries)
    return sum(alloc is not None and alloc.desired_status == "run" and _healthy(alloc) is True for alloc in canaries)


def existing_deployment(draft: Draft, deployment_id: str) -> Deployment:
    """The deployment, or LepaError(not_found)."""
    deployment = draft.deployment(deployment_id)
    if deployment is None:
        raise not_found(DEPLOYMENT_NOT_FOUND)
    return deployment


def _active(draft: Draft, deployment_id: str) -> Deployment:
    deployment = existing_deployment(draft, deployment_id)
    if deployment.status not in ACTIVE:
        raise invalid(f"deployment is {deployment.status} already")
    return deployment


def _evaluate(draft: Draft, deployment: Deployment, job: Job) -> Evaluation:
    priority = deployment.eval_priority or job.priority
    return evaluate_job(draft, job, "deployment-watcher", deployment_id=deployment.id, priority=priority)


def _healthy(alloc: Allocation) -> bool | None:
    return alloc.deployment_status.healthy if alloc.deployment_status is not None else None


def _later(state: DeploymentState, alloc: Allocation) -> str:
    """Each healthy allocation is progress: the group has its whole deadline again."""
    if not state.progress_deadline or alloc.deployment_status is None:
        return state.require_progress_by
    by_ns = parse_rfc3339(alloc.deployment_status.timestamp) + state.progress_deadline
    return rfc3339(max(by_ns, parse_rfc3339(state.require_progress_by)))


def _first_deadline(draft: Draft, state: DeploymentState) -> str:
    if state.require_progress_by != ZERO_TIME or not state.progress_deadline:
        return state.require_progress_by
    return rfc3339(draft.now_ns + state.progress_deadline)


def _restarted(draft: Draft, state: DeploymentState) -> DeploymentState:
    if not state.progress_deadline:
        return state
    return replace(state, require_progress_by=rfc3339(draft.now_ns + state.progress_deadline))


def _differs(job: Job, target: Job) -> bool:
    return spec_changed(replace(job, stop=False), replace(target, stop=False))


def _revert_note(job: Job, target: Job | None) -> str:
    if target is None:
        return " - no stable job version to auto revert to"
    if not _differs(job, target):
        return f" - not rolling back to stable job version {target.version} as current job has same specification"
    return f" - rolling back to job version {target.version}"


def _shortage(name: str, state: DeploymentState, healthy: int) -> str:
    return f'Task group "{name}" has {healthy}/{state.desired_canaries} healthy allocations'


def _end_canaries(draft: Draft, deployment: Deployment, group: str) -> None:
    """After promotion its canaries are allocations like all others."""
    for alloc_id in deployment.task_groups[group].placed_canaries:
        alloc = draft.allocation(alloc_id)
        if alloc is not None and alloc.deployment_status is not None and alloc.deployment_status.canary:
            status = replace(alloc.deployment_status, canary=False)
            draft.put_allocation(replace(alloc, deployment_status=status, modify_time=draft.now_ns))
