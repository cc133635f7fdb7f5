"""Pure: restart, wait, or give up, after a task has ended.

Nomad's policy: up to `attempts` restarts within an `interval`; after that, mode "fail" gives up and mode "delay" waits
for the next interval. A wait is the policy's delay plus up to a quarter of it, so that tasks that failed together do
not return together. A task whose work can be done (of a batch job, or before or after the main tasks) ends when it
succeeds; one that should run for ever is restarted whatever its exit code.
"""

from typing import Literal, NamedTuple

from lepa.drivers.protocol import ExitResult
from lepa.kit.durations import SECOND, format_duration
from lepa.model.policies import RestartPolicy

JITTER = 0.25

EXCEEDED = 'Exceeded allowed attempts %d in interval %s and mode is "%s"'
NOT_ALLOWED = "Policy allows no restarts"
WITHIN = "Restart within policy"
UNRECOVERABLE = "Error was unrecoverable"
DELAYED = "Exceeded allowed attempts, applying a delay"
ASKED = "User requested restart"


class Verdict(NamedTuple):
    """What to do now. delay_s: before the restart. reason: for the task's events. failed: the task counts as failed."""

    action: Literal["restart", "stop", "kill"]
    delay_s: float = 0.0
    reason: str = ""
    failed: bool = False


class RestartTracker:
    """Restarts of one task. `now` is monotonic seconds; `chance` is a number in 0..1 that sets the jitter."""

    def __init__(self, policy: RestartPolicy | None, *, for_ever: bool, now: float) -> None:
        self._policy = policy or RestartPolicy(attempts=0)
        self._for_ever = for_ever
        self._count = 0
        self._interval_started = now

    def exited(self, result: ExitResult, now: float, chance: float) -> Verdict:
        """The task ended by itself."""
        if result.successful and not self._for_ever:
            return Verdict("stop")
        return self._again(now, chance)

    def start_failed(self, recoverable: bool, now: float, chance: float) -> Verdict:
        """The driver, or something before it, could not start the task."""
        if not recoverable:
            return Verdict("kill", reason=UNRECOVERABLE, failed=True)
        return self._again(now, chance)

    def killed_for_restart(self) -> Verdict:
        """Somebody asked for a restart, or a template or check did: it does not count."""
        return Verdict("restart", reason=ASKED)

    def _again(self, now: float, chance: float) -> Verdict:
        policy, delay_s = self._policy, self._policy.delay / SECOND
        if policy.attempts == 0:
            return Verdict("kill", reason=NOT_ALLOWED, failed=True)
        interval_s = policy.interval / SECOND
        if now - self._interval_started > interval_s:
            self._count, self._interval_started = 0, now
        self._count += 1
        if self._count <= policy.attempts:
            return Verdict("restart", delay_s * (1 + JITTER * chance), WITHIN)
        if policy.mode != "delay":
            reason = EXCEEDED % (policy.attempts, format_duration(policy.interval), policy.mode)
            return Verdict("kill", reason=reason, failed=True)
        remaining_s = max(0.0, self._interval_started + interval_s - now)
        self._count, self._interval_started = 0, now + remaining_s
        return Verdict("restart", remaining_s + delay_s * JITTER * chance, DELAYED)
