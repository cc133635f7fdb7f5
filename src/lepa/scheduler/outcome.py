"""Pure: what comes of an evaluation: a plan, the evaluation as it should be stored, and evaluations that follow."""

from collections.abc import Sequence

import msgspec

from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.plan import Plan
from lepa.model.wire import Wire, to_builtins
from lepa.scheduler.candidates import class_eligibility
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.context import Context
from lepa.scheduler.place import Placed

CREATED_FOR_REMAINING = "created to place remaining allocations"


class Outcome(Wire, frozen=True):
    """plan: to be checked and committed. evaluation: to be stored once the whole plan is. new_evaluations: with it.

    If the plan was refused in part, the evaluation is processed again with a newer view instead, and `evaluation` and
    `new_evaluations` of this outcome are thrown away, but for evaluations that committed allocations name as their
    follow-up. An `evaluation` with status "blocked" waits again.
    """

    plan: Plan
    evaluation: Evaluation
    new_evaluations: tuple[Evaluation, ...] = ()


def finish(context: Context, plan: Plan, placed: Placed, followups: Sequence[Evaluation]) -> Outcome:
    """Close an evaluation. What could not be placed waits in a blocked one, which may be the same once more."""
    evaluation, job = context.evaluation, context.job
    metrics = {
        name: msgspec.structs.replace(metric, coalesced_failures=placed.failed_counts[name] - 1)
        for name, metric in placed.failures.items()
    }
    queued = {group.name: 0 for group in job.task_groups} if job is not None and not job.stop else {}
    queued |= placed.failed_counts
    done = msgspec.structs.replace(
        evaluation,
        status="complete",
        status_description="",
        failed_tg_allocs=metrics,
        queued_allocations=queued,
        snapshot_index=context.view.index,
        modify_time=context.now_ns,
        plan_annotations=_annotations(plan) if evaluation.annotate_plan else None,
    )
    new = list(followups)
    if placed.failures and job is not None:
        if evaluation.status == "blocked":
            waiting = _blocked(done, job, placed, context.columns, evaluation.id)
            done = msgspec.structs.replace(
                waiting,
                previous_eval=evaluation.previous_eval,
                create_time=evaluation.create_time,
                create_index=evaluation.create_index,
            )
        else:
            waiting = _blocked(done, job, placed, context.columns, context.new_id())
            new.append(waiting)
            done = msgspec.structs.replace(done, blocked_eval=waiting.id)
    return Outcome(plan=plan, evaluation=done, new_evaluations=tuple(new))


def _blocked(done: Evaluation, job: Job, placed: Placed, columns: NodeColumns, blocked_id: str) -> Evaluation:
    failed = [(group, ranking.candidates) for group, ranking in placed.rankings if group.name in placed.failures]
    eligibility = class_eligibility(columns, job, failed)
    return Evaluation(
        id=blocked_id,
        namespace=done.namespace,
        priority=done.priority,
        type=done.type,
        triggered_by="queued-allocs",
        job_id=done.job_id,
        job_modify_index=job.job_modify_index,
        status="blocked",
        status_description=CREATED_FOR_REMAINING,
        previous_eval=done.id,
        failed_tg_allocs=done.failed_tg_allocs,
        queued_allocations=done.queued_allocations,
        class_eligibility=eligibility.classes,
        escaped_computed_class=eligibility.escaped,
        snapshot_index=done.snapshot_index,
        create_time=done.modify_time,
        modify_time=done.modify_time,
    )


def _annotations(plan: Plan) -> dict[str, object]:
    evicted = [stop.alloc_id for stop in plan.stops if stop.desired_status == "evict"]
    return {"DesiredTGUpdates": to_builtins(plan.annotations), "PreemptedAllocs": evicted}
