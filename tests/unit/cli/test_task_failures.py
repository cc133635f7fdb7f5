"""Why tasks failed, in a line each."""

from typing import Any

from tests.unit.cli.objects import ALLOC, OTHER, alloc_stub

from lepa.cli.task_failures import SHOWN_MAX, failure_lines


def state(*events: tuple[str, str], failed: bool = True) -> dict[str, Any]:
    return {"Failed": failed, "Events": [{"Type": kind, "DisplayMessage": text} for kind, text in events]}


BROKEN = state(
    ("Received", "Task received by client"),
    ("Template", "template: line 1: missing value for command"),
    ("Not Restarting", "Error was unrecoverable"),
    ("Alloc Unhealthy", "Unhealthy because of failed task"),
)
EXITED = state(("Started", "Task started by client"), ("Terminated", "Exit Code: 1"), ("Restarting", "in 15s"))


def test_the_event_that_failed_is_told_and_not_what_was_done_about_it() -> None:
    told = failure_lines([alloc_stub(TaskStates={"web": BROKEN, "log": EXITED})])
    assert told == [
        'Allocation "11111111", task "log": Exit Code: 1',
        'Allocation "11111111", task "web": template: line 1: missing value for command',
    ]
    assert ALLOC in failure_lines([alloc_stub(TaskStates={"web": BROKEN})], verbose=True)[0]


def test_the_same_reason_is_told_once_of_the_newest() -> None:
    older = alloc_stub(OTHER, CreateIndex=3, TaskStates={"web": BROKEN})
    newer = alloc_stub(CreateIndex=5, TaskStates={"web": BROKEN})
    assert [line[:21] for line in failure_lines([older, newer])] == ['Allocation "11111111"']
    many = [alloc_stub(TaskStates={"web": state(("Terminated", f"Exit Code: {n}"))}) for n in range(9)]
    assert len(failure_lines(many)) == SHOWN_MAX


def test_a_task_that_runs_was_only_not_healthy_in_time() -> None:
    late = state(("Started", "Task started by client"), ("Alloc Unhealthy", "not healthy by 5m0s"), failed=False)
    (line,) = failure_lines([alloc_stub(TaskStates={"web": late})])
    assert line.endswith('task "web": not healthy by 5m0s')
    assert failure_lines([alloc_stub(), alloc_stub(TaskStates={"web": state()})]) == []
