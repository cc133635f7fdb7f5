"""Pure: what roll-outs need: another step, promotion, success, failure, going back.

A scheduler places a step and the nodes say what is healthy; in between somebody has to look. For each deployment that
goes on, in this order:

    its job is gone                                  cancel it
    an allocation failed or is unhealthy and
      the group has no progress deadline, or
      no tries to move it are left                   fail it
    a group's progress deadline has passed           fail it
    all groups are healthy and promoted              it has succeeded; of a job of several regions, it waits for them
    all canaries are healthy and may promote         promote them
    unhealthy allocations wait for permission        let them be replaced
    somebody became healthy since the last look      look again: the next step may be due

Which nodes a system job is wanted on changes while it is rolled out, so its scheduler says when it has succeeded.

A deployment that is held (paused, or by other regions) is only watched for failures of the first kind. One whose job
has a newer version is the scheduler's to cancel.
"""

from collections.abc import Iterator
from typing import NamedTuple

from lepa.kit.durations import ZERO_TIME, parse_rfc3339
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.job import Job
from lepa.scheduler.reschedule import next_move
from lepa.state.commands import allocations as allocation_commands
from lepa.state.commands import deployments as commands
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

HELD = frozenset({"paused", "pending", "blocked", "unblocking"})
"""Statuses in which nothing is expected of allocations."""


class Order(NamedTuple):
    """What one deployment needs, and why."""

    act: str
    deployment_id: str
    reason: str
    alloc_ids: tuple[str, ...] = ()
    revert: bool | None = None

    def apply(self, draft: Draft) -> None:
        """Carry it out, unless the deployment has ended meanwhile."""
        deployment = draft.deployment(self.deployment_id)
        if deployment is None or deployment.status not in commands.ACTIVE:
            return
        if self.act == "cancel":
            commands.cancel_deployment(draft, self.deployment_id, self.reason)
        elif self.act == "fail":
            commands.fail_deployment(draft, self.deployment_id, self.reason, revert=self.revert)
        elif self.act == "succeed":
            commands.succeed_deployment(draft, self.deployment_id)
        elif self.act == "block":
            commands.block_deployment(draft, self.deployment_id)
        elif self.act == "promote":
            commands.promote_deployment(draft, self.deployment_id)
        elif self.act == "replace":
            allocation_commands.allow_reschedule(draft, self.alloc_ids)
            commands.evaluate_deployment(draft, self.deployment_id)
        else:
            commands.evaluate_deployment(draft, self.deployment_id)


class Decision(NamedTuple):
    """Orders, and when to look again (Unix nanoseconds, None: when something changes)."""

    orders: tuple[Order, ...]
    wake_at_ns: int | None


def decide(snapshot: Snapshot, now_ns: int) -> Decision:
    """What all deployments that go on need."""
    going_on = [deployment for deployment in snapshot.deployments() if deployment.status in commands.ACTIVE]
    orders = tuple(order for deployment in going_on if (order := _decide(snapshot, deployment, now_ns)))
    deadlines = [at for deployment in going_on for at in _deadlines(snapshot, deployment) if at > now_ns]
    return Decision(orders, min(deadlines, default=None))


def _decide(snapshot: Snapshot, deployment: Deployment, now_ns: int) -> Order | None:
    job = snapshot.job(deployment.namespace, deployment.job_id)
    if job is None:
        return Order("cancel", deployment.id, commands.JOB_STOPPED)
    if job.stop or job.version != deployment.job_version:
        return None
    allocs = snapshot.deployment_allocations(deployment.id)
    if (hopeless := _hopeless(deployment, job, allocs)) is not None:
        return Order("fail", deployment.id, commands.UNHEALTHY, revert=hopeless.auto_revert)
    if deployment.status in HELD:
        return None
    if (late := _late(snapshot, deployment, now_ns)) is not None:
        return Order("fail", deployment.id, commands.NO_PROGRESS, revert=late.auto_revert)
    if job.type != "system" and _succeeded(snapshot, deployment):
        if deployment.is_multiregion:
            return Order("block", deployment.id, commands.BLOCKED)
        return Order("succeed", deployment.id, commands.SUCCESSFUL)
    if _may_promote(snapshot, deployment):
        return Order("promote", deployment.id, "all canaries are healthy")
    if waiting := tuple(alloc.id for alloc in allocs if _waits_for_permission(alloc)):
        return Order("replace", deployment.id, "allocations are unhealthy", alloc_ids=waiting)
    if _progressed(snapshot, deployment, allocs):
        return Order("evaluate", deployment.id, "an allocation became healthy")
    return None


def _hopeless(deployment: Deployment, job: Job, allocs: tuple[Allocation, ...]) -> DeploymentState | None:
    """A group that cannot become healthy any more."""
    policies = {group.name: group.reschedule_policy for group in job.task_groups}
    for alloc in allocs:
        state = deployment.task_groups.get(alloc.task_group)
        if state is None or alloc.next_allocation or alloc.desired_status != "run":
            continue
        if _unhealthy(alloc) and not state.progress_deadline:
            return state
        if alloc.client_status == "failed" and next_move(alloc, policies.get(alloc.task_group)) is None:
            return state
    return None


def _late(snapshot: Snapshot, deployment: Deployment, now_ns: int) -> DeploymentState | None:
    """A group that made no progress for as long as it may."""
    states = (
        state
        for name, state in deployment.task_groups.items()
        if _needs_progress(snapshot, deployment, name, state) and _by(state) <= now_ns
    )
    return next(states, None)


def _deadlines(snapshot: Snapshot, deployment: Deployment) -> Iterator[int]:
    if deployment.status in HELD:
        return
    for name, state in deployment.task_groups.items():
        if _needs_progress(snapshot, deployment, name, state):
            yield _by(state)


def _needs_progress(snapshot: Snapshot, deployment: Deployment, name: str, state: DeploymentState) -> bool:
    """A group whose canaries wait for a person to promote them, or that is done, has all the time it wants."""
    if not state.progress_deadline or state.require_progress_by == ZERO_TIME:
        return False
    if state.desired_canaries and not state.promoted:
        return commands.healthy_canaries(snapshot, deployment, name) < state.desired_canaries
    return not _rolled_out(snapshot, deployment, name, state)


def _succeeded(snapshot: Snapshot, deployment: Deployment) -> bool:
    return all(
        (state.promoted or not state.desired_canaries) and _rolled_out(snapshot, deployment, name, state)
        for name, state in deployment.task_groups.items()
    )


def _rolled_out(snapshot: Snapshot, deployment: Deployment, name: str, state: DeploymentState) -> bool:
    """As many were healthy as are wanted, and nothing is left of earlier versions.

    The number alone does not tell: one that was healthy, was drained from its node and became healthy again elsewhere
    has counted twice.
    """
    return state.healthy_allocs >= state.desired_total and not any(
        alloc.task_group == name and alloc.job_version < deployment.job_version and _stays(alloc)
        for alloc in snapshot.job_allocations(deployment.namespace, deployment.job_id)
    )


def _stays(alloc: Allocation) -> bool:
    return alloc.desired_status == "run" and alloc.client_status in ("pending", "running")


def _may_promote(snapshot: Snapshot, deployment: Deployment) -> bool:
    """Every group with canaries has to agree, and to be healthy; groups without have no say."""
    waiting = [
        (name, state) for name, state in deployment.task_groups.items() if state.desired_canaries and not state.promoted
    ]
    return bool(waiting) and all(
        state.auto_promote and commands.healthy_canaries(snapshot, deployment, name) >= state.desired_canaries
        for name, state in waiting
    )


def _waits_for_permission(alloc: Allocation) -> bool:
    return (
        alloc.desired_status == "run"
        and not alloc.next_allocation
        and (_unhealthy(alloc) or alloc.client_status == "failed")
        and not alloc.desired_transition.reschedule
    )


def _progressed(snapshot: Snapshot, deployment: Deployment, allocs: tuple[Allocation, ...]) -> bool:
    """Whether an allocation became healthy that no evaluation of the job has seen."""
    healthy = [
        alloc.deployment_status.modify_index
        for alloc in allocs
        if alloc.deployment_status is not None and alloc.deployment_status.healthy
    ]
    evaluations = snapshot.job_evaluations(deployment.namespace, deployment.job_id)
    seen = max((evaluation.create_index for evaluation in evaluations), default=0)
    return max(healthy, default=0) > seen


def _unhealthy(alloc: Allocation) -> bool:
    return alloc.deployment_status is not None and alloc.deployment_status.healthy is False


def _by(state: DeploymentState) -> int:
    return parse_rfc3339(state.require_progress_by)
