"""Pure: evaluations of service and batch jobs: reconcile, place, and say what could not be placed."""

from collections import Counter

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.plan import DesiredUpdates, Plan
from lepa.scheduler.changes import Changes
from lepa.scheduler.columns import Proposal
from lepa.scheduler.context import Context
from lepa.scheduler.outcome import Outcome, finish
from lepa.scheduler.place import Placed, Placer
from lepa.scheduler.reconcile import reconcile


def process_generic(context: Context) -> Outcome:
    """What to do about a service or batch job."""
    evaluation, view = context.evaluation, context.view
    changes = reconcile(evaluation, view, context.now_ns, context.new_id)
    config = view.scheduler_configuration().preemption_config
    batch = evaluation.type == "batch"
    may_preempt = config.batch_scheduler_enabled if batch else config.service_scheduler_enabled
    if changes.placements:
        context.columns.refresh(view)
    placed = place_changes(context, changes, may_preempt=may_preempt)
    return finish(context, plan_of(context, changes, placed), placed, changes.followups)


def place_changes(context: Context, changes: Changes, *, may_preempt: bool) -> Placed:
    """Place what the changes ask for, on top of what they stop and update. The columns have to be fresh."""
    if not changes.placements:
        return Placed()
    proposal = Proposal(context.view, context.columns)
    for alloc in context.view.job_allocations(context.evaluation.namespace, context.evaluation.job_id):
        after: Allocation | None = changes.updates.get(alloc.id)
        stop = changes.stops.get(alloc.id)
        if stop is not None:
            status = stop.client_status or alloc.client_status
            after = msgspec.structs.replace(alloc, desired_status=stop.desired_status, client_status=status)
        if after is not None:
            proposal.put(after, alloc)
    return Placer(context, proposal, may_preempt=may_preempt).place(changes.placements)


def plan_of(context: Context, changes: Changes, placed: Placed) -> Plan:
    """The plan that carries out the changes, with what could be placed."""
    job = context.job
    stops = [*changes.stops.values(), *placed.stops]
    stopped = {stop.alloc_id for stop in stops}
    updates = [alloc for alloc in changes.updates.values() if alloc.id not in stopped]
    return Plan(
        eval_id=context.evaluation.id,
        priority=context.evaluation.priority,
        all_at_once=job.all_at_once if job else False,
        job=job,
        snapshot_index=context.view.index,
        updates=(*updates, *placed.allocations),
        stops=tuple(stops),
        deployment=changes.deployment,
        deployment_updates=tuple(changes.deployment_updates),
        annotations=_annotations(changes, placed),
    )


def _annotations(changes: Changes, placed: Placed) -> dict[str, DesiredUpdates]:
    """What happens to each group, with the evictions that its placements need."""
    evictions = Counter(alloc.task_group for alloc in placed.allocations for _ in alloc.preempted_allocations)
    return {
        name: msgspec.structs.replace(desired, preemptions=evictions[name]) if evictions[name] else desired
        for name, desired in changes.desired.items()
    }
