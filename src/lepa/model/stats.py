"""Pure: measured use of tasks and hosts."""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from lepa.kit.durations import ZERO_TIME
from lepa.model.wire import Wire

Figure = tuple[str, float, Mapping[str, str]]
"""A gauge: its name, its value, its labels."""


class TaskCPUStats(Wire, frozen=True):
    """CPU use of a task; total_ticks is MHz."""

    system_mode: float = 0.0
    user_mode: float = 0.0
    total_ticks: float = 0.0
    throttled_periods: int = 0
    throttled_time: int = 0
    percent: float = 0.0
    measured: tuple[str, ...] = ()


class MemoryStats(Wire, frozen=True):
    """Memory use in bytes."""

    rss: int = field(default=0, name="RSS")
    cache: int = 0
    swap: int = 0
    mapped_file: int = 0
    usage: int = 0
    max_usage: int = 0
    kernel_usage: int = 0
    kernel_max_usage: int = 0
    measured: tuple[str, ...] = ()


class ResourceUsage(Wire, frozen=True):
    """Use of CPU and memory."""

    memory_stats: MemoryStats | None = None
    cpu_stats: TaskCPUStats | None = field(default=None, name="CpuStats")
    device_stats: tuple[dict[str, Any], ...] = ()


class TaskResourceUsage(Wire, frozen=True):
    """Use of one task; timestamp is Unix nanoseconds."""

    resource_usage: ResourceUsage | None = None
    timestamp: int = 0
    pids: dict[str, ResourceUsage] = {}


class AllocResourceUsage(Wire, frozen=True):
    """Use of all tasks of an allocation."""

    resource_usage: ResourceUsage | None = None
    tasks: dict[str, TaskResourceUsage] = {}
    timestamp: int = 0


class HostCPUStats(Wire, frozen=True):
    """Use of one processor of the host in percent."""

    cpu: str = ""
    user: float = 0.0
    system: float = 0.0
    idle: float = 0.0
    total_percent: float = 0.0
    total_ticks: float = 0.0


class DiskStats(Wire, frozen=True):
    """Use of one file system in bytes."""

    device: str = ""
    mountpoint: str = ""
    size: int = 0
    used: int = 0
    available: int = 0
    used_percent: float = 0.0
    inodes_used_percent: float = 0.0


class HostMemoryStats(Wire, frozen=True):
    """Memory of the host in bytes."""

    total: int = 0
    available: int = 0
    used: int = 0
    free: int = 0


class HostStats(Wire, frozen=True):
    """Use of the host."""

    memory: HostMemoryStats | None = None
    cpu: tuple[HostCPUStats, ...] = ()
    disk_stats: tuple[DiskStats, ...] = ()
    alloc_dir_stats: DiskStats | None = None
    device_stats: tuple[dict[str, Any], ...] = ()
    uptime: int = 0
    timestamp: int = 0
    cpu_ticks_consumed: float = 0.0


class AllocFileInfo(Wire, frozen=True):
    """A file or directory of an allocation."""

    name: str = ""
    is_dir: bool = False
    size: int = 0
    file_mode: str = ""
    mod_time: str = ZERO_TIME
    content_type: str = ""
