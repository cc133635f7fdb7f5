"""Which task may run now, and which has to end."""

from tests.builders import make_group, make_task

from lepa.client import task_lifecycle
from lepa.client.task_lifecycle import (
    LEADER_ENDED,
    MAIN_ENDED,
    SIBLING_FAILED,
    STOPPED,
    client_status,
    decide,
    finished,
)
from lepa.model.allocation import TaskState
from lepa.model.job import TaskGroup
from lepa.model.policies import TaskLifecycle
from lepa.model.task import Task

PENDING, RUNNING, DEAD = TaskState(), TaskState(state="running"), TaskState(state="dead")
FAILED = TaskState(state="dead", failed=True)


def hooked(name: str, hook: str, *, sidecar: bool = False) -> Task:
    return make_task(name, lifecycle=TaskLifecycle(hook=hook, sidecar=sidecar))


GROUP = make_group(
    tasks=(
        hooked("init", "prestart"),
        hooked("proxy", "prestart", sidecar=True),
        make_task("main"),
        hooked("after", "poststart"),
        hooked("clean", "poststop"),
    )
)


def states(**known: TaskState) -> dict[str, TaskState]:
    return {task.name: known.get(task.name, PENDING) for task in GROUP.tasks}


def started(group: TaskGroup = GROUP, **known: TaskState) -> set[str]:
    return set(decide(group, states(**known), stopping=False).start)


def test_prestart_tasks_come_first() -> None:
    assert started() == {"init", "proxy"}


def test_main_tasks_wait_until_init_has_ended_and_the_sidecar_runs() -> None:
    assert started(init=RUNNING, proxy=RUNNING) == set()
    assert started(init=DEAD) == {"proxy"}
    assert started(init=DEAD, proxy=RUNNING) == {"main"}


def test_poststart_tasks_follow_the_main_ones() -> None:
    assert started(init=DEAD, proxy=RUNNING, main=RUNNING) == {"after"}


def test_stopping_ends_main_tasks_then_sidecars_then_runs_poststop() -> None:
    steps = []
    present = states(init=DEAD, proxy=RUNNING, main=RUNNING, after=DEAD)
    for _ in range(3):
        orders = decide(GROUP, present, stopping=True)
        assert orders.kill_reason == STOPPED
        steps.append((set(orders.kill), set(orders.start)))
        present |= dict.fromkeys(orders.kill, DEAD)
    assert steps == [({"main"}, set()), ({"proxy"}, set()), (set(), {"clean"})]


def test_destroying_ends_poststop_tasks_too() -> None:
    present = states(init=DEAD, proxy=DEAD, main=DEAD, after=DEAD, clean=RUNNING)
    assert decide(GROUP, present, stopping=True).kill == frozenset()
    assert decide(GROUP, present, stopping=True, destroying=True).kill == {"clean"}


def test_a_failed_task_ends_the_others() -> None:
    orders = decide(GROUP, states(init=FAILED, proxy=RUNNING), stopping=False)
    assert orders.kill_reason == SIBLING_FAILED + "init"
    assert orders.kill == {"main"}


def test_the_end_of_all_main_tasks_ends_the_sidecar() -> None:
    orders = decide(GROUP, states(init=DEAD, proxy=RUNNING, main=DEAD), stopping=False)
    assert orders.kill_reason == MAIN_ENDED
    assert orders.kill == {"proxy", "after"}


def test_a_leader_takes_the_other_main_tasks_with_it_and_is_the_first_to_go() -> None:
    group = make_group(tasks=(make_task("lead", leader=True), make_task("follow")))
    ended = decide(group, {"lead": DEAD, "follow": RUNNING}, stopping=False)
    assert (ended.kill_reason, ended.kill) == (LEADER_ENDED, {"follow"})
    assert decide(group, {"lead": RUNNING, "follow": RUNNING}, stopping=True).kill == {"lead"}


def test_client_status() -> None:
    assert client_status(GROUP, states()) == ("pending", "No tasks have started")
    assert client_status(GROUP, states(init=DEAD))[0] == "pending"
    assert client_status(GROUP, states(init=RUNNING))[0] == "running"
    assert client_status(GROUP, states(init=DEAD, proxy=DEAD, main=DEAD, after=DEAD))[0] == "running"
    assert client_status(GROUP, states(main=FAILED)) == ("failed", "Failed tasks")
    everything = dict.fromkeys(states(), DEAD)
    assert client_status(GROUP, everything) == ("complete", "All tasks have completed")
    assert finished(GROUP, everything)
    assert not finished(GROUP, states(main=DEAD))


def test_a_poststop_task_is_no_sidecar_whatever_it_says() -> None:
    assert not task_lifecycle.is_sidecar(hooked("x", "poststop", sidecar=True))
