"""Pure: the scheduler's door: one evaluation in, one outcome out, by type of job.

    outcome = process(evaluation, snapshot, now_ns=…, seed=…, new_id=random.uuid, columns=columns)

The caller keeps `columns` (a `NodeColumns`, one a worker) between calls, checks and commits `outcome.plan`
(`lepa.scheduler.plan_check`), and stores `outcome.evaluation` and `outcome.new_evaluations` when all of it was taken.
If it was not, the evaluation is processed again on a newer view, at most `attempts_max` times; then `give_up`.
"""

from collections.abc import Callable, Iterable

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.plan import Plan
from lepa.scheduler.ahead import Ahead
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.context import Context
from lepa.scheduler.generic import process_generic
from lepa.scheduler.outcome import Outcome
from lepa.scheduler.system import process_system
from lepa.scheduler.view import View

CREATED_FOR_CONFLICTS = "created due to placement conflicts"
ATTEMPTS_MAX = {"service": 5, "batch": 2, "system": 5, "sysbatch": 2}


def process(
    evaluation: Evaluation,
    view: View,
    *,
    now_ns: int,
    seed: int,
    new_id: Callable[[], str],
    columns: NodeColumns,
) -> Outcome:
    """Decide what an evaluation's job needs.

    now_ns: Unix nanoseconds. seed: decides between equal nodes. new_id: a fresh id for allocations, evaluations,
    deployments. The same arguments give the same outcome, whatever `columns` has seen before.
    """
    decide = process_system if evaluation.type in ("system", "sysbatch") else process_generic
    return decide(Context(evaluation, view, columns, now_ns, seed, new_id))


def process_ahead(
    evaluation: Evaluation,
    view: View,
    under_way: Iterable[Allocation],
    *,
    now_ns: int,
    seed: int,
    new_id: Callable[[], str],
    columns: NodeColumns,
) -> Outcome:
    """`process` on a view with placements of other jobs that are on their way into it."""
    ahead = Ahead(view, under_way)
    columns.look_again(ahead.ahead_nodes)
    outcome = process(evaluation, ahead, now_ns=now_ns, seed=seed, new_id=new_id, columns=columns)
    columns.look_again(ahead.ahead_nodes)  # what is under way may be refused
    return outcome


def attempts_max(evaluation: Evaluation) -> int:
    """How many times an evaluation may be processed when its plans are refused."""
    return ATTEMPTS_MAX.get(evaluation.type, 1)


def give_up(evaluation: Evaluation, view: View, *, now_ns: int, new_id: Callable[[], str]) -> Outcome:
    """The outcome of an evaluation whose plans were refused too often: failed, and a blocked one to try again later."""
    waiting = msgspec.structs.replace(
        evaluation,
        id=new_id(),
        triggered_by="max-plan-attempts",
        status="blocked",
        status_description=CREATED_FOR_CONFLICTS,
        previous_eval=evaluation.id,
        blocked_eval="",
        escaped_computed_class=True,
        snapshot_index=view.index,
        create_time=now_ns,
        modify_time=now_ns,
        create_index=0,
        modify_index=0,
    )
    failed = msgspec.structs.replace(
        evaluation,
        status="failed",
        status_description=f"maximum attempts reached ({attempts_max(evaluation)})",
        blocked_eval=waiting.id,
        modify_time=now_ns,
    )
    plan = Plan(eval_id=evaluation.id, priority=evaluation.priority, snapshot_index=view.index)
    return Outcome(plan=plan, evaluation=failed, new_evaluations=(waiting,))
