"""How many allocations a second do three servers place and hear of as running, with 5,000 nodes?

Three servers, each an agent with an etcd of its own, as processes on this machine. One process is all the nodes: each
registers, sends heartbeats, follows its allocations with a long poll and reports them running, with the calls that a
client makes, at a server of its choice. 1,000 jobs of 100 allocations are registered by 16 callers over HTTP.

`cluster.allocations_end_to_end`: allocations a second, from the first registration until the servers have acknowledged
that every allocation runs. Beside: as many objects of the same size put into three etcds alone, two for each allocation
(what a plan and a report write), a hundred in a transaction.
`cluster.allocations_leader_mb`: the largest resident memory of the leader's agent meanwhile.
`cluster.allocations_read_ms`: the 99th percentile of reads of a job, its summary and its allocations at all servers in
turn meanwhile. Beside: the same reads before.

Wanted are 4,000 allocations a second. On two cores, shared with other work, 5,000 nodes with 200 of the jobs
came to 668 a second (etcd alone: 9,699), with 403 MiB and 2,300 ms. What bounds it is the processors: an
allocation takes 2.1 ms of them (leader 0.72, each follower 0.32, the etcds together 0.31, the nodes themselves
0.40), so that two idle cores could do some 950. Half of the leader's share are messages over HTTP: for each
allocation 0.6 long polls and 0.14 reports, and heartbeats. The rest is each server's own copy of the state.
Reads wait behind that.
"""

import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp
import uvloop
from tests.etcd import etcd_servers

from benchmarks._agent import HOST
from benchmarks._control_nodes import FollowingNode, make_job
from benchmarks.cluster import Server, three_servers
from benchmarks.harness import Figure
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.model.wire import to_json
from lepa.rpc.channel import HttpCaller, ServerSession
from lepa.store.etcd import OWN_LIMITS, EtcdStore
from lepa.store.protocol import Put, Txn

FIGURES = ("cluster.allocations_end_to_end", "cluster.allocations_leader_mb", "cluster.allocations_read_ms")
REGISTERING = 64
"""Nodes that register at once."""
SUBMITTERS = 16
READ_EVERY_S = 0.05
READS_BEFORE = 60
LIMIT_S = 1_200.0
"""The whole run ends after this, whatever is missing."""
OBJECT = bytes(1_500)
NO_LIMITS = {"rpc_max_conns_per_client": 0}
"""All nodes have one address here."""


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    nodes: int
    jobs: int
    count: int

    @property
    def allocations(self) -> int:
        return self.jobs * self.count


FULL = Size(nodes=5_000, jobs=1_000, count=100)
SHORT = Size(nodes=200, jobs=20, count=100)


def run() -> list[Figure]:
    """The full size."""
    return measured(FULL)


def run_short() -> list[Figure]:
    """A size that takes half a minute."""
    return measured(SHORT)


def measured(size: Size) -> list[Figure]:
    """All figures of one size."""
    with three_servers(limits=NO_LIMITS) as servers, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(_load(servers, size))
    etcd = asyncio.run(_bare(size.allocations))
    return [
        Figure(FIGURES[0], found.allocations_per_s, "allocs/s", etcd, "etcd alone"),
        Figure(FIGURES[1], found.leader_mb, "MiB"),
        Figure(FIGURES[2], found.read_ms, "ms", found.read_before_ms, "before the load"),
    ]


@dataclass
class Found:
    """What one run has measured."""

    allocations_per_s: float = 0.0
    leader_mb: float = 0.0
    read_ms: float = 0.0
    read_before_ms: float = 0.0


@dataclass
class Watched:
    """What is read and looked at while the load lasts."""

    servers: list[Server]
    http: aiohttp.ClientSession
    took_ms: list[float] = field(default_factory=list)
    leader_mb: float = 0.0

    async def read(self, reads: Iterator[tuple[Server, str]]) -> None:
        """Make reads one after the other, with a pause between them."""
        for server, path in reads:
            began = time.perf_counter()
            async with self.http.get(f"http://{HOST}:{server.ports['http']}{path}") as response:
                await response.read()
                assert response.status == 200, (path, response.status)
            self.took_ms.append(1e3 * (time.perf_counter() - began))
            await asyncio.sleep(READ_EVERY_S)

    async def weigh(self, leader: Server) -> None:
        """Look at the leader's memory, for ever."""
        while True:
            self.leader_mb = max(self.leader_mb, leader.memory_mb())
            await asyncio.sleep(0.5)

    def p99_ms(self) -> float:
        """Of the reads so far, which are then forgotten."""
        took, self.took_ms = self.took_ms, []
        return quantiles(took, n=100)[98]


async def _load(servers: list[Server], size: Size) -> Found:
    clock, random = SystemClock(), SystemRandom()
    addresses = [f"{HOST}:{server.ports['rpc']}" for server in servers]
    address = next(found for one in servers if (found := one.leader()))
    leader = next(one for one in servers if str(one.ports["rpc"]) == address.rpartition(":")[2])
    reached = asyncio.Event()
    left = size.allocations

    def heard(count: int) -> None:
        nonlocal left
        left -= count
        if left <= 0:
            reached.set()

    async with (
        asyncio.timeout(LIMIT_S),
        ServerSession() as session,
        aiohttp.ClientSession() as http,
        Tasks("bench") as tasks,
    ):
        watched = Watched(servers, http)
        nodes = [
            FollowingNode(
                HttpCaller(session, addresses[at % 3 :] + addresses[: at % 3], clock, random), at, clock, heard
            )
            for at in range(size.nodes)
        ]
        await _side_by_side(REGISTERING, (node.begin(tasks) for node in nodes))
        await _register(http, servers[0], "before", 1)
        await watched.read(itertools.islice(_reads(servers, ["before"]), READS_BEFORE))
        found = Found(read_before_ms=watched.p99_ms())
        ids = [f"job-{number}" for number in range(size.jobs)]
        left = size.allocations
        tasks.start("weigh", watched.weigh(leader))
        tasks.start("read", watched.read(_reads(servers, ["before"])))
        began = time.perf_counter()
        turns = zip(ids, itertools.cycle(servers), strict=False)
        await _side_by_side(SUBMITTERS, (_register(http, server, name, size.count) for name, server in turns))
        await reached.wait()
        found.allocations_per_s = size.allocations / (time.perf_counter() - began)
        found.leader_mb, found.read_ms = watched.leader_mb, watched.p99_ms()
    return found


async def _side_by_side(at_once: int, works: Any) -> None:
    """Do all works, so many at once."""
    waiting = iter(works)

    async def one() -> None:
        for work in waiting:
            await work

    await asyncio.gather(*(one() for _ in range(at_once)))


async def _register(http: aiohttp.ClientSession, server: Server, name: str, count: int) -> None:
    body = json.dumps({"Job": json.loads(to_json(make_job(name, count, cpu=500, memory_mb=1_024)))})
    async with http.put(f"http://{HOST}:{server.ports['http']}/v1/jobs", data=body) as response:
        said = await response.read()
        assert response.status == 200, said


def _reads(servers: list[Server], names: list[str]) -> Iterator[tuple[Server, str]]:
    """What is read, for ever."""
    paths = ("/v1/job/{}", "/v1/job/{}/summary", "/v1/job/{}/allocations")
    turns = itertools.cycle(path.format(name) for name in names for path in paths)
    return zip(itertools.cycle(servers), turns, strict=False)


async def _bare(allocations: int) -> float:
    """Allocations a second whose objects three etcds alone keep."""
    flags = ("--max-txn-ops", "4096", "--max-request-bytes", str(8 << 20))
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as folder, etcd_servers(Path(folder), 3, flags) as etcds:
        endpoints = [etcd.endpoint for etcd in etcds]
        store = await EtcdStore.open(endpoints, SystemClock(), random=SystemRandom(), limits=OWN_LIMITS)
        objects = min(2 * allocations, 20_000)
        parts = range(0, objects, 100)

        async def put(start: int) -> None:
            await store.commit(Txn(tuple(Put(f"allocs/{at}", OBJECT) for at in range(start, start + 100))))

        began = time.perf_counter()
        await _side_by_side(SUBMITTERS, map(put, parts))
        took = time.perf_counter() - began
        await store.close()
    return objects / 2 / took
