"""Pure: what a hook may do around a task.

    prestart   before each start; adds to the environment; a failure counts as a failed start
    poststart  after the driver has started the task
    stopping   before the task is killed
    exited     after it has ended, whatever the reason

Hooks run in the order of the runner's list, and `stopping` and `exited` in the opposite order.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from lepa.client.task_env import Place
from lepa.drivers.protocol import TaskNetwork
from lepa.model.errors import LepaError


class Setup(NamedTuple):
    """What hooks see. env: the variables so far, with what earlier hooks added. tell: adds an event to the task."""

    place: Place
    env: Mapping[str, str]
    tell: Callable[[str, str], None]


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
        """Prepare; returns variables to add. Raises HookError."""

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """The task runs."""

    async def stopping(self) -> None:
        """The task is about to be killed."""

    async def exited(self) -> None:
        """The task has ended."""


class QuietHook:
    """A hook that does nothing, to be overridden in part."""

    name = "quiet"

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        return {}

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        return None

    async def stopping(self) -> None:
        return None

    async def exited(self) -> None:
        return None
