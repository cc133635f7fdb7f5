"""When a failed allocation may move."""

import pytest
from tests.builders import make_alloc, make_group, make_task_state

from lepa.kit.durations import HOUR, MINUTE, SECOND, rfc3339
from lepa.model.allocation import Allocation, RescheduleEvent, RescheduleTracker
from lepa.model.policies import ReschedulePolicy
from lepa.scheduler.reschedule import EVENTS_MAX, failed_nodes, moved_tracker, next_move

FAILED_AT = 10 * HOUR


def failed(*moves: tuple[int, int]) -> Allocation:
    """A failed allocation with earlier moves, each (time, delay)."""
    events = tuple(
        RescheduleEvent(reschedule_time=at, delay=delay, prev_node_id=f"old-{at // HOUR}") for at, delay in moves
    )
    state = make_task_state(state="dead", failed=True, finished_at=rfc3339(FAILED_AT))
    return make_alloc(
        client_status="failed", task_states={"web": state}, reschedule_tracker=RescheduleTracker(events=events)
    )


def delay_of(policy: ReschedulePolicy, *moves: tuple[int, int]) -> int | None:
    move = next_move(failed(*moves), policy)
    return None if move is None else move.at_ns - FAILED_AT


def test_first_move_waits_the_delay() -> None:
    assert delay_of(ReschedulePolicy()) == 30 * SECOND


@pytest.mark.parametrize(
    ("function", "moves", "expected"),
    [
        ("constant", [(9 * HOUR, 30 * SECOND)], 30 * SECOND),
        ("exponential", [(9 * HOUR, 30 * SECOND)], MINUTE),
        ("exponential", [(9 * HOUR, 50 * MINUTE)], HOUR),
        ("exponential", [(8 * HOUR, HOUR)], 30 * SECOND),
        ("fibonacci", [(9 * HOUR, 30 * SECOND)], 30 * SECOND),
        ("fibonacci", [(9 * HOUR, 30 * SECOND), (9 * HOUR, MINUTE)], 90 * SECOND),
    ],
)
def test_delays_grow_to_their_bound_and_start_over(function: str, moves: list[tuple[int, int]], expected: int) -> None:
    assert delay_of(ReschedulePolicy(delay_function=function), *moves) == expected


def test_attempts_are_counted_within_the_interval() -> None:
    policy = ReschedulePolicy(attempts=1, interval=2 * HOUR, unlimited=False, delay_function="constant")
    assert delay_of(policy, (9 * HOUR, 0)) is None
    assert delay_of(policy, (7 * HOUR, 0)) is not None


@pytest.mark.parametrize("policy", [None, ReschedulePolicy(attempts=0, unlimited=False)])
def test_no_policy_and_no_attempts_mean_no_move(policy: ReschedulePolicy | None) -> None:
    """B013."""
    assert next_move(failed(), policy) is None


def test_tracker_remembers_a_bounded_number_of_moves() -> None:
    alloc = failed(*((hour * HOUR, SECOND) for hour in range(1, 8)))
    tracker = moved_tracker(alloc, make_group(reschedule_policy=ReschedulePolicy()), FAILED_AT)
    assert len(tracker.events) == EVENTS_MAX
    assert tracker.events[-1].prev_alloc_id == alloc.id
    assert tracker.events[-1].delay == 30 * SECOND, "it was calm for longer than an hour"


def test_tracker_of_a_limited_policy_forgets_what_is_older_than_the_interval() -> None:
    policy = ReschedulePolicy(attempts=3, interval=2 * HOUR, unlimited=False)
    tracker = moved_tracker(failed((HOUR, 1), (9 * HOUR, 1)), make_group(reschedule_policy=policy), FAILED_AT)
    assert [event.reschedule_time for event in tracker.events] == [9 * HOUR, FAILED_AT]


def test_nodes_of_all_failed_tries_are_known() -> None:
    assert failed_nodes(failed((HOUR, 1), (2 * HOUR, 1))) == {"node-1", "old-1", "old-2"}
