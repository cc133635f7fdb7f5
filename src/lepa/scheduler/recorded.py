"""Pure: what past schedulings wrote down about a job, in a person's words."""

from collections.abc import Iterator, Sequence
from typing import Final

from lepa.model.allocation import Allocation
from lepa.model.evaluation import AllocMetric, Evaluation, NodeScoreMeta
from lepa.model.explanation import RecordedDecision

DECISIONS_SHOWN: Final = 20


def recorded_decisions(allocations: Sequence[Allocation], evaluations: Sequence[Evaluation]) -> list[RecordedDecision]:
    """Placements that stand, newest first, and before them what the newest scheduling could not place."""
    found = list(_failures(evaluations))
    standing = [alloc for alloc in allocations if alloc.desired_status == "run" and alloc.metrics is not None]
    for alloc in sorted(standing, key=lambda alloc: -alloc.create_index)[:DECISIONS_SHOWN]:
        assert alloc.metrics is not None
        found.append(
            RecordedDecision(
                group=alloc.task_group,
                allocation_id=alloc.id,
                name=alloc.name,
                node_id=alloc.node_id,
                node_name=alloc.node_name,
                eval_id=alloc.eval_id,
                time=alloc.create_time,
                reasons=tuple(placement_words(alloc.metrics, alloc.node_id)),
            )
        )
    return found


def _failures(evaluations: Sequence[Evaluation]) -> Iterator[RecordedDecision]:
    """Of the newest evaluation that says something: older ones are out of date, and so are those that were canceled,
    which happens when a newer one takes their place."""
    standing = [evaluation for evaluation in evaluations if evaluation.status != "canceled"]
    if not standing:
        return
    newest = max(standing, key=lambda evaluation: evaluation.modify_index)
    for group, metric in sorted(newest.failed_tg_allocs.items()):
        many = metric.coalesced_failures + 1
        said = [f"{many} allocation{'' if many == 1 else 's'} could not be placed", *failure_words(metric)]
        yield RecordedDecision(group=group, eval_id=newest.id, time=newest.modify_time, reasons=tuple(said))


def placement_words(metric: AllocMetric, node_id: str) -> Iterator[str]:
    """Why an allocation went where it did."""
    yield from failure_words(metric)
    scores = {meta.node_id: meta for meta in metric.score_meta_data}
    own = scores.pop(node_id, None)
    if own is None:
        return
    yield f"its node scored {own.norm_score:.3g}{_terms(own)}"
    if scores:
        best = max(scores.values(), key=lambda meta: meta.norm_score)
        yield f"the best of the others, {best.node_id[:8]}, scored {best.norm_score:.3g}{_terms(best)}"


def _terms(meta: NodeScoreMeta) -> str:
    terms = ", ".join(f"{name} {value:.3g}" for name, value in sorted(meta.scores.items()))
    return f" ({terms})" if len(meta.scores) > 1 else ""


def failure_words(metric: AllocMetric) -> Iterator[str]:
    """How many nodes were looked at, and how many of them failed for which reason."""
    if not metric.nodes_evaluated:
        where = f' in node pool "{metric.node_pool}"' if metric.node_pool else ""
        yield f"no node{where} was ready in the job's datacenters"
        return
    yield f"{_nodes(metric.nodes_evaluated)} looked at"
    for reason, count in sorted(metric.constraint_filtered.items()):
        yield f"{_nodes(count)} excluded by {reason}"
    for dimension, count in sorted(metric.dimension_exhausted.items()):
        yield f"{_nodes(count)} had no room left ({dimension})"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
