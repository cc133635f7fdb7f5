"""Which of two allocations stays when a client comes back."""

import pytest
from tests.builders import make_alloc, make_metric, make_task_state

from lepa.kit.durations import HOUR, rfc3339
from lepa.model.allocation import Allocation
from lepa.model.evaluation import NodeScoreMeta
from lepa.scheduler.reconnect import original_wins


def alloc(node: str, started_hour: int, score: float, **changes: object) -> Allocation:
    metric = make_metric(score_meta_data=(NodeScoreMeta(node_id=node, norm_score=score),))
    state = make_task_state(started_at=rfc3339(started_hour * HOUR))
    return make_alloc(node, node_id=node, metrics=metric, task_states={"web": state}, **changes)


@pytest.mark.parametrize(
    ("strategy", "wins"),
    [("keep_original", True), ("keep_replacement", False), ("longest_running", True), ("best_score", False)],
)
def test_strategies(strategy: str, wins: bool) -> None:
    assert original_wins(alloc("old", 1, 0.2), alloc("new", 2, 0.8), strategy) is wins


def test_an_original_that_does_not_run_or_is_outdated_never_wins() -> None:
    new = alloc("new", 2, 0.1, job_version=1)
    assert not original_wins(alloc("old", 1, 0.9), new, "keep_original")
    assert not original_wins(alloc("old", 1, 0.9, job_version=1, client_status="failed"), new, "keep_original")


def test_a_failed_replacement_never_wins() -> None:
    assert original_wins(alloc("old", 1, 0.1), alloc("new", 2, 0.9, client_status="failed"), "keep_replacement")
