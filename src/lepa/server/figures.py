"""Pure: figures of the state under Nomad's names: jobs by status, allocations by group, work that waits for room."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.stats import Figure
from lepa.model.usage import group_usage
from lepa.state.commands.children import launched_at
from lepa.state.snapshot import Snapshot

SUMMARY: Final = ("queued", "complete", "failed", "running", "starting", "lost", "unknown")
STATUSES: Final = ("pending", "running", "dead")


def state_figures(snapshot: Snapshot, *, dispatched: bool = True) -> Iterator[Figure]:
    """All of them. dispatched: summaries of dispatched jobs too."""
    yield "nomad.nomad.state.snapshotIndex", snapshot.index, {}
    yield "nomad.raft.appliedIndex", snapshot.index, {}
    yield from _waiting(snapshot)
    statuses = Counter(job.status for job in snapshot.jobs())
    for status in STATUSES:
        yield f"nomad.nomad.job_status.{status}", statuses[status], {}
    for job in snapshot.jobs():
        if dispatched or not job.dispatched:
            yield from _summary(snapshot, job)


def _summary(snapshot: Snapshot, job: Job) -> Iterator[Figure]:
    summary = snapshot.job_summary(job.namespace, job.id)
    if summary is None:
        return
    labels = job_labels(job)
    for group, counts in summary.summary.items():
        of_group = {**labels, "task_group": group}
        for state in SUMMARY:
            yield f"nomad.nomad.job_summary.{state}", getattr(counts, state), of_group
    if summary.children is not None:
        for status in STATUSES:
            yield f"nomad.nomad.job_summary.children.{status}", getattr(summary.children, status), labels


def job_labels(job: Job) -> dict[str, str]:
    """How figures of a job are labelled. exported_job: what Prometheus keeps when a scrape has a job of its own."""
    labels = {"job": job.id, "exported_job": job.id, "namespace": job.namespace}
    if job.parent_id:
        labels["parent_id"] = job.parent_id
        kind = "periodic_id" if launched_at(job) else "dispatch_id"
        labels[kind] = job.id.rpartition("/")[2].partition("-")[2]
    return labels


def _waiting(snapshot: Snapshot) -> Iterator[Figure]:
    """What blocked evaluations wait for, in MHz and MiB, of all jobs together and of each."""
    asked: dict[tuple[str, str], list[float]] = {}
    for evaluation in snapshot.evaluations():
        if evaluation.status == "blocked":
            cpu, memory = _asked(snapshot, evaluation)
            total = asked.setdefault((evaluation.namespace, evaluation.job_id), [0.0, 0.0])
            total[0], total[1] = total[0] + cpu, total[1] + memory
    yield "nomad.nomad.blocked_evals.cpu", sum(cpu for cpu, _ in asked.values()), {}
    yield "nomad.nomad.blocked_evals.memory", sum(memory for _, memory in asked.values()), {}
    for (namespace, job_id), (cpu, memory) in asked.items():
        labels: Mapping[str, str] = {"job": job_id, "exported_job": job_id, "namespace": namespace}
        yield "nomad.nomad.blocked_evals.job.cpu", cpu, labels
        yield "nomad.nomad.blocked_evals.job.memory", memory, labels


def _asked(snapshot: Snapshot, evaluation: Evaluation) -> tuple[float, float]:
    job = snapshot.job(evaluation.namespace, evaluation.job_id)
    cpu = memory = 0.0
    for group in job.task_groups if job is not None else ():
        if group.name in evaluation.failed_tg_allocs:
            usage = group_usage(group)
            count = evaluation.queued_allocations.get(group.name, 0)
            cpu, memory = cpu + count * usage.cpu, memory + count * usage.memory
    return cpu, memory
