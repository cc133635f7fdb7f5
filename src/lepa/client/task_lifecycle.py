"""Pure: which tasks of an allocation may run now, and when the allocation is over.

    prestart tasks            first; main tasks wait until those without `sidecar` have ended and the others run
    main tasks                together; a `leader` that ends takes the others with it
    poststart tasks           once all main tasks run
    poststop tasks            once all main tasks are dead

A failed task that will not be restarted ends the allocation's other tasks, except poststop ones. Tasks end in stages:
the leader first, then the other main tasks, then those beside them; so a proxy outlives what it stands before.
"""

from collections.abc import Mapping
from typing import NamedTuple

from lepa.model.allocation import TaskState
from lepa.model.job import TaskGroup
from lepa.model.task import Task

PENDING, RUNNING, DEAD = "pending", "running", "dead"
STOPPED = "Stopped by the allocation"
LEADER_ENDED = "Leader task ended"
MAIN_ENDED = "Main tasks have ended"
SIBLING_FAILED = "Failed because of task "
"""Why tasks are killed; the last is followed by the name of the task that failed."""


class Orders(NamedTuple):
    """Names of tasks to start and to kill, and why they are killed."""

    start: frozenset[str]
    kill: frozenset[str]
    kill_reason: str = ""


def hook_of(task: Task) -> str:
    """ "prestart", "poststart", "poststop", or "main"."""
    return task.lifecycle.hook if task.lifecycle and task.lifecycle.hook else "main"


def is_sidecar(task: Task) -> bool:
    """Whether it runs beside the main tasks for as long as they do."""
    return task.lifecycle is not None and task.lifecycle.sidecar and hook_of(task) != "poststop"


def decide(group: TaskGroup, states: Mapping[str, TaskState], *, stopping: bool, destroying: bool = False) -> Orders:
    """What may start and what has to end, given the states of all tasks.

    stopping: the allocation was told to stop. destroying: it is wanted no more at all, poststop tasks included.
    """
    if over := _over(group, states, stopping=stopping or destroying):
        return _wind_down(group, states, over, destroying=destroying)
    prestart, main = _with_hook(group, "prestart"), _with_hook(group, "main")
    ready = _pending(prestart, states)
    if all(_prestart_done(task, states[task.name]) for task in prestart):
        ready |= _pending(main, states)
        if main and all(states[task.name].state != PENDING for task in main):
            ready |= _pending(_with_hook(group, "poststart"), states)
    return Orders(ready, frozenset())


def _wind_down(group: TaskGroup, states: Mapping[str, TaskState], reason: str, *, destroying: bool) -> Orders:
    """End one stage after the other: leader, main tasks, those beside them; then let poststop tasks run."""
    main, poststop = _with_hook(group, "main"), _with_hook(group, "poststop")
    beside = [task for task in group.tasks if hook_of(task) in {"prestart", "poststart"}]
    stages = [[task for task in main if task.leader], main, beside, *([poststop] if destroying else [])]
    for stage in stages:
        if kill := frozenset(task.name for task in stage if states[task.name].state != DEAD):
            return Orders(frozenset(), kill, reason)
    return Orders(_pending(poststop, states), frozenset(), reason)


def _with_hook(group: TaskGroup, hook: str) -> list[Task]:
    return [task for task in group.tasks if hook_of(task) == hook]


def _over(group: TaskGroup, states: Mapping[str, TaskState], *, stopping: bool) -> str:
    """Why the allocation's tasks should end, "" while they should not."""
    if stopping:
        return STOPPED
    for task in group.tasks:
        state = states[task.name]
        if state.state == DEAD and state.failed and hook_of(task) != "poststop":
            return SIBLING_FAILED + task.name
    main = [task for task in group.tasks if hook_of(task) == "main"]
    for task in main:
        if task.leader and states[task.name].state == DEAD:
            return LEADER_ENDED
    if main and all(states[task.name].state == DEAD for task in main):
        return MAIN_ENDED
    return ""


def _prestart_done(task: Task, state: TaskState) -> bool:
    return state.state != PENDING if is_sidecar(task) else state.state == DEAD and not state.failed


def _pending(tasks: list[Task], states: Mapping[str, TaskState]) -> frozenset[str]:
    return frozenset(task.name for task in tasks if states[task.name].state == PENDING)


def client_status(group: TaskGroup, states: Mapping[str, TaskState]) -> tuple[str, str]:
    """The allocation's client status and its description."""
    known = [states[task.name] for task in group.tasks]
    if any(state.state == DEAD and state.failed for state in known):
        return "failed", "Failed tasks"
    if known and all(state.state == DEAD for state in known):
        return "complete", "All tasks have completed"
    ending = all(states[task.name].state == DEAD for task in group.tasks if hook_of(task) == "main")
    if ending or any(state.state == RUNNING for state in known):
        return "running", "Tasks are running"
    return "pending", "No tasks have started"


def finished(group: TaskGroup, states: Mapping[str, TaskState]) -> bool:
    """Whether nothing of the allocation runs or will run again."""
    return all(states[task.name].state == DEAD for task in group.tasks)
