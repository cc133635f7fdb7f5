"""Pure: requests to look at jobs again, and what becomes of them."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from lepa.kit.durations import rfc3339
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.state.commands.draft import Draft
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES, TERMINAL_EVALUATION_STATUSES

FOLLOW_UP_MIN_NS = 60_000_000_000
FOLLOW_UP_SPREAD_NS = 600_000_000_000


def evaluate_job(draft: Draft, job: Job, trigger: str, **facts: Any) -> Evaluation:
    """A new evaluation of a job. trigger: what caused it. facts: other fields of the evaluation."""
    fields: dict[str, Any] = {
        "priority": job.priority,
        "status": "pending",
        "job_modify_index": job.job_modify_index,
        "create_time": draft.now_ns,
        "modify_time": draft.now_ns,
    }
    evaluation = Evaluation(
        id=draft.new_id(),
        namespace=job.namespace,
        job_id=job.id,
        type=job.type,
        triggered_by=trigger,
        **(fields | facts),
    )
    draft.put_evaluation(evaluation)
    return evaluation


def evaluate_jobs(draft: Draft, jobs: Iterable[tuple[str, str]], trigger: str, **facts: Any) -> tuple[Evaluation, ...]:
    """One new evaluation of each job, given by namespace and id, that still exists. Templates have nothing to place."""
    found = (draft.job(namespace, job_id) for namespace, job_id in dict.fromkeys(jobs))
    return tuple(evaluate_job(draft, job, trigger, **facts) for job in found if job is not None and places(job))


def evaluate_node(draft: Draft, node_id: str, trigger: str = "node-update") -> tuple[Evaluation, ...]:
    """Look again at the jobs with allocations on a node that have not ended, and at all system jobs."""
    allocs = draft.snapshot.node_allocations(node_id)
    here = [(alloc.namespace, alloc.job_id) for alloc in allocs if alloc.client_status not in TERMINAL_CLIENT_STATUSES]
    system = [
        (job.namespace, job.id)
        for job in draft.snapshot.jobs()
        if job.type in ("system", "sysbatch") and not job.stop and job.status != "dead"
    ]
    node = draft.node(node_id)
    index = node.modify_index if node is not None else 0
    return evaluate_jobs(draft, here + system, trigger, node_id=node_id, node_modify_index=index)


def places(job: Job) -> bool:
    """Whether the job itself has allocations: periodic and parameterized jobs only have children that do."""
    return job.periodic is None and (job.parameterized_job is None or job.dispatched)


def end_evaluation(draft: Draft, evaluation: Evaluation) -> None:
    """Store how an evaluation ended or that it is blocked again, unless it is gone or over already.

    When it placed everything, the job's blocked evaluations have nothing left to wait for and are canceled.
    """
    present = draft.evaluation(evaluation.id)
    if present is None or present.status in TERMINAL_EVALUATION_STATUSES:
        return
    draft.put_evaluation(replace(evaluation, create_time=present.create_time or draft.now_ns, modify_time=draft.now_ns))
    if evaluation.status == "complete" and not evaluation.failed_tg_allocs and not evaluation.blocked_eval:
        reason = f'evaluation "{evaluation.id}" successful'
        for other in draft.snapshot.job_evaluations(evaluation.namespace, evaluation.job_id):
            if other.status == "blocked" and other.id != evaluation.id and _about_the_same(other, evaluation):
                cancel_evaluation(draft, other.id, reason)


def _about_the_same(blocked: Evaluation, done: Evaluation) -> bool:
    """A system job's evaluation of one node says nothing about its other nodes."""
    return not blocked.node_id or not done.node_id or blocked.node_id == done.node_id


def create_evaluation(draft: Draft, evaluation: Evaluation) -> None:
    """Store an evaluation that a scheduler asked for, while its job still exists."""
    if draft.evaluation(evaluation.id) is None:
        draft.put_evaluation(replace(evaluation, create_time=draft.now_ns, modify_time=draft.now_ns))


def cancel_evaluation(draft: Draft, eval_id: str, reason: str) -> None:
    """An evaluation that nobody needs any more."""
    _finish(draft, eval_id, "canceled", reason)


def fail_evaluation(draft: Draft, eval_id: str, reason: str, *, follow_up_delay_ns: int) -> None:
    """An evaluation that could not be processed; a follow-up looks at the job again after a while, if it still exists.

    follow_up_delay_ns: chosen by the caller between FOLLOW_UP_MIN_NS and that plus FOLLOW_UP_SPREAD_NS.
    """
    failed = draft.evaluation(eval_id)
    if failed is None or failed.status in TERMINAL_EVALUATION_STATUSES:
        return
    job = draft.job(failed.namespace, failed.job_id)
    next_eval = ""
    if job is not None:
        until = rfc3339(draft.now_ns + follow_up_delay_ns)
        next_eval = evaluate_job(
            draft, job, "failed-follow-up", wait_until=until, previous_eval=eval_id, priority=failed.priority
        ).id
    _finish(draft, eval_id, "failed" if job is not None else "canceled", reason, next_eval=next_eval)


def _finish(draft: Draft, eval_id: str, status: str, reason: str, **facts: Any) -> None:
    present = draft.evaluation(eval_id)
    if present is not None and present.status not in TERMINAL_EVALUATION_STATUSES:
        draft.put_evaluation(
            replace(present, status=status, status_description=reason, modify_time=draft.now_ns, **facts)
        )
