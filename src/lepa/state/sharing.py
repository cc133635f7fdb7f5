"""Pure: makes decoded rows share the values that most of them have in common.

A decoder makes a new text for every "running" and every node id. In 100,000 allocations these are a quarter of all
memory. `same` answers with an equal text seen before; it remembers a bounded number, and forgetting one costs memory
only, never truth.
"""

from functools import lru_cache
from operator import attrgetter
from typing import Final

from msgspec.structs import force_setattr

from lepa.model.allocation import Allocation
from lepa.model.evaluation import AllocMetric

TEXTS_MAX: Final = 32_768

_ALLOCATION_TEXTS: Final = (
    "namespace",
    "eval_id",
    "node_id",
    "node_name",
    "job_id",
    "task_group",
    "desired_status",
    "desired_description",
    "client_status",
    "client_description",
    "deployment_id",
)
_EVENT_TEXTS: Final = ("type", "message", "display_message")
_allocation_texts = attrgetter(*_ALLOCATION_TEXTS)
_event_texts = attrgetter(*_EVENT_TEXTS)


@lru_cache(maxsize=TEXTS_MAX)
def same(text: str) -> str:
    """`text`, or an equal text that is kept already."""
    return text


@lru_cache(maxsize=TEXTS_MAX)
def same_number(number: float) -> float:
    """`number`, or an equal one that is kept already."""
    return number


def share_allocation(alloc: Allocation) -> None:
    """Replace texts and numbers of a freshly decoded allocation, which nobody else holds yet, by shared ones."""
    for name, text in zip(_ALLOCATION_TEXTS, map(same, _allocation_texts(alloc)), strict=True):
        force_setattr(alloc, name, text)
    for state in alloc.task_states.values():
        for event in state.events:
            for name, text in zip(_EVENT_TEXTS, map(same, _event_texts(event)), strict=True):
                force_setattr(event, name, text)
    if alloc.metrics is not None:
        _share_metric(alloc.metrics)


def _share_metric(metric: AllocMetric) -> None:
    for meta in metric.score_meta_data:
        force_setattr(meta, "node_id", same(meta.node_id))
        scores = meta.scores
        for name, score in scores.items():
            scores[name] = same_number(score) if score else 0.0
