"""Pure: how much memory a task may have, for drivers that tell the kernel."""

from typing import NamedTuple

from lepa.drivers.protocol import TaskConfig

NO_LIMIT = -1
"""As `memory_max`: the task may have what the node has."""


class MemoryLimits(NamedTuple):
    """In MiB. hard_mb: where the kernel ends the task, 0 for nowhere. reserved_mb: what it leaves to the task when
    memory is short, 0 where that is the same as the limit."""

    hard_mb: int
    reserved_mb: int


def memory_limits(task: TaskConfig, driver_hard_mb: int = 0) -> MemoryLimits:
    """The limits of a task: `memory`, or a larger `memory_max` above it. driver_hard_mb: a maximum in the task's
    configuration, of drivers that know one."""
    memory = task.resources.memory
    reserved = memory.memory_mb or task.memory_mb
    if memory.memory_max_mb == NO_LIMIT:
        return MemoryLimits(0, reserved)
    hard = max(reserved, memory.memory_max_mb, driver_hard_mb)
    return MemoryLimits(hard, reserved if hard > reserved else 0)
