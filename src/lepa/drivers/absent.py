"""Stands in for a driver that a node does not have (any more), or that could not be loaded: its tasks fail with the
reason, the rest goes on.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from lepa.drivers.protocol import (
    Capabilities,
    DriverError,
    ExecSession,
    ExitResult,
    Started,
    TaskConfig,
    TaskHandle,
)
from lepa.model.errors import not_found
from lepa.model.node import DriverInfo
from lepa.model.stats import TaskResourceUsage


class AbsentDriver:
    """A driver by name only."""

    capabilities = Capabilities(signals=False, exec=False)

    def __init__(self, name: str, reason: str = "") -> None:
        self.name = name
        self._reason = reason or f'driver "{name}" is not on this node'

    async def fingerprint(self) -> DriverInfo:
        """Not there."""
        return DriverInfo(health_description=self._reason)

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """Nobody here can tell."""
        return ()

    async def start(self, task: TaskConfig) -> Started:
        """Fails for good."""
        raise DriverError(self._reason)

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Nothing can be found."""
        self._refuse()

    async def wait(self, task_id: str) -> ExitResult:
        """Nothing runs."""
        self._refuse()

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """Nothing runs."""
        self._refuse()

    async def signal(self, task_id: str, signal: str) -> None:
        """Nothing runs."""
        self._refuse()

    async def destroy(self, task_id: str) -> None:
        """Nothing is left."""
        self._refuse()

    async def stats(self, task_id: str) -> TaskResourceUsage:
        """Nothing runs."""
        self._refuse()

    async def exec(self, task_id: str, command: Sequence[str], *, tty: bool) -> ExecSession:
        """Nothing runs."""
        self._refuse()

    async def close(self) -> None:
        """Nothing to let go of."""

    def _refuse(self) -> NoReturn:
        raise not_found(self._reason)
