"""Pure: which of two allocations stays when a client comes back: the one that ran there, or its replacement."""

from lepa.kit.durations import parse_rfc3339
from lepa.model.allocation import Allocation


def original_wins(original: Allocation, replacement: Allocation, strategy: str) -> bool:
    """Whether the allocation that came back stays. strategy: `disconnect.reconcile` of the group.

    One that does not run, or runs an older version than its replacement, never wins.
    """
    if original.client_status != "running" or original.job_version < replacement.job_version:
        return False
    if replacement.client_status in ("failed", "lost", "complete"):
        return True
    if strategy == "keep_original":
        return True
    if strategy == "keep_replacement":
        return False
    if strategy == "longest_running":
        return _started(original) <= _started(replacement)
    return _score(original) >= _score(replacement)


def _started(alloc: Allocation) -> int:
    """Unix nanoseconds at which its first task started; the far future when none has."""
    started = [parse_rfc3339(state.started_at) for state in alloc.task_states.values()]
    return min((at for at in started if at), default=1 << 63)


def _score(alloc: Allocation) -> float:
    """The score of its node when it was placed."""
    metas = alloc.metrics.score_meta_data if alloc.metrics else ()
    return next((meta.norm_score for meta in metas if meta.node_id == alloc.node_id), 0.0)
