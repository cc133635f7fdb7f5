"""Present use of the host and of allocations. Host figures come from psutil; bytes and percent."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from lepa.model.stats import (
    AllocResourceUsage,
    DiskStats,
    HostCPUStats,
    HostMemoryStats,
    HostStats,
    MemoryStats,
    ResourceUsage,
    TaskCPUStats,
    TaskResourceUsage,
)


def sum_usage(tasks: Mapping[str, TaskResourceUsage], now_ns: int) -> AllocResourceUsage:
    """An allocation's use: that of its tasks, added up."""
    usages = [task.resource_usage for task in tasks.values() if task.resource_usage is not None]
    cpus = [usage.cpu_stats for usage in usages if usage.cpu_stats is not None]
    memories = [usage.memory_stats for usage in usages if usage.memory_stats is not None]
    total = ResourceUsage(
        cpu_stats=TaskCPUStats(
            system_mode=sum(cpu.system_mode for cpu in cpus),
            user_mode=sum(cpu.user_mode for cpu in cpus),
            total_ticks=sum(cpu.total_ticks for cpu in cpus),
            percent=sum(cpu.percent for cpu in cpus),
        ),
        memory_stats=MemoryStats(
            rss=sum(memory.rss for memory in memories),
            cache=sum(memory.cache for memory in memories),
            swap=sum(memory.swap for memory in memories),
            usage=sum(memory.usage for memory in memories),
            max_usage=sum(memory.max_usage for memory in memories),
        ),
    )
    return AllocResourceUsage(resource_usage=total, tasks=dict(tasks), timestamp=now_ns)


def host_stats(alloc_root: Path, now_ns: int) -> HostStats:
    """Use of the whole host now. Blocks for a moment: call it in a thread."""
    memory = psutil.virtual_memory()
    cpus = psutil.cpu_times_percent(interval=0.05, percpu=True)
    frequency = psutil.cpu_freq()
    mhz = frequency.current if frequency else 0.0
    shown = tuple(
        HostCPUStats(
            cpu=f"cpu{number}",
            user=cpu.user,
            system=cpu.system,
            idle=cpu.idle,
            total_percent=100.0 - cpu.idle,
            total_ticks=(100.0 - cpu.idle) / 100.0 * mhz,
        )
        for number, cpu in enumerate(cpus)
    )
    return HostStats(
        memory=HostMemoryStats(total=memory.total, available=memory.available, used=memory.used, free=memory.free),
        cpu=shown,
        disk_stats=tuple(
            disk for part in psutil.disk_partitions() if (disk := _disk(part.mountpoint, part.device)) is not None
        ),
        alloc_dir_stats=_disk(str(alloc_root), ""),
        uptime=int(time.time() - psutil.boot_time()),
        timestamp=now_ns,
        cpu_ticks_consumed=sum(cpu.total_ticks for cpu in shown),
    )


def _disk(path: str, device: str) -> DiskStats | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    size, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    used = size - status.f_bfree * status.f_frsize
    inodes = 100.0 * (1 - status.f_ffree / status.f_files) if status.f_files else 0.0
    return DiskStats(
        device=device,
        mountpoint=path,
        size=size,
        used=used,
        available=free,
        used_percent=100.0 * used / size if size else 0.0,
        inodes_used_percent=inodes,
    )
