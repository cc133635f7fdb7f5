"""How fast does a whole node start tasks, and how much memory do 500 running ones take?

A client runs in a process of its own, with servers in memory that hand it all allocations at once: it makes
directories, writes its state, asks the supervisor, and reports. `tasks.start.agent` is the rate from handing out 300
allocations of one raw_exec task (`sleep`) until all are reported running, beside a bare loop of `posix_spawn`. The
memory is the proportional set size (PSS) of supervisor and client together; the tasks' own is not counted.

Expected on two quiet cores: `tasks.start.agent` 300 tasks/s or more (measured with `script/bench --only 'tasks.start*'`
at a load below 1: 418, 0.11 of the bare loop); `memory.500_tasks_mb`
60, at most 150. Measured on two busy cores (load 5): 178 tasks/s, 0.46 of the bare loop beside it, and 61.3 MB, 9.1 of
them the supervisor's: 0.12 MB a task with all that a node takes without any, where 0.2 is allowed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from tests.builders import make_group, make_job, make_task
from tests.node import Servers, placed, running_client

from benchmarks.harness import Figure
from lepa.client import secrets_mount
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock

FIGURES = ("tasks.start.agent", "memory.500_tasks_mb")
TASKS_TIMED = 300
TASKS_HELD = 500
SLEEP = ("/bin/sleep", "600")


def run() -> list[Figure]:
    """Both figures, from one child process."""
    child = subprocess.run([sys.executable, "-m", "benchmarks.node"], check=True, capture_output=True, text=True)
    found = json.loads(child.stdout.splitlines()[-1])
    return [
        Figure("tasks.start.agent", found["rate"], "tasks/s", _bare_spawns(), "posix_spawn"),
        Figure("memory.500_tasks_mb", found["client_mb"] + found["supervisor_mb"], "MB"),
        Figure("memory.500_tasks_supervisor_mb", found["supervisor_mb"], "MB"),
    ]


def _bare_spawns() -> float:
    """Processes a second that a loop starts that does nothing else."""
    begun = time.perf_counter()
    pids = [os.posix_spawn(SLEEP[0], SLEEP, {}) for _ in range(TASKS_TIMED)]
    rate = TASKS_TIMED / (time.perf_counter() - begun)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return rate


async def _child() -> None:
    """Run the node, start the tasks, measure, and end everything."""
    servers, clock = Servers(), SystemClock()
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as folder:
        directory = Path(folder)
        async with await Supervisor.connect(str(directory / "supervisor"), clock=clock) as supervisor:
            drivers = {"raw_exec": RawExec(supervisor, clock, RawExecSettings(enabled=True))}
            try:
                async with running_client(directory, servers, drivers):
                    begun = time.perf_counter()
                    await _start(servers, 0, TASKS_TIMED)
                    rate = TASKS_TIMED / (time.perf_counter() - begun)
                    await _start(servers, TASKS_TIMED, TASKS_HELD)
                    await asyncio.sleep(2.0)
                    client_mb, supervisor_mb = _pss_mb(os.getpid()), _pss_mb(supervisor.pid)
            finally:
                await supervisor.shutdown(kill=True)
                secrets_mount.unmount_below(directory)
    print(json.dumps({"rate": rate, "client_mb": client_mb, "supervisor_mb": supervisor_mb}))


async def _start(servers: Servers, first: int, last: int) -> None:
    """Hand out allocations numbered first..last, and wait until all run."""
    task = make_task(driver="raw_exec", config={"command": SLEEP[0], "args": list(SLEEP[1:])})
    job = make_job(groups=(make_group(tasks=(task,)),))
    wanted = [placed(job, number) for number in range(first, last)]
    servers.place(*wanted)
    for alloc in wanted:
        await servers.status(alloc.id, "running")


def _pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no proportional set size of process {pid}")


if __name__ == "__main__":
    uvloop.run(_child())
