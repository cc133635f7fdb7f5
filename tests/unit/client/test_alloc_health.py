"""Healthy for long enough."""

from tests.builders import make_group, make_task

from lepa.client.alloc_health import AllocHealth
from lepa.model.allocation import TaskState
from lepa.model.policies import TaskLifecycle, UpdateStrategy

SECOND = 1_000_000_000
RUNNING, DEAD = TaskState(state="running"), TaskState(state="dead")
GROUP = make_group(
    tasks=(
        make_task("web"),
        make_task("init", lifecycle=TaskLifecycle(hook="prestart")),
        make_task("after", lifecycle=TaskLifecycle(hook="poststart")),
        make_task("clean", lifecycle=TaskLifecycle(hook="poststop")),
    )
)
GOOD = {"web": RUNNING, "init": DEAD, "after": RUNNING, "clean": TaskState()}


def health(**changes: object) -> AllocHealth:
    strategy = UpdateStrategy(**({"min_healthy_time": 10 * SECOND, "healthy_deadline": 60 * SECOND} | changes))  # type: ignore[arg-type]
    return AllocHealth(GROUP, strategy, now=0.0)


def test_it_is_healthy_after_the_time_without_a_break() -> None:
    """B028: the group's poststop task is pending all the time, as it should be."""
    one = health()
    assert one.observe(GOOD, True, 1.0) is None
    assert one.wake_at() == 11.0
    assert one.observe(GOOD, True, 10.9) is None
    assert one.observe(GOOD, True, 11.0) is True
    assert one.wake_at() is None


def test_a_break_begins_the_time_anew() -> None:
    one = health()
    one.observe(GOOD, True, 1.0)
    one.observe(GOOD, False, 5.0)
    one.observe(GOOD, True, 6.0)
    assert one.observe(GOOD, True, 15.0) is None
    assert one.observe(GOOD, True, 16.0) is True


def test_a_restart_begins_the_time_anew() -> None:
    one = health()
    one.observe(GOOD, True, 1.0)
    one.observe(GOOD | {"web": TaskState(state="running", restarts=1)}, True, 8.0)
    assert one.observe(GOOD | {"web": TaskState(state="running", restarts=1)}, True, 12.0) is None


def test_at_the_deadline_it_is_unhealthy_and_says_what_was_missing() -> None:
    one = health()
    assert one.observe(GOOD, False, 60.0) is False
    assert "checks" in one.reason
    other = health()
    assert other.observe(GOOD | {"init": RUNNING}, True, 60.0) is False
    assert "tasks" in other.reason


def test_a_failed_task_decides_at_once() -> None:
    one = health()
    assert one.observe(GOOD | {"init": TaskState(state="dead", failed=True)}, True, 1.0) is False
    assert one.verdict is False


def test_checks_are_overlooked_with_task_states_and_nothing_is_decided_with_manual() -> None:
    assert health(health_check="task_states", min_healthy_time=0).observe(GOOD, False, 1.0) is True
    manual = health(health_check="manual")
    assert manual.observe(GOOD, True, 1000.0) is None
    assert manual.wake_at() is None
