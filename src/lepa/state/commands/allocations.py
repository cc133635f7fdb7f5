"""Pure: what nodes report of their allocations, and what operators ask of them."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from lepa.kit.durations import parse_rfc3339, rfc3339
from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.errors import not_found
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.state import keys
from lepa.state.commands.deployments import count_health
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_job, evaluate_jobs
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES

ALLOC_NOT_FOUND: Final = "alloc not found"


def update_allocations(draft: Draft, node_id: str, reports: Iterable[Allocation]) -> tuple[Evaluation, ...]:
    """Store what a node says of its allocations; look at their jobs again where that may need a replacement.

    Reports on unknown allocations or those of another node are dropped. alloc_modify_index stays: it tells the node
    about changes that servers made.
    """
    look: dict[tuple[str, str], str] = {}
    for report in reports:
        present = draft.allocation(report.id)
        if present is None or (node_id and present.node_id != node_id):
            continue
        updated = _merge(draft, present, report)
        if updated == present:
            continue
        draft.put_allocation(replace(updated, modify_time=draft.now_ns))
        count_health(draft, present, updated)
        if updated.client_status in TERMINAL_CLIENT_STATUSES:
            withdraw_services(draft, updated)
        if trigger := _trigger(draft, present, updated):
            look.setdefault((present.namespace, present.job_id), trigger)
    return tuple(evaluation for job, trigger in look.items() for evaluation in evaluate_jobs(draft, [job], trigger))


def stop_allocation(
    draft: Draft, alloc_id: str, *, no_shutdown_delay: bool = False, reschedule: bool = False
) -> Evaluation | None:
    """Ask that an allocation is stopped and replaced."""
    alloc = draft.allocation(alloc_id)
    if alloc is None:
        raise not_found(ALLOC_NOT_FOUND)
    transition = replace(
        alloc.desired_transition,
        migrate=True,
        no_shutdown_delay=True if no_shutdown_delay else alloc.desired_transition.no_shutdown_delay,
        reschedule=True if reschedule else alloc.desired_transition.reschedule,
    )
    draft.put_allocation(replace(alloc, desired_transition=transition, modify_time=draft.now_ns))
    job = draft.job(alloc.namespace, alloc.job_id)
    return evaluate_job(draft, job, "alloc-stop") if job is not None else None


def migrate_allocations(draft: Draft, alloc_ids: Iterable[str], *, place: bool = True) -> tuple[Evaluation, ...]:
    """Ask that allocations leave their draining node. place False: they are stopped and not replaced."""
    jobs = []
    for alloc_id in alloc_ids:
        alloc = draft.allocation(alloc_id)
        if alloc is None or alloc.desired_status != "run":
            continue
        transition = replace(alloc.desired_transition, migrate=True, migrate_disable_placement=None if place else True)
        draft.put_allocation(replace(alloc, desired_transition=transition, modify_time=draft.now_ns))
        jobs.append((alloc.namespace, alloc.job_id))
    return evaluate_jobs(draft, jobs, "node-drain")


def force_reschedule(draft: Draft, namespace: str, job_id: str) -> None:
    """Failed allocations of the job move now, whatever their policy says."""
    for alloc in draft.snapshot.job_allocations(namespace, job_id):
        if alloc.client_status == "failed" and not alloc.next_allocation and alloc.desired_status == "run":
            transition = replace(alloc.desired_transition, force_reschedule=True)
            draft.put_allocation(replace(alloc, desired_transition=transition, modify_time=draft.now_ns))


def allow_reschedule(draft: Draft, alloc_ids: Iterable[str]) -> None:
    """Unhealthy allocations of a deployment may be replaced before the deployment ends."""
    for alloc_id in alloc_ids:
        alloc = draft.allocation(alloc_id)
        if alloc is not None and not alloc.desired_transition.reschedule:
            transition = replace(alloc.desired_transition, reschedule=True)
            draft.put_allocation(replace(alloc, desired_transition=transition, modify_time=draft.now_ns))


def withdraw_services(draft: Draft, alloc: Allocation) -> None:
    """What has ended offers nothing: its node may have been too busy, or too dead, to say so."""
    for service in draft.snapshot.allocation_services(alloc.id):
        draft.erase(keys.service_key(service.namespace, service.service_name, service.id))


def group_of(job: Job | None, alloc: Allocation) -> TaskGroup | None:
    """The allocation's group in this version of its job."""
    groups = job.task_groups if job is not None else ()
    return next((group for group in groups if group.name == alloc.task_group), None)


def _merge(draft: Draft, present: Allocation, report: Allocation) -> Allocation:
    """What the node knows better; the rest stays as the servers have it."""
    return replace(
        present,
        client_status=report.client_status or present.client_status,
        client_description=report.client_description,
        task_states=report.task_states or present.task_states,
        network_status=report.network_status or present.network_status,
        deployment_status=_merge_health(draft, present, report),
    )


def _merge_health(draft: Draft, present: Allocation, report: Allocation) -> AllocDeploymentStatus | None:
    """Health is said once for a deployment; what is said of an earlier deployment comes too late."""
    had, said = present.deployment_status, report.deployment_status
    if said is None or said.healthy is None or (had is not None and had.healthy is not None):
        return had
    if report.deployment_id not in ("", present.deployment_id):
        return had
    timestamp = said.timestamp if parse_rfc3339(said.timestamp) else rfc3339(draft.now_ns)
    return AllocDeploymentStatus(
        healthy=said.healthy,
        timestamp=timestamp,
        canary=had.canary if had is not None else False,
        modify_index=keys.THIS_REVISION,
    )


def _trigger(draft: Draft, present: Allocation, updated: Allocation) -> str:
    """Why the job should be looked at again after this report, or ""."""
    if present.client_status == "unknown" and updated.client_status != "unknown":
        return "reconnect"
    if updated.client_status != "failed" or present.client_status == "failed":
        return ""
    job = draft.job(present.namespace, present.job_id)
    group = group_of(job, present)
    reschedules = group is not None and group.reschedule_policy is not None
    return "alloc-failure" if reschedules and present.desired_status == "run" else ""
