"""Use of the host and of allocations."""

from pathlib import Path

from lepa.client import node_stats
from lepa.model.stats import MemoryStats, ResourceUsage, TaskCPUStats, TaskResourceUsage


def test_an_allocations_use_is_that_of_its_tasks() -> None:
    usage = ResourceUsage(
        memory_stats=MemoryStats(rss=10, usage=12), cpu_stats=TaskCPUStats(percent=1.5, total_ticks=30.0)
    )
    tasks = {
        "a": TaskResourceUsage(resource_usage=usage),
        "b": TaskResourceUsage(resource_usage=usage),
        "c": TaskResourceUsage(),
    }
    total = node_stats.sum_usage(tasks, 5)
    assert total.resource_usage is not None
    assert total.resource_usage.memory_stats == MemoryStats(rss=20, usage=24)
    assert total.resource_usage.cpu_stats == TaskCPUStats(percent=3.0, total_ticks=60.0)
    assert (total.timestamp, set(total.tasks)) == (5, {"a", "b", "c"})


def test_the_host_is_measured(tmp_path: Path) -> None:
    stats = node_stats.host_stats(tmp_path, 5)
    assert stats.memory is not None
    assert stats.memory.total > stats.memory.used > 0
    assert stats.cpu
    assert stats.alloc_dir_stats is not None
    assert stats.alloc_dir_stats.size > 0
    assert node_stats.host_stats(tmp_path / "none", 5).alloc_dir_stats is None
