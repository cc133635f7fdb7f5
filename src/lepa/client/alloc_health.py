"""Pure: is an allocation healthy for long enough to count in its deployment?

Healthy: all main tasks run (and, with health_check "checks", all checks pass) for min_healthy_time without a break.
Unhealthy: a task failed, or healthy_deadline passed first.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from lepa.client.task_lifecycle import DEAD, RUNNING, hook_of, is_sidecar
from lepa.kit.durations import SECOND
from lepa.model.allocation import TaskState
from lepa.model.job import TaskGroup


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

    def observe(self, states: Mapping[str, TaskState], checks_passing: Iterable[bool], now: float) -> bool | None:
        """Take in the present states; True or False once it is decided, None before. Never decides when manual."""
        if self._manual or self.verdict is not None:
            return self.verdict
        if any(states[t.name].failed and states[t.name].state == DEAD for t in self._group.tasks):
            self.verdict = False
            return False
        restarts = {name: state.restarts for name, state in states.items()}
        good = self._running(states) and (not self._use_checks or all(checks_passing))
        if not good:
            self._healthy_since = None
        elif self._healthy_since is None or restarts != self._restarts:
            self._healthy_since = now
        self._restarts = restarts
        if self._healthy_since is not None and now - self._healthy_since >= self._min_healthy_s:
            self.verdict = True
        elif now >= self._deadline:
            self.verdict = False
        return self.verdict

    def _running(self, states: Mapping[str, TaskState]) -> bool:
        """Main tasks and sidecars run; tasks that are meant to end have ended well or run."""
        for task in self._group.tasks:
            state = states[task.name]
            hook = hook_of(task)
            if hook == "poststop":
                continue
            if hook == "main" or is_sidecar(task):
                if state.state != RUNNING:
                    return False
            elif state.state != DEAD or state.failed:
                return hook == "poststart" and state.state == RUNNING
        return True

    def wake_at(self) -> float | None:
        """When `observe` could decide without anything happening; None when it has decided or never will."""
        if self._manual or self.verdict is not None:
            return None
        since = self._healthy_since
        return self._deadline if since is None else min(self._deadline, since + self._min_healthy_s)
