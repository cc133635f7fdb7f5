"""Pure: what an accepted plan writes.

A plan is made from a snapshot that may be a little old by the time it is applied. What nodes have reported meanwhile is
never undone: an in-place update and a stop keep the client's side of the allocation as it is now.

A plan that is larger than what one store transaction takes is written in parts, each valid alone
(`scheduler.plan_check.plan_parts`). If the leader dies in between, the evaluation is still open and the next leader's
workers plan the rest.
"""

from typing import Final

from msgspec.structs import replace

from lepa.kit.durations import rfc3339
from lepa.model.allocation import Allocation, AllocState
from lepa.model.deployment import Deployment
from lepa.model.plan import AllocationStop, Plan
from lepa.state import keys
from lepa.state.commands.allocations import withdraw_services
from lepa.state.commands.deployments import ACTIVE, count_placements, set_deployment_status
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_jobs
from lepa.state.commands.volumes import group_of_alloc, keep_sticky_volumes
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES
from lepa.store.protocol import Limits

CLIENT_STATUS_FIELD: Final = 0
"""AllocState.field of a change of the client status."""

OPERATIONS_PER_ITEM: Final = 5
"""At most: the allocation, the one before it, an evaluation of a job that it evicts, an instance of a service (or a
volume that it keeps), and a compare of its node."""

BYTES_PER_ITEM: Final = 8_000
"""More than those operations take."""


ITEMS_MAX: Final = 100
"""More would hold the event loop for too long while they are encoded and reduced."""


def items_max(limits: Limits) -> int:
    """How many allocations of a plan go into one transaction, with room for a deployment."""
    fit = min(limits.operations_max // OPERATIONS_PER_ITEM, limits.bytes_max // BYTES_PER_ITEM) - 2
    return max(1, min(ITEMS_MAX, fit))


def apply_plan(draft: Draft, plan: Plan) -> None:
    """Store a plan, of which everything has been accepted."""
    if plan.job is not None and plan.updates:
        job = draft.snapshot.job(plan.job.namespace, plan.job.id)
        draft.require(keys.job_key(plan.job.namespace, plan.job.id), job)
    if plan.deployment is not None:
        _store_deployment(draft, plan.deployment)
    for update in plan.deployment_updates:
        deployment = draft.deployment(update.deployment_id)
        if deployment is not None and deployment.status in ACTIVE:
            set_deployment_status(draft, deployment, update.status, update.status_description)
    evicted = [alloc for stop in plan.stops if (alloc := _stop(draft, stop)) is not None and stop.preempted_by]
    evaluate_jobs(draft, [(alloc.namespace, alloc.job_id) for alloc in evicted], "preemption")
    count_placements(draft, [alloc for alloc in plan.updates if _store(draft, plan, alloc)])


def _store_deployment(draft: Draft, wanted: Deployment) -> None:
    """A new deployment; of one that is there already only what is wanted changes, not what became of it meanwhile."""
    present = draft.deployment(wanted.id)
    if present is None:
        draft.put_deployment(replace(wanted, create_time=draft.now_ns, modify_time=draft.now_ns))
        return
    groups = {
        name: replace(
            present.task_groups.get(name, state),
            desired_total=state.desired_total,
            desired_canaries=state.desired_canaries,
        )
        for name, state in wanted.task_groups.items()
    }
    draft.put_deployment(replace(present, task_groups=groups, modify_time=draft.now_ns))


def _stop(draft: Draft, stop: AllocationStop) -> Allocation | None:
    present = draft.allocation(stop.alloc_id)
    if present is None:
        return None
    status = present.client_status
    if status not in TERMINAL_CLIENT_STATUSES:  # what its node had still said before it was lost stays true
        status = stop.client_status or status
    states = present.alloc_states
    if status != present.client_status:
        states = (*states, AllocState(field=CLIENT_STATUS_FIELD, value=status, time=rfc3339(draft.now_ns)))
    updated = replace(
        present,
        desired_status=stop.desired_status or present.desired_status,
        desired_description=stop.description or present.desired_description,
        client_status=status,
        alloc_states=states,
        followup_eval_id=stop.followup_eval_id or present.followup_eval_id,
        preempted_by_allocation=stop.preempted_by or present.preempted_by_allocation,
        alloc_modify_index=keys.THIS_REVISION,
        modify_time=draft.now_ns,
    )
    draft.put_allocation(updated)
    if updated.client_status in TERMINAL_CLIENT_STATUSES:
        withdraw_services(draft, updated)
    return updated


def _store(draft: Draft, plan: Plan, alloc: Allocation) -> bool:
    """Store a placement or an in-place update; answers whether its deployment has to count it."""
    present = draft.allocation(alloc.id)
    version = alloc.job.version if alloc.job is not None else alloc.job_version
    wanted = replace(
        alloc,
        job=None,
        job_version=version,
        eval_id=alloc.eval_id or plan.eval_id,
        alloc_modify_index=keys.THIS_REVISION,
        create_time=present.create_time if present is not None else draft.now_ns,
        modify_time=draft.now_ns,
    )
    if present is not None:
        wanted = _keep_reports(wanted, present)
    draft.put_allocation(wanted)
    if present is None:
        draft.require(keys.node_key(alloc.node_id), draft.snapshot.node(alloc.node_id))
        if alloc.previous_allocation:
            _link(draft, alloc)
        keep_sticky_volumes(draft, wanted, group_of_alloc(draft.snapshot, wanted))
    return present is None or present.deployment_id != alloc.deployment_id


def _keep_reports(wanted: Allocation, present: Allocation) -> Allocation:
    """The node's side of an allocation is the node's to say, unless the plan settles what became of it meanwhile."""
    settled = wanted.alloc_states != present.alloc_states
    same = wanted.deployment_id == present.deployment_id
    return replace(
        wanted,
        client_status=wanted.client_status if settled else present.client_status,
        client_description=wanted.client_description if settled else present.client_description,
        task_states=present.task_states,
        network_status=present.network_status,
        deployment_status=present.deployment_status if same else wanted.deployment_status,
    )


def _link(draft: Draft, alloc: Allocation) -> None:
    previous = draft.allocation(alloc.previous_allocation)
    if previous is not None and previous.next_allocation != alloc.id:
        draft.put_allocation(replace(previous, next_allocation=alloc.id, modify_time=draft.now_ns))
