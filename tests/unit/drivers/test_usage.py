from pathlib import Path

from lepa.drivers.usage import CpuTime, core_mhz, cpu_time, memory_use, task_usage
from lepa.model.stats import MemoryStats


def test_use_between_two_looks_becomes_percent_and_mhz() -> None:
    before = CpuTime(user=0, system=0, at=1_000_000_000)
    now = CpuTime(user=500_000_000, system=250_000_000, at=2_000_000_000, throttled_periods=3, throttled=4)
    usage = task_usage(now, before, MemoryStats(rss=5), core_mhz=2000)
    assert usage.timestamp == now.at
    assert usage.resource_usage is not None
    cpu = usage.resource_usage.cpu_stats
    assert cpu is not None
    assert (cpu.user_mode, cpu.system_mode, cpu.percent, cpu.total_ticks) == (50.0, 25.0, 75.0, 1500.0)
    assert (cpu.throttled_periods, cpu.throttled_time) == (3, 4)


def test_a_first_look_has_no_percentage_yet() -> None:
    usage = task_usage(CpuTime(user=5, at=9), None, MemoryStats(), core_mhz=1000)
    assert usage.resource_usage is not None
    assert usage.resource_usage.cpu_stats is not None
    assert usage.resource_usage.cpu_stats.percent == 0


def test_v2_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text(
        "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_throttled 1\nthrottled_usec 2\n"
    )
    (tmp_path / "memory.current").write_text("4096\n")
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 2000\nkernel 300\nfile_mapped 40\n")
    assert cpu_time([str(tmp_path)], 0, 7) == CpuTime(20_000, 10_000, 7, 1, 2000)
    memory = memory_use([str(tmp_path)], 0)
    assert (memory.rss, memory.cache, memory.usage) == (1000, 2000, 4096)
    assert (memory.kernel_usage, memory.mapped_file) == (300, 40)


def test_v1_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpuacct.stat").write_text("user 3\nsystem 2\n")
    (tmp_path / "memory.usage_in_bytes").write_text("8192\n")
    (tmp_path / "memory.max_usage_in_bytes").write_text("9000\n")
    (tmp_path / "memory.stat").write_text("total_rss 100\ntotal_cache 200\ntotal_swap 5\n")
    cpu = cpu_time([str(tmp_path)], 0, 7)
    assert cpu.user == 3 * cpu.system // 2 > 0
    memory = memory_use([str(tmp_path)], 0)
    assert (memory.rss, memory.cache, memory.swap, memory.usage, memory.max_usage) == (100, 200, 5, 8192, 9000)


def test_a_process_that_is_gone_uses_nothing() -> None:
    assert cpu_time([], 2**22 + 1, 7) == CpuTime(0, 0, 7)
    assert memory_use([], 2**22 + 1).rss == 0
    assert core_mhz() > 0
