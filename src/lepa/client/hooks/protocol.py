"""Pure: what a hook may do around a task.

    prestart   before each start; adds to the environment; a failure counts as a failed start
    recovered  instead of prestart and start, for a task that an earlier agent started; it must not wait for anything
    poststart  after the driver has started the task, or has taken it up again
    stopping   before the task is killed
    exited     after it has ended, whatever the reason
    close      the agent stops while the task goes on, or the task's life is over

Hooks run in the order of the runner's list, and `stopping` and `exited` in the opposite order.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from lepa.client.task_env import Place
from lepa.drivers.protocol import TaskNetwork
from lepa.model.errors import LepaError


class TaskControl(Protocol):
    """What a hook may do to its task."""

    def note(self, kind: str, message: str) -> None:
        """Add an event of type `kind`."""

    def restart(self, reason: str) -> None:
        """End the task and start it again. Raises LepaError when it does not run."""

    def kill(self, reason: str, *, failed: bool = False) -> None:
        """End the task for good."""

    async def signal(self, name: str, reason: str) -> None:
        """Send a signal by name. Raises LepaError."""

    async def run_command(self, command: Sequence[str]) -> tuple[int, bytes]:
        """Run a command inside the task: exit code and the beginning of its output. Raises LepaError."""


class Setup(NamedTuple):
    """What hooks see. env: the variables so far, with what earlier hooks added."""

    place: Place
    env: Mapping[str, str]
    task: TaskControl


class HookError(LepaError):
    """A hook failed. recoverable: the restart policy may try again. event: the type of the task event to record."""

    def __init__(self, message: str, *, recoverable: bool = True, event: str = "Task hook failed") -> None:
        super().__init__("internal", message)
        self.recoverable = recoverable
        self.event = event


class TaskHook(Protocol):
    """One thing that happens around a task."""

    name: str

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Prepare; returns variables to add. Raises HookError. May be cancelled, when the task is killed first."""

    async def recovered(self, setup: Setup) -> Mapping[str, str]:
        """Take up what an earlier agent prepared; returns the variables that it had added, as far as known."""

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """The task runs."""

    async def stopping(self) -> None:
        """The task is about to be killed."""

    async def exited(self) -> None:
        """The task has ended."""

    async def close(self) -> None:
        """Let go of everything, on disk nothing."""


class QuietHook:
    """A hook that does nothing, to be overridden in part."""

    name = "quiet"

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        return {}

    async def recovered(self, setup: Setup) -> Mapping[str, str]:
        return {}

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        return None

    async def stopping(self) -> None:
        return None

    async def exited(self) -> None:
        return None

    async def close(self) -> None:
        return None
