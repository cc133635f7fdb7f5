"""Do three servers schedule more than one?

200 nodes are registered, and 400 batch jobs of 20 allocations each while the evaluation broker is paused; then it goes
on, and the clock runs until every evaluation has ended. All agents are processes on this machine, with their default
number of workers.

`cluster.schedule_per_s`: allocations a second that three servers place, each with an etcd. Beside: one server with
SQLite.
`cluster.schedule_cpu_ms`: CPU time an allocation takes of all those processes together, etcds included. Beside: of the
one server.

Wanted are 1.5 times as many; on two cores, beside other work, three servers came to 1,690-1,990 a second and one to
2,230-2,515 (a ratio of 0.75; `script/bench --only 'cluster.schedule*'` later gave 0.72). One server takes 0.36 ms of a
processor for an allocation and keeps 0.9 of one busy; three take 0.68-0.79 ms, since each follows the whole state and
three etcds write what SQLite writes once, and keep 1.3 of the two busy. What followers schedule for the leader pays
only where they have processors of their own.
"""

import asyncio
import json
from dataclasses import dataclass

import aiohttp
import psutil

from benchmarks._agent import HOST
from benchmarks._control_nodes import make_job, make_node
from benchmarks.cluster import Server, some_servers
from benchmarks.harness import Figure
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.wire import to_json
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import HttpCaller, ServerSession

FIGURES = ("cluster.schedule_per_s", "cluster.schedule_cpu_ms")
NODES, JOBS, COUNT = 200, 400, 20
SUBMITTERS = 16
LIMIT_S = 180.0
SETTINGS = {"limits": {"rpc_max_conns_per_client": 0, "http_max_conns_per_client": 0}}
UNWATCHED = {"min_heartbeat_ttl": "10m"}
"""Nobody has to say that the nodes live."""


def run() -> list[Figure]:
    """Both, one after the other."""
    one, three = (_measured(servers) for servers in (1, 3))
    return [
        Figure(FIGURES[0], three.per_s, "allocs/s", one.per_s, "one server"),
        Figure(FIGURES[1], three.cpu_ms, "ms", one.cpu_ms, "one server"),
    ]


@dataclass(frozen=True)
class Found:
    """Of one number of servers: allocations placed a second, CPU time of each in ms."""

    per_s: float
    cpu_ms: float


def _measured(count: int) -> Found:
    with some_servers(count, UNWATCHED, **SETTINGS) as servers:
        return asyncio.run(_drained(servers))


async def _drained(servers: list[Server]) -> Found:
    """Fill the broker while it is paused, then see how long it takes to empty."""
    clock, random = SystemClock(), SystemRandom()
    addresses = [f"{HOST}:{server.ports['rpc']}" for server in servers]
    base = f"http://{HOST}:{servers[0].ports['http']}/v1"
    async with asyncio.timeout(LIMIT_S), ServerSession() as session, aiohttp.ClientSession() as http:
        caller = HttpCaller(session, addresses, clock, random)
        for number in range(NODES):
            await caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=make_node(number)))
        await _pause(http, base, paused=True)
        waiting = iter(range(JOBS))

        async def submit() -> None:
            for number in waiting:
                job = json.loads(to_json(make_job(f"job-{number}", COUNT, cpu=100, memory_mb=100)))
                await _put(http, f"{base}/jobs", {"Job": job})

        await asyncio.gather(*(submit() for _ in range(SUBMITTERS)))
        spent, began = _cpu_s(servers), clock.now()
        await _pause(http, base, paused=False)
        while await _pending(http, base):  # noqa: ASYNC110 - the state is another process's
            await asyncio.sleep(0.05)
        took, spent = clock.now() - began, _cpu_s(servers) - spent
        placed = await _read(http, f"{base}/allocations")
        assert len(placed) == JOBS * COUNT, len(placed)
    return Found(len(placed) / took, 1e3 * spent / len(placed))


async def _pause(http: aiohttp.ClientSession, base: str, *, paused: bool) -> None:
    found = await _read(http, f"{base}/operator/scheduler/configuration")
    await _put(http, f"{base}/operator/scheduler/configuration", found["SchedulerConfig"] | {"PauseEvalBroker": paused})


async def _pending(http: aiohttp.ClientSession, base: str) -> bool:
    return bool(await _read(http, f"{base}/evaluations?per_page=1&filter=Status+%3D%3D+%22pending%22"))


async def _put(http: aiohttp.ClientSession, url: str, body: object) -> None:
    async with http.put(url, json=body) as response:
        assert response.status == 200, await response.text()


async def _read(http: aiohttp.ClientSession, url: str) -> object:
    async with http.get(url) as response:
        assert response.status == 200, await response.text()
        return await response.json()


def _cpu_s(servers: list[Server]) -> float:
    """CPU time of the agents and of what they have started, until now."""
    agents = [psutil.Process(server.process.pid) for server in servers if server.process is not None]
    processes = [found for agent in agents for found in (agent, *agent.children(recursive=True))]
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))
