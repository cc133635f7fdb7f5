"""Pure: evaluations of service and batch jobs: reconcile, place, and say what could not be placed."""

from collections.abc import Callable
from typing import Any

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.plan import Plan
from lepa.scheduler.columns import NodeColumns, Proposal
from lepa.scheduler.outcome import Outcome, finish
from lepa.scheduler.place import Placed, Placer
from lepa.scheduler.reconcile import Changes, reconcile
from lepa.scheduler.view import View


def process_generic(
    evaluation: Evaluation, view: View, now_ns: int, seed: int, new_id: Callable[[], str], columns: NodeColumns
) -> Outcome:
    """What to do about a service or batch job."""
    job = view.job(evaluation.namespace, evaluation.job_id)
    changes = reconcile(evaluation, view, now_ns, new_id)
    placed = Placed()
    if changes.placements:
        columns.refresh(view)
        proposal = Proposal(view, columns)
        propose(changes, view, evaluation, proposal)
        config = view.scheduler_configuration().preemption_config
        batch = evaluation.type == "batch"
        may_preempt = config.batch_scheduler_enabled if batch else config.service_scheduler_enabled
        placer = Placer(view, columns, proposal, evaluation, now_ns, seed, new_id, may_preempt=may_preempt)
        placed = placer.place(changes.placements)
    plan = plan_of(evaluation, view, job, changes, placed)
    return finish(evaluation, view, job, plan, placed, changes.followups, columns, now_ns, new_id)


def propose(changes: Changes, view: View, evaluation: Evaluation, proposal: Proposal) -> None:
    """Let a proposal have everything a reconciler stops and updates."""
    for alloc in view.job_allocations(evaluation.namespace, evaluation.job_id):
        stop = changes.stops.get(alloc.id)
        after: Allocation | None = changes.updates.get(alloc.id)
        if stop is not None:
            status: dict[str, Any] = {"desired_status": stop.desired_status}
            after = msgspec.structs.replace(alloc, client_status=stop.client_status or alloc.client_status, **status)
        if after is not None:
            proposal.put(after, alloc)


def plan_of(evaluation: Evaluation, view: View, job: Job | None, changes: Changes, placed: Placed) -> Plan:
    """The plan that carries out the changes, with what could be placed."""
    stops = [*changes.stops.values(), *placed.stops]
    stopped = {stop.alloc_id for stop in stops}
    updates = [alloc for alloc in changes.updates.values() if alloc.id not in stopped]
    return Plan(
        eval_id=evaluation.id,
        priority=evaluation.priority,
        all_at_once=job.all_at_once if job else False,
        job=job,
        snapshot_index=view.index,
        updates=(*updates, *placed.allocations),
        stops=tuple(stops),
        deployment=changes.deployment,
        deployment_updates=tuple(changes.deployment_updates),
        annotations=changes.desired,
    )
