"""What does one server do: jobs from submission to their end, reports of nodes, and how late does its event loop get?

The server is a real one on a SQLite file, in a process set up as an agent sets up its own. The nodes are in the same
process, so all figures carry their weight too. Each figure is the median of three rounds.

`control.jobs_end_to_end`: jobs of one allocation, 64 submitters, from the first registration until every allocation is
reported complete; expected >= 300/s. Beside: commits a second of one object by a lone committer on the same kind of
store; a job needs four (job, plan, report, and an evaluation when the report asks for one).
`control.client_updates`: reports on running allocations of 100 nodes, 10 in a message; expected >= 2,000/s.
Beside: as many objects of 2 KB put into the store by as many committers, and nothing else.
`control.loop_lag_ms`: the latest turn of the event loop while one job gets 10,000 allocations on 100 nodes that report
them running; expected <= 50 ms. Beside: the same loop while two threads count.
"""

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import TypeVar

import uvloop

from benchmarks._control_nodes import ControlPlane, control_plane, make_job
from benchmarks.harness import Figure
from lepa.agent.run import GC_THRESHOLDS, SWITCH_S
from lepa.kit.sources import SystemClock
from lepa.store.protocol import Put, Txn
from lepa.store.sqlite import SqliteStore

FIGURES = ("control.jobs_end_to_end", "control.client_updates", "control.loop_lag_ms")
JOBS = 1_000
SUBMITTERS = 64
PLACEMENTS = 10_000
NODES = 100
REPORTS_A_MESSAGE = 10
OBJECT = bytes(2_000)
PROBE_S = 0.001
COUNTING_S = 3.0
ROUNDS = 3

R = TypeVar("R")


def run() -> list[Figure]:
    """Measured in a process of its own."""
    child = subprocess.run([sys.executable, "-m", "benchmarks.control_plane"], capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(child.stderr)
    besides = ("commits of a lone committer", "objects put by as many committers", "a loop and two threads that count")
    return [
        Figure(name, value, unit, beside, beside_name)
        for name, (value, unit, beside), beside_name in zip(FIGURES, json.loads(child.stdout), besides, strict=True)
    ]


async def measure() -> tuple[tuple[float, str, float], ...]:
    """Of each figure its value, its unit and what stands beside it."""
    jobs = median([await _in_folder(_jobs_end_to_end) for _ in range(ROUNDS)])
    alone = await _in_folder(lambda folder: _commits(folder, committers=1, commits=1_000, objects=1))
    placed = [await _in_folder(_many_placements) for _ in range(ROUNDS)]
    lag, updates = (median(figures) for figures in zip(*placed, strict=True))
    counting = await _lag_beside_counting()
    commits = PLACEMENTS // NODES // REPORTS_A_MESSAGE
    stored = await _in_folder(lambda folder: _commits(folder, NODES, commits, REPORTS_A_MESSAGE))
    return (jobs, "jobs/s", alone), (updates, "reports/s", stored), (lag, "ms", counting)


async def _in_folder(measured: Callable[[Path], Awaitable[R]]) -> R:
    with tempfile.TemporaryDirectory() as folder:
        return await measured(Path(folder))


async def _jobs_end_to_end(folder: Path) -> float:
    async with control_plane(folder, NODES, "complete") as plane:
        jobs = [make_job(f"job-{number}") for number in range(JOBS)]
        waiting = iter(jobs)

        async def submit() -> None:
            for job in waiting:
                await plane.register(job)

        started = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(SUBMITTERS)))
        await plane.until_reported(JOBS)
        return JOBS / (time.perf_counter() - started)


async def _many_placements(folder: Path) -> tuple[float, float]:
    """The loop's worst lag in ms while placing, then reports a second."""
    async with control_plane(folder, NODES, "running") as plane:
        job = make_job("large", PLACEMENTS)
        async with _lag_probe() as lag:
            await plane.register(job)
            await plane.until_reported(PLACEMENTS)
        started = time.perf_counter()
        await asyncio.gather(*(_report_all(plane, number) for number in range(NODES)))
        return 1e3 * max(lag), PLACEMENTS / (time.perf_counter() - started)


async def _report_all(plane: ControlPlane, number: int) -> None:
    node = plane.nodes[number]
    ids = [alloc.id for alloc in plane.server.replica.snapshot.node_allocations(node.node.id)]
    for at in range(0, len(ids), REPORTS_A_MESSAGE):
        await node.report(ids[at : at + REPORTS_A_MESSAGE], "complete")


@asynccontextmanager
async def _lag_probe() -> AsyncIterator[list[float]]:
    """How late the loop was each time, in seconds."""
    late: list[float] = []

    async def probe() -> None:
        while True:
            due = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            late.append(time.perf_counter() - due)

    task = asyncio.create_task(probe())
    try:
        yield late
    finally:
        task.cancel()


async def _lag_beside_counting() -> float:
    stop = threading.Event()

    def count() -> None:
        number = 0
        while not stop.is_set():
            number += 1

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    async with _lag_probe() as lag:
        await asyncio.sleep(COUNTING_S)
    stop.set()
    return 1e3 * max(lag)


async def _commits(folder: Path, committers: int, commits: int, objects: int) -> float:
    """Objects a second that reach the disk."""
    store = await SqliteStore.open(folder / "plain.db", SystemClock())

    async def commit(who: int) -> None:
        for at in range(commits):
            await store.commit(Txn(tuple(Put(f"allocs/{who}/{at}/{each}", OBJECT) for each in range(objects))))

    started = time.perf_counter()
    await asyncio.gather(*map(commit, range(committers)))
    seconds = time.perf_counter() - started
    await store.close()
    return committers * commits * objects / seconds


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(measure()), sys.stdout)
