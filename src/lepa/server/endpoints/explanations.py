"""Pure: why a job's allocations are where they are, from one snapshot."""

from itertools import count

from lepa.model.errors import invalid
from lepa.model.evaluation import Evaluation
from lepa.model.explanation import JobExplanation
from lepa.rpc.requests import JobExplainRequest
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.context import Context
from lepa.scheduler.explain import explain_group
from lepa.scheduler.recorded import recorded_decisions
from lepa.server.endpoints.query import job_key
from lepa.state.gates import held
from lepa.state.snapshot import Snapshot

SEED = 0
"""Equal nodes come in the same order each time that somebody asks."""


def explain_job(snapshot: Snapshot, request: JobExplainRequest, now_ns: int) -> JobExplanation | None:
    """Every group of a job, or one; None when there is no such job. Raises LepaError for an unknown group."""
    job = snapshot.job(*job_key(request))
    if job is None:
        return None
    groups = [group for group in job.task_groups if request.group in ("", group.name)]
    if not groups:
        known = ", ".join(group.name for group in job.task_groups)
        raise invalid(f'job "{job.id}" has no group "{request.group}"; it has {known}')
    columns = NodeColumns()
    columns.refresh(snapshot)
    evaluation = Evaluation(id="explain", namespace=job.namespace, job_id=job.id, type=job.type, priority=job.priority)
    numbers = count(1)
    context = Context(evaluation, snapshot, columns, now_ns, SEED, lambda: f"trial-{next(numbers)}")
    evaluations = [each for each in snapshot.job_evaluations(job.namespace, job.id) if each.snapshot_index]
    wanted = {group.name for group in groups}
    waiting = held(snapshot, job)
    recorded = recorded_decisions(snapshot.job_allocations(job.namespace, job.id), evaluations)
    return JobExplanation(
        namespace=job.namespace,
        job_id=job.id,
        job_version=job.version,
        index=snapshot.index,
        waiting=waiting,
        groups=tuple(explain_group(context, job, group, nodes_max=request.nodes_max) for group in groups),
        recorded=tuple(decision for decision in recorded if decision.group in wanted),
    )
