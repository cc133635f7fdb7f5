"""What Docker and Podman say of a container, in the drivers' words."""

from typing import Any

from lepa.drivers import usage
from lepa.drivers.protocol import ExitResult
from lepa.kit.durations import parse_rfc3339
from lepa.model.stats import MemoryStats


def exit_result(state: dict[str, Any]) -> ExitResult:
    """`State` of an ended container."""
    code = int(state.get("ExitCode", 0))
    signal = code - 128 if 128 < code <= 128 + 64 else 0
    return ExitResult(
        exit_code=code,
        signal=signal,
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        finished_at=moment(state.get("FinishedAt", "")),
    )


def killed(now_ns: int) -> ExitResult:
    """The end of a container that was removed while it ran."""
    return ExitResult(exit_code=137, signal=9, finished_at=now_ns)


def moment(text: str) -> int:
    """A time stamp in Unix nanoseconds; 0 for Docker's "never"."""
    return parse_rfc3339(text) if text and not text.startswith("0001") else 0


def cpu_time(raw: dict[str, Any], now_ns: int) -> usage.CpuTime:
    """CPU time used so far, from an answer of `stats`."""
    cpu = raw.get("cpu_stats", {})
    used = cpu.get("cpu_usage", {})
    kernel = int(used.get("usage_in_kernelmode", 0))
    throttling = cpu.get("throttling_data", {})
    return usage.CpuTime(
        max(0, int(used.get("total_usage", 0)) - kernel),
        kernel,
        now_ns,
        int(throttling.get("throttled_periods", 0)),
        int(throttling.get("throttled_time", 0)),
    )


def memory_use(raw: dict[str, Any]) -> MemoryStats:
    """Memory used now, from an answer of `stats`."""
    memory = raw.get("memory_stats", {})
    stat = memory.get("stats") or {}
    return MemoryStats(
        rss=int(stat.get("anon", stat.get("total_rss", 0))),
        cache=int(stat.get("file", stat.get("total_cache", 0))),
        mapped_file=int(stat.get("file_mapped", stat.get("total_mapped_file", 0))),
        usage=int(memory.get("usage", 0)),
        max_usage=int(memory.get("max_usage", 0)),
        measured=("RSS", "Cache", "Usage"),
    )
