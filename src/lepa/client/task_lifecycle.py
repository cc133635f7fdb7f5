"""Pure: which tasks of an allocation may run now, and when the allocation is over.

    prestart tasks            first; main tasks wait until those without `sidecar` have ended and the others run
    main tasks                together; a `leader` that ends takes the others with it
    poststart tasks           once all main tasks run
    poststop tasks            once all main tasks are dead

A failed task that will not be restarted ends the allocation's other tasks, except poststop ones.
"""

from collections.abc import Mapping
from typing import NamedTuple

from lepa.model.allocation import TaskState
from lepa.model.job import TaskGroup
from lepa.model.task import Task

PENDING, RUNNING, DEAD = "pending", "running", "dead"


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


def decide(group: TaskGroup, states: Mapping[str, TaskState], *, stopping: bool) -> Orders:
    """What may start and what has to end, given the states of all tasks. stopping: the allocation was told to stop."""
    by_hook: dict[str, list[Task]] = {"prestart": [], "main": [], "poststart": [], "poststop": []}
    for task in group.tasks:
        by_hook[hook_of(task)].append(task)
    main = by_hook["main"]
    if over := _over(group, states, stopping=stopping):
        ending = [*by_hook["prestart"], *main, *by_hook["poststart"]]
        kill = _named(ending, states, PENDING, RUNNING)
        start = frozenset[str]() if kill else _startable(by_hook["poststop"], states)
        return Orders(start, kill, over)
    ready = set(_startable(by_hook["prestart"], states))
    if all(_prestart_done(task, states[task.name]) for task in by_hook["prestart"]):
        ready |= _startable(main, states)
        if main and all(states[task.name].state != PENDING for task in main):
            ready |= _startable(by_hook["poststart"], states)
    return Orders(frozenset(ready), frozenset())


def _over(group: TaskGroup, states: Mapping[str, TaskState], *, stopping: bool) -> str:
    """Why the allocation's tasks should end, "" while they should not."""
    if stopping:
        return "Stopped by the allocation"
    for task in group.tasks:
        state = states[task.name]
        if state.state == DEAD and state.failed and hook_of(task) != "poststop":
            return f'Failed because of task "{task.name}"'
    main = [task for task in group.tasks if hook_of(task) == "main"]
    for task in main:
        if task.leader and states[task.name].state == DEAD:
            return f'Leader task "{task.name}" ended'
    if main and all(states[task.name].state == DEAD for task in main):
        return "Main tasks have ended"
    return ""


def _prestart_done(task: Task, state: TaskState) -> bool:
    return state.state != PENDING if is_sidecar(task) else state.state == DEAD and not state.failed


def _startable(tasks: list[Task], states: Mapping[str, TaskState]) -> frozenset[str]:
    return frozenset(task.name for task in tasks if states[task.name].state == PENDING)


def _named(tasks: list[Task], states: Mapping[str, TaskState], *wanted: str) -> frozenset[str]:
    return frozenset(task.name for task in tasks if states[task.name].state in wanted)


def client_status(group: TaskGroup, states: Mapping[str, TaskState]) -> tuple[str, str]:
    """The allocation's client status and its description."""
    known = [states.get(task.name, TaskState()) for task in group.tasks]
    if any(state.state == DEAD and state.failed for state in known):
        return "failed", "Failed tasks"
    if known and all(state.state == DEAD for state in known):
        return "complete", "All tasks have completed"
    if any(state.state == RUNNING for state in known):
        return "running", "Tasks are running"
    if any(state.state == DEAD for state in known) and any(state.state == PENDING for state in known):
        return "pending", "No tasks have started" if all(s.state == PENDING for s in known) else "Tasks are starting"
    return "pending", "No tasks have started"


def finished(group: TaskGroup, states: Mapping[str, TaskState]) -> bool:
    """Whether nothing of the allocation runs or will run again."""
    return all(states[task.name].state == DEAD for task in group.tasks)
