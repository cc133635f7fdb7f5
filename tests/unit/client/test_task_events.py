"""Events with their texts, and states."""

from lepa.client import task_events
from lepa.client.restart_tracker import WITHIN
from lepa.drivers.protocol import ExitResult
from lepa.model.allocation import TaskState

NOW = 1_770_000_000_000_000_000


def test_texts() -> None:
    assert task_events.terminated(ExitResult(exit_code=137, signal=9, oom_killed=True), NOW).display_message == (
        'Exit Code: 137, Signal: 9, Exit Message: "OOM Killed"'
    )
    assert task_events.restarting(WITHIN, 16.2, NOW).display_message == "Task restarting in 16.2s"
    assert task_events.restarting("Why", 0.0, NOW).display_message == "Why - Task restarting in 0s"
    text = "Sent interrupt. Waiting 5s before force killing"
    assert task_events.killing("stop", 5_000_000_000, NOW).display_message == text
    assert task_events.sibling_failed("db", NOW).details == {"failed_sibling": "db"}


def test_a_failed_start_keeps_its_reason_where_tools_look_for_it() -> None:
    assert task_events.start_failed("Driver Failure", "no", NOW).driver_error == "no"
    assert task_events.start_failed("Failed Artifact Download", "no", NOW).details == {"download_error": "no"}
    assert task_events.start_failed("Template", "no", NOW).details == {"message": "no"}


def test_only_the_newest_events_are_kept() -> None:
    state = TaskState()
    for number in range(15):
        state = task_events.with_event(state, task_events.event(str(number), "", NOW))
    assert [told.type for told in state.events] == [str(number) for number in range(5, 15)]


def test_states() -> None:
    running = task_events.running(TaskState(), NOW)
    assert (running.state, running.started_at) == ("running", "2026-02-02T02:40:00Z")
    dead = task_events.dead(running, NOW, failed=True)
    assert (dead.state, dead.failed, dead.finished_at) == ("dead", True, "2026-02-02T02:40:00Z")
    again = task_events.again(dead, NOW)
    assert (again.state, again.failed, again.restarts) == ("pending", False, 1)
    assert task_events.received(NOW).type == "Received"
    assert task_events.started(NOW).type == "Started"
    assert task_events.killed(NOW).type == "Killed"
    assert task_events.not_restarting("r", NOW, failed=True).fails_task
