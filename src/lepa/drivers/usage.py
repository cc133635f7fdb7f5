"""Measured use of CPU and memory: from cgroup files where a task has its own, else from /proc of its processes."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lepa.drivers.supervisor import cgroups
from lepa.model.stats import MemoryStats, ResourceUsage, TaskCPUStats, TaskResourceUsage

CPU_MEASURED = ("System Mode", "User Mode", "Percent")
MEMORY_MEASURED = ("RSS", "Cache", "Swap", "Usage")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CpuTime(NamedTuple):
    """CPU time used so far in nanoseconds, when that was in nanoseconds, and time spent throttled."""

    user: int = 0
    system: int = 0
    at: int = 0
    throttled_periods: int = 0
    throttled: int = 0


def task_usage(cpu: CpuTime, before: CpuTime | None, memory: MemoryStats, core_mhz: float) -> TaskResourceUsage:
    """Use of a task between two looks at it; without an earlier one the percentages are 0."""
    passed = cpu.at - before.at if before is not None else 0
    user = 100 * (cpu.user - before.user) / passed if before is not None and passed > 0 else 0.0
    system = 100 * (cpu.system - before.system) / passed if before is not None and passed > 0 else 0.0
    stats = TaskCPUStats(
        user_mode=user,
        system_mode=system,
        percent=user + system,
        total_ticks=(user + system) / 100 * core_mhz,
        throttled_periods=cpu.throttled_periods,
        throttled_time=cpu.throttled,
        measured=CPU_MEASURED,
    )
    return TaskResourceUsage(resource_usage=ResourceUsage(memory_stats=memory, cpu_stats=stats), timestamp=cpu.at)


def cpu_time(directories: Sequence[str], pid: int, now_ns: int) -> CpuTime:
    """CPU time used by the cgroups of a task, or by its processes."""
    for directory in directories:
        stat = _key_values(os.path.join(directory, "cpu.stat"))
        if "usage_usec" in stat:
            return CpuTime(
                stat.get("user_usec", 0) * 1000,
                stat.get("system_usec", 0) * 1000,
                now_ns,
                stat.get("nr_throttled", 0),
                stat.get("throttled_usec", 0) * 1000,
            )
        usage = _key_values(os.path.join(directory, "cpuacct.stat"))
        if usage:
            return CpuTime(usage.get("user", 0) * _TICK_NS, usage.get("system", 0) * _TICK_NS, now_ns)
    stats = [fields for each in _members(directories, pid) if (fields := _stat(each))]
    user = sum(int(fields[11]) + int(fields[13]) for fields in stats)
    system = sum(int(fields[12]) + int(fields[14]) for fields in stats)
    return CpuTime(user * _TICK_NS, system * _TICK_NS, now_ns)


def memory_use(directories: Sequence[str], pid: int) -> MemoryStats:
    """Memory used by the cgroups of a task, or by its processes."""
    for directory in directories:
        stat = _key_values(os.path.join(directory, "memory.stat"))
        usage = _number(os.path.join(directory, "memory.current"))
        if usage is None:
            usage = _number(os.path.join(directory, "memory.usage_in_bytes"))
        if stat and usage is not None:
            return MemoryStats(
                rss=stat.get("anon", stat.get("total_rss", 0)),
                cache=stat.get("file", stat.get("total_cache", 0)),
                swap=_number(os.path.join(directory, "memory.swap.current")) or stat.get("total_swap", 0),
                mapped_file=stat.get("file_mapped", stat.get("total_mapped_file", 0)),
                usage=usage,
                max_usage=_number(os.path.join(directory, "memory.max_usage_in_bytes")) or 0,
                kernel_usage=stat.get("kernel", 0),
                measured=MEMORY_MEASURED,
            )
    rss = sum(_resident(each) for each in _members(directories, pid))
    return MemoryStats(rss=rss, usage=rss, measured=("RSS", "Usage"))


def core_mhz() -> float:
    """The clock of one core, for use in MHz; 1000 where the kernel does not say."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("cpu MHz"):
                    return float(line.split(":")[1])
    except (OSError, ValueError):
        pass
    return 1000.0


def _members(directories: Iterable[str], pid: int) -> list[int]:
    return [each for directory in directories for each in cgroups.pids(directory)] or [pid]


def _key_values(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        with open(path) as file:
            for line in file:
                name, _, value = line.partition(" ")
                found[name] = int(value)
    except (OSError, ValueError):
        return {}
    return found


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
