"""A driver of containers in a test, and all that must be removed after it."""

import contextlib
from typing import Any, Generic, Self, TypeVar

from lepa.drivers.container_driver import ContainerDriver
from lepa.drivers.protocol import TaskConfig
from lepa.model.errors import LepaError

D = TypeVar("D", bound=ContainerDriver)


class DriverHost(Generic[D]):
    """An async context manager: at its end no task is left. A test that makes another driver of the same tasks puts it
    into `driver`."""

    def __init__(self, driver: D) -> None:
        self.driver = driver
        self.started: list[str] = []

    async def start(self, task: TaskConfig) -> Any:
        started = await self.driver.start(task)
        self.started.append(task.id)
        return started

    async def run(self, task: TaskConfig) -> Any:
        """Start a task; how it ended."""
        await self.start(task)
        return await self.driver.wait(task.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task_id in self.started:
            with contextlib.suppress(LepaError):
                await self.driver.destroy(task_id)
        await self.driver.close()
