"""Pure: is an allocation healthy for long enough to count in its deployment?

Healthy: all main tasks run (and, with health_check "checks", all checks pass) for min_healthy_time without a break.
Unhealthy: a task failed, or healthy_deadline passed first.
"""

from collections.abc import Mapping
from typing import Protocol

from lepa.client.task_lifecycle import DEAD, RUNNING, hook_of, is_sidecar
from lepa.kit.durations import SECOND
from lepa.model.allocation import TaskState
from lepa.model.job import TaskGroup
from lepa.model.task import Task


class Healthy(Protocol):
    """The part of an update or migrate block that health needs; durations in nanoseconds."""

    @property
    def health_check(self) -> str: ...
    @property
    def min_healthy_time(self) -> int: ...
    @property
    def healthy_deadline(self) -> int: ...


class AllocHealth:
    """Follows one allocation. Times are monotonic seconds. The verdict is given once and stays."""

    def __init__(self, group: TaskGroup, strategy: Healthy, now: float) -> None:
        self._group = group
        self._manual = strategy.health_check == "manual"
        self._use_checks = strategy.health_check == "checks"
        self._min_healthy_s = strategy.min_healthy_time / SECOND
        self._deadline = now + strategy.healthy_deadline / SECOND
        self._healthy_since: float | None = None
        self._restarts: dict[str, int] = {}
        self.verdict: bool | None = None
        self.reason = ""

    def observe(self, states: Mapping[str, TaskState], checks_passing: bool, now: float) -> bool | None:
        """Take in the present states; True or False once it is decided, None before. Never decides when manual."""
        if self._manual or self.verdict is not None:
            return self.verdict
        if any(states[t.name].failed and states[t.name].state == DEAD for t in self._group.tasks):
            return self._decide(False, "Unhealthy because of failed task")
        restarts = {name: state.restarts for name, state in states.items()}
        runs = self._running(states)
        if not runs or (self._use_checks and not checks_passing):
            self._healthy_since = None
        elif self._healthy_since is None or restarts != self._restarts:
            self._healthy_since = now
        self._restarts = restarts
        if self._healthy_since is not None and now - self._healthy_since >= self._min_healthy_s:
            return self._decide(True, "")
        if now >= self._deadline:
            what = "all checks passing" if runs else "all tasks running"
            return self._decide(False, f"Task not healthy by the healthy_deadline: {what} was not reached in time")
        return None

    def _decide(self, verdict: bool, reason: str) -> bool:
        self.verdict, self.reason = verdict, reason
        return verdict

    def _running(self, states: Mapping[str, TaskState]) -> bool:
        """Main tasks and sidecars run; tasks that are meant to end have ended well, or run after the main tasks."""
        return all(_as_wanted(task, states[task.name]) for task in self._group.tasks)

    def wake_at(self) -> float | None:
        """When `observe` could decide without anything happening; None when it has decided or never will."""
        if self._manual or self.verdict is not None:
            return None
        since = self._healthy_since
        return self._deadline if since is None else min(self._deadline, since + self._min_healthy_s)


def _as_wanted(task: Task, state: TaskState) -> bool:
    hook = hook_of(task)
    if hook == "main" or is_sidecar(task):
        return state.state == RUNNING
    done = state.state == DEAD and not state.failed
    return done or hook == "poststop" or (hook == "poststart" and state.state == RUNNING)
