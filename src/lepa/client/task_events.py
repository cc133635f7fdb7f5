"""Pure: what is told of a task: events with their texts, and the state that they lead to."""

from msgspec.structs import replace

from lepa.client.restart_tracker import WITHIN
from lepa.drivers.protocol import ExitResult
from lepa.kit.durations import format_duration, rfc3339
from lepa.model.allocation import TaskEvent, TaskState

EVENTS_MAX = 10
REASON_FIELDS = {
    "Driver Failure": "driver_error",
    "Failed Artifact Download": "download_error",
    "Failed Validation": "validation_error",
    "Setup Failure": "setup_error",
}
"""Where an event of a type keeps its reason."""


def event(kind: str, message: str, now_ns: int, /, **details: str) -> TaskEvent:
    """An event of type `kind`; details are texts with Nomad's keys."""
    return TaskEvent(type=kind, time=now_ns, message=message, display_message=message, details=details)


def received(now_ns: int) -> TaskEvent:
    """The node has the allocation."""
    return event("Received", "Task received by client", now_ns)


def started(now_ns: int) -> TaskEvent:
    """The driver started the task."""
    return event("Started", "Task started by client", now_ns)


def start_failed(kind: str, reason: str, now_ns: int) -> TaskEvent:
    """The driver, or something before it, could not start the task. kind: the event's type."""
    field = REASON_FIELDS.get(kind, "message")
    told = event(kind, reason, now_ns, **{field: reason})
    return told if field == "message" else replace(told, **{field: reason})


def terminated(result: ExitResult, now_ns: int) -> TaskEvent:
    """The task ended."""
    text = f"Exit Code: {result.exit_code}"
    if result.signal:
        text += f", Signal: {result.signal}"
    message = result.error or ("OOM Killed" if result.oom_killed else "")
    if message:
        text += f', Exit Message: "{message}"'
    told = event(
        "Terminated",
        text,
        now_ns,
        exit_code=str(result.exit_code),
        signal=str(result.signal),
        exit_message=message,
        oom_killed="true" if result.oom_killed else "false",
    )
    return replace(told, exit_code=result.exit_code, signal=result.signal)


def restarting(reason: str, delay_s: float, now_ns: int) -> TaskEvent:
    """It will be started again after a wait."""
    text = f"Task restarting in {format_duration(int(delay_s * 1000) * 1_000_000)}"
    if reason != WITHIN:
        text = f"{reason} - {text}"
    told = event("Restarting", text, now_ns, restart_reason=reason, start_delay=str(int(delay_s * 1e9)))
    return replace(told, restart_reason=reason, start_delay=int(delay_s * 1e9))


def not_restarting(reason: str, now_ns: int, *, failed: bool) -> TaskEvent:
    """It will not be started again."""
    told = event("Not Restarting", reason, now_ns, restart_reason=reason, fails_task="true" if failed else "false")
    return replace(told, restart_reason=reason, fails_task=failed)


def killing(reason: str, timeout_ns: int, now_ns: int) -> TaskEvent:
    """It is being told to end."""
    text = f"Sent interrupt. Waiting {format_duration(timeout_ns)} before force killing"
    told = event("Killing", text, now_ns, kill_timeout=format_duration(timeout_ns), kill_reason=reason)
    return replace(told, kill_timeout=timeout_ns, kill_reason=reason)


def killed(now_ns: int) -> TaskEvent:
    """It was ended as asked."""
    return event("Killed", "Task successfully killed", now_ns)


def sibling_failed(sibling: str, now_ns: int) -> TaskEvent:
    """Another task of the group failed for good."""
    text = f'Task\'s sibling "{sibling}" failed'
    told = event("Sibling Task Failed", text, now_ns, failed_sibling=sibling)
    return replace(told, failed_sibling=sibling)


def with_event(state: TaskState, told: TaskEvent) -> TaskState:
    """The state with one more event; the oldest ones are dropped."""
    return replace(state, events=(*state.events, told)[-EVENTS_MAX:])


def running(state: TaskState, now_ns: int) -> TaskState:
    """The task runs."""
    return replace(state, state="running", started_at=rfc3339(now_ns), failed=False)


def waiting(state: TaskState, now_ns: int) -> TaskState:
    """The task will be started again."""
    return replace(state, state="pending", restarts=state.restarts + 1, last_restart=rfc3339(now_ns))


def dead(state: TaskState, now_ns: int, *, failed: bool) -> TaskState:
    """The task will not run again."""
    return replace(state, state="dead", failed=failed or state.failed, finished_at=rfc3339(now_ns))


def again(state: TaskState, now_ns: int) -> TaskState:
    """The whole allocation runs once more, and this task with it, whatever became of it."""
    return replace(waiting(state, now_ns), failed=False)
