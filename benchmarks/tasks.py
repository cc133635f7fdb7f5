"""How fast tasks start, what their supervisor weighs, and how fast it carries their output.

Expected on two quiet cores, medians: `tasks.start.raw_exec` 1,300/s, at least 0.3 of a bare posix_spawn loop (3,000/s;
a task costs a cgroup, two pipes, two journal lines and a round trip more: 0.55 ms CPU in the supervisor and 0.15 ms in
the agent, where a fork in place of posix_spawn took 2.1 ms and its child 1.7 ms more); measured with
`script/bench --only 'tasks.start*'` at a load below 1: raw_exec 0.41 and 0.42, exec 0.84, docker 0.94. A task has a
session of its own, the loop's processes have none: where others compete for the cores the kernel's autogroups let the
first process of a new session wait for its turn (5 ms in place of 0.7 at load 5), and the ratio falls to 0.24 and less.
`memory.supervisor_500_tasks_mb` 15, `logs.mb_per_s` 600, as fast as the same output when it is written to a file
directly; `logs.core_percent` 10, at most 50: the share of a core that the supervisor takes for 100 MB of output a
second.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from benchmarks.harness import Figure
from lepa.drivers.protocol import TaskConfig
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock

FIGURES = ("tasks.start.raw_exec", "memory.supervisor_500_tasks_mb", "logs.mb_per_s", "logs.core_percent")
TASKS = 500
ROUNDS = 3
STARTS_AT_ONCE = 32
LOG_BYTES = 200 * 1024 * 1024
LINE = "a line of output as programs write them, neither short nor long: 72 chars"


def run() -> list[Figure]:
    """Every figure about tasks."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="lepa-bench-"))
    try:
        starts, spawns, weights, speeds, plain_speeds, shares = [], [], [], [], [], []
        for number in range(ROUNDS):
            async with await Supervisor.connect(
                str(folder / f"supervisor-{number}"), clock=SystemClock()
            ) as supervisor:
                driver = RawExec(supervisor, SystemClock(), RawExecSettings(enabled=True))
                spawns.append(_spawn_rate())
                starts.append(await _start_rate(driver, folder))
                weights.append(_resident_mb(supervisor.pid))
                await _destroy_all(driver, supervisor)
                plain_speeds.append(_plain_speed(folder))
                before = _cpu_s(supervisor.pid)
                speeds.append(await _log_speed(driver, folder))
                shares.append((_cpu_s(supervisor.pid) - before) / (LOG_BYTES / 100e6) * 100)
                await supervisor.shutdown(kill=True)
    finally:
        shutil.rmtree(folder)
    return [
        Figure("tasks.start.raw_exec", median(starts), "tasks/s", median(spawns), "posix_spawn loop"),
        Figure("memory.supervisor_500_tasks_mb", median(weights), "MB"),
        Figure("logs.mb_per_s", median(speeds), "MB/s", median(plain_speeds), "written to a file directly"),
        Figure("logs.core_percent", median(shares), "% of a core at 100 MB/s"),
    ]


def _task(folder: Path, number: int, command: str, *args: str) -> TaskConfig:
    return TaskConfig(
        id=f"bench-{os.getpid()}-{number}",
        alloc_id="bench",
        config={"command": command, "args": list(args)},
        env={"PATH": "/usr/bin:/bin"},
        task_dir=str(folder),
        stdout_path=str(folder / f"t{number}.stdout"),
        stderr_path=str(folder / f"t{number}.stderr"),
    )


async def _start_rate(driver: RawExec, folder: Path) -> float:
    started = time.perf_counter()
    await _at_once(TASKS, lambda number: driver.start(_task(folder, number, "/bin/sleep", "600")))
    return TASKS / (time.perf_counter() - started)


def _spawn_rate() -> float:
    started = time.perf_counter()
    pids = [os.posix_spawn("/bin/sleep", ["sleep", "600"], {}) for _ in range(TASKS)]
    rate = TASKS / (time.perf_counter() - started)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return rate


async def _destroy_all(driver: RawExec, supervisor: Supervisor) -> None:
    known = [task.id for task in await supervisor.list_tasks()]
    await _at_once(len(known), lambda number: driver.destroy(known[number]))


async def _log_speed(driver: RawExec, folder: Path) -> float:
    """MB/s from a task's start until its end is told, which is after its last line is on its way to the disk."""
    task = _task(folder, TASKS, "/bin/sh", "-c", f"yes '{LINE}' 2>/dev/null | head -c {LOG_BYTES}")
    started = time.perf_counter()
    await driver.start(task)
    await driver.wait(task.id)
    speed = LOG_BYTES / 1e6 / (time.perf_counter() - started)
    await driver.destroy(task.id)
    return speed


def _plain_speed(folder: Path) -> float:
    started = time.perf_counter()
    os.system(f"yes '{LINE}' 2>/dev/null | head -c {LOG_BYTES} > {folder}/plain")
    return LOG_BYTES / 1e6 / (time.perf_counter() - started)


async def _at_once(count: int, call: Callable[[int], Awaitable[object]]) -> None:
    """`count` calls, at most STARTS_AT_ONCE of them under way."""
    gate = asyncio.Semaphore(STARTS_AT_ONCE)

    async def guarded(number: int) -> None:
        async with gate:
            await call(number)

    await asyncio.gather(*(guarded(number) for number in range(count)))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
