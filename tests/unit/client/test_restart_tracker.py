"""Restart, wait, or give up."""

import pytest

from lepa.client.restart_tracker import RestartTracker
from lepa.drivers.protocol import ExitResult
from lepa.model.policies import RestartPolicy

GOOD, BAD = ExitResult(), ExitResult(exit_code=1)
SECOND = 1_000_000_000
POLICY = RestartPolicy(attempts=2, interval=60 * SECOND, delay=4 * SECOND, mode="fail")


def tracker(policy: RestartPolicy | None = POLICY, *, for_ever: bool = True) -> RestartTracker:
    return RestartTracker(policy, for_ever=for_ever, now=0.0)


def test_work_that_is_done_is_not_done_again() -> None:
    assert tracker(for_ever=False).exited(GOOD, 1.0, 0.0).action == "stop"
    assert tracker(for_ever=True).exited(GOOD, 1.0, 0.0).action == "restart"


def test_the_delay_grows_by_a_quarter_at_most() -> None:
    assert tracker().exited(BAD, 1.0, 0.0).delay_s == 4.0
    assert tracker().exited(BAD, 1.0, 1.0).delay_s == 5.0


def test_after_all_attempts_mode_fail_gives_up() -> None:
    one = tracker()
    verdicts = [one.exited(BAD, float(n), 0.0) for n in range(3)]
    assert [verdict.action for verdict in verdicts] == ["restart", "restart", "kill"]
    assert verdicts[-1].failed
    assert verdicts[-1].reason == 'Exceeded allowed attempts 2 in interval 1m0s and mode is "fail"'


def test_a_new_interval_begins_to_count_anew() -> None:
    one = tracker()
    for now in (0.0, 1.0, 70.0, 71.0):
        assert one.exited(BAD, now, 0.0).action == "restart"


@pytest.mark.parametrize("delay_s", [0, 5])
def test_mode_delay_waits_for_the_next_interval_and_never_starts_more_often_than_attempts_and_one(
    delay_s: int,
) -> None:
    """B019: the first interval and all later ones have room for as many starts."""
    one = tracker(RestartPolicy(attempts=2, interval=60 * SECOND, delay=delay_s * SECOND, mode="delay"))
    now, starts = 0.0, [0.0]
    for _ in range(20):
        now += 1.0
        now += one.exited(BAD, now, 0.0).delay_s
        starts.append(now)
    for interval in range(4):
        assert sum(interval * 60 <= start < interval * 60 + 60 for start in starts) <= 3


@pytest.mark.parametrize("result", [GOOD, BAD])
def test_no_attempts_fail_a_task_that_should_run_for_ever(result: ExitResult) -> None:
    """B020: attempts = 0 is one single start; `test_a_mode_alone_leaves_the_attempts_as_they_are` has the rest."""
    verdict = tracker(RestartPolicy(attempts=0)).exited(result, 1.0, 0.0)
    assert (verdict.action, verdict.reason, verdict.failed) == ("kill", "Policy allows no restarts", True)


def test_no_policy_is_a_policy_without_attempts() -> None:
    assert tracker(None).exited(BAD, 1.0, 0.0).action == "kill"


def test_a_start_that_cannot_succeed_is_not_tried_again() -> None:
    assert tracker().start_failed(True, 1.0, 0.0).action == "restart"
    assert tracker().start_failed(False, 1.0, 0.0).reason == "Error was unrecoverable"


def test_a_restart_that_was_asked_for_does_not_count() -> None:
    one = tracker()
    for _ in range(10):
        assert one.killed_for_restart().delay_s == 0.0
    assert one.exited(BAD, 1.0, 0.0).action == "restart"
