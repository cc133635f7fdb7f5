"""A server with a large state and its HTTP API, in a process of its own; nothing runs, and nothing is left to schedule.

    python -m benchmarks._large_state JOBS ALLOCATIONS      prints its ports when the state is there

The second port takes `PUT /burst?commits=C&events=E&pause_ms=P`, which
commits C times E new evaluations that have ended, P ms apart.
"""

import asyncio
import gc
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import uvloop
from aiohttp import web

from benchmarks.memory import _batches, _node_ids
from lepa.agent.run import GC_THRESHOLDS, SWITCH_S
from lepa.api.app import build
from lepa.api.edge import Edge, Settings
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.telemetry import Metrics
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.task import Task
from lepa.server.server import Server
from lepa.server.settings import ServerSettings
from lepa.state import keys
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Limits, Put, Txn

START_S = 120.0
COMMIT = 2_000


@contextmanager
def large_server(jobs: int, allocations: int) -> Iterator[tuple[int, int]]:
    """Port of the API of a running one, and of its bursts."""
    command = [sys.executable, "-m", "benchmarks._large_state", str(jobs), str(allocations)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            api, bursts = process.stdout.readline().split()
            yield int(api), int(bursts)
        finally:
            process.terminate()


def _jobs(count: int, each: int) -> Iterator[Put]:
    """Jobs that want as many allocations as there are; those of the memory benchmark belong to the first thousand."""
    for number in range(count):
        wanted = each if number < 1_000 else 0
        group = TaskGroup(name="web", count=wanted, tasks=(Task(name="web", driver="raw_exec"),))
        job = Job(id=f"job-{number}", name=f"job-{number}", task_groups=(group,), meta={"team": f"t{number % 50}"})
        yield keys.put(keys.job_key("default", job.id), job)
        yield keys.put(keys.job_version_key("default", job.id, 0), job)


def _nodes() -> Iterator[Put]:
    """The nodes that the allocations are on: without them all allocations would have to be replaced."""
    for node_id in _node_ids(random.Random(1)):
        yield keys.put(keys.node_key(node_id), Node(id=node_id, name=f"node-{node_id[:8]}", status="ready"))


async def _fill(store: MemoryStore, jobs: int, allocations: int) -> None:
    puts = chain(_nodes(), _jobs(jobs, allocations // 1_000))
    while part := tuple(islice(puts, COMMIT)):
        await store.commit(Txn(part))
    rows = (put for _, batch in _batches() for put in batch)
    left = allocations
    while left > 0 and (part := tuple(islice(rows, min(COMMIT, left)))):
        await store.commit(Txn(part))
        left -= len(part)


async def _serve(jobs: int, allocations: int) -> None:
    clock = SystemClock()
    store = MemoryStore(clock, Limits(operations_max=COMMIT, bytes_max=64_000_000))
    await _fill(store, jobs, allocations)

    async def burst(request: web.Request) -> web.Response:
        commits, events, pause_ms = (int(request.query[name]) for name in ("commits", "events", "pause_ms"))
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(commits):
            made = [Evaluation(id=str(uuid.uuid4()), job_id="job-0", status="complete") for _ in range(events)]
            await store.commit(Txn(tuple(keys.put(keys.eval_key(each.id), each) for each in made)))
            due += pause_ms / 1e3
            await asyncio.sleep(max(0.0, due - loop.time()))
        return web.Response(text=str(loop.time()))

    async with Server(store, ServerSettings(), clock, SystemRandom()) as server:
        await server.wait_until_leading(START_S)
        app = build(Edge(server.caller, _Nobody(), None, clock, Metrics(), Settings()))
        burst_app = web.Application()
        burst_app.router.add_put("/burst", burst)
        other = web.AppRunner(burst_app, access_log=None)
        await other.setup()
        await web.TCPSite(other, "127.0.0.1", 0).start()
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
        gc.collect()
        gc.freeze()
        print(runner.addresses[0][1], other.addresses[0][1], flush=True)
        await asyncio.Event().wait()


class _Nobody:
    """An agent of which nothing is asked."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
