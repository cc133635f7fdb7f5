"""A server and the nodes of a cluster in one process: nodes that register, follow and report, and have no tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from lepa.client.allocations import FOLLOW_S
from lepa.client.reports import GATHER_S
from lepa.client.server_link import CALL_S, RETRY_S
from lepa.kit.sources import Clock, SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation, TaskEvent, TaskState
from lepa.model.errors import LepaError
from lepa.model.job import Job, TaskGroup
from lepa.model.node import (
    DriverInfo,
    LegacyNodeCpuResources,
    Node,
    NodeDiskResources,
    NodeMemoryResources,
    NodeResources,
)
from lepa.model.resources import Resources
from lepa.model.task import Task
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import HttpCaller
from lepa.server.server import Server
from lepa.server.settings import ServerSettings
from lepa.store.sqlite import SqliteStore

WAIT_S = 120.0


def make_job(job_id: str, count: int = 1, *, cpu: int = 10, memory_mb: int = 10) -> Job:
    """A batch job of `count` small tasks of the mock driver."""
    resources = Resources(cpu=cpu, memory_mb=memory_mb)
    task = Task(name="t", driver="mock_driver", config={"run_for": "0s"}, resources=resources)
    group = TaskGroup(name="g", count=count, tasks=(task,))
    return Job(id=job_id, name=job_id, type="batch", datacenters=("dc1",), task_groups=(group,))


class ReportingNode:
    """A client that says `status` of every allocation it is given, as soon as it is given it."""

    def __init__(self, caller: m.Caller, number: int, status: str, heard: asyncio.Event) -> None:
        """heard: set after each report."""
        self._caller = caller
        self._heard = heard
        self._status = status
        self.reported = 0
        self.node = make_node(number)
        self.tasks = Tasks(self.node.id)

    async def __aenter__(self) -> "ReportingNode":
        await self._caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=self.node))
        self.tasks.start("follow", self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tasks.close()

    async def _follow(self) -> None:
        index = 0
        while True:
            request = r.NodeAllocationsRequest(node_id=self.node.id, secret_id=self.node.secret_id, index=index)
            reply = await self._caller.call(m.NODE_FOLLOW, request)
            index = reply.index
            if given := [alloc.id for alloc in reply.value.allocations if alloc.desired_status == "run"]:
                await self.report(given, self._status)

    async def report(self, alloc_ids: list[str], status: str) -> None:
        """One message about some allocations."""
        await self._caller.call(m.NODE_UPDATE_ALLOCATIONS, _update(self.node, alloc_ids, status))
        self.reported += len(alloc_ids)
        self._heard.set()


class FollowingNode:
    """A client on its own way to some servers: it lives, follows its allocations and says that they run.

    It gathers what it has to say and asks again as a client does.
    """

    def __init__(self, caller: HttpCaller, number: int, clock: Clock, heard: Callable[[int], None]) -> None:
        """heard: is told how many allocations were acknowledged as running."""
        self.node = make_node(number)
        self._caller = caller
        self._clock = clock
        self._heard = heard
        self._seen = 0
        self._news: list[str] = []
        self._has_news = asyncio.Event()

    async def begin(self, tasks: Tasks) -> None:
        """Register, and live in `tasks`."""
        reply = await self._asked(m.NODE_REGISTER, r.NodeRegisterRequest(node=self.node))
        tasks.start("beat", self._beat(reply.value.heartbeat_ttl / 1e9))
        tasks.start("follow", self._follow(reply.index))
        tasks.start("tell", self._tell())

    async def _beat(self, ttl_s: float) -> None:
        while True:
            await self._clock.sleep(ttl_s / 2)
            request = r.NodeHeartbeatRequest(node_id=self.node.id, secret_id=self.node.secret_id, status="ready")
            reply = await self._asked(m.NODE_HEARTBEAT, request)
            ttl_s = reply.value.heartbeat_ttl / 1e9

    async def _follow(self, index: int) -> None:
        seen: set[str] = set()
        known = -1
        while True:
            request = r.NodeAllocationsRequest(
                node_id=self.node.id, secret_id=self.node.secret_id, index=index, stale=True, known=known
            )
            reply = await self._asked(m.NODE_FOLLOW, request, FOLLOW_S)
            if reply.index < index:  # a server that is behind the one before
                continue
            index = self._seen = reply.index
            known = len(reply.value.indexes)
            given = [alloc.id for alloc in reply.value.allocations if alloc.id not in seen]
            seen.update(given)
            self._news += given
            self._has_news.set()

    async def _tell(self) -> None:
        while True:
            await self._has_news.wait()
            await self._clock.sleep(GATHER_S)
            self._has_news.clear()
            news, self._news = self._news, []
            if news:
                await self._asked(m.NODE_UPDATE_ALLOCATIONS, _update(self.node, news, "running", self._seen))
                self._heard(len(news))

    async def _asked(self, method: m.Method[Any, Any], request: r.Request, timeout_s: float = CALL_S) -> r.Reply[Any]:
        """The answer, asked for again as long as there is none."""
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._caller.call(method, request)
            except (TimeoutError, LepaError):
                await self._clock.sleep(RETRY_S)


def _update(node: Node, alloc_ids: list[str], status: str, seen: int = 0) -> r.NodeAllocationUpdatesRequest:
    """What a node says of its allocations, each with its task's state and what led to it."""
    events = tuple(TaskEvent(type=kind, time=1, display_message=kind) for kind in ("Received", "Started"))
    states = {"t": TaskState(state="dead" if status == "complete" else "running", events=events)}
    return r.NodeAllocationUpdatesRequest(
        node_id=node.id,
        secret_id=node.secret_id,
        seen=seen,
        allocations=tuple(Allocation(id=i, client_status=status, task_states=states) for i in alloc_ids),
    )


def make_node(number: int) -> Node:
    """A node with four cores, ready for tasks of the mock driver."""
    return Node(
        id=f"00000000-0000-0000-0000-{number:012d}",
        secret_id=f"secret-{number}",
        name=f"node-{number}",
        datacenter="dc1",
        status="ready",
        attributes={"kernel.name": "linux", "cpu.arch": "amd64"},
        drivers={"mock_driver": DriverInfo(detected=True, healthy=True)},
        node_resources=NodeResources(
            cpu=LegacyNodeCpuResources(cpu_shares=14_000, total_cpu_cores=4),
            memory=NodeMemoryResources(memory_mb=32_000),
            disk=NodeDiskResources(disk_mb=1_000_000),
        ),
    )


class ControlPlane:
    """A leading server and its nodes."""

    def __init__(self, server: Server, nodes: list[ReportingNode], heard: asyncio.Event) -> None:
        self.server = server
        self.nodes = nodes
        self.heard = heard

    async def register(self, job: Job) -> None:
        """Submit a job."""
        await self.server.caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job))

    async def until_reported(self, allocations: int) -> None:
        """Return when the nodes have reported so many allocations in all."""
        async with asyncio.timeout(WAIT_S):
            while sum(node.reported for node in self.nodes) < allocations:
                self.heard.clear()
                await self.heard.wait()


@asynccontextmanager
async def control_plane(folder: Path, nodes: int, status: str) -> AsyncIterator[ControlPlane]:
    """A new one on a SQLite file, whose nodes say `status`."""
    clock, heard = SystemClock(), asyncio.Event()
    store = await SqliteStore.open(folder / "state.db", clock)
    try:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Server(store, ServerSettings(), clock, SystemRandom()))
            await server.wait_until_leading(WAIT_S)
            started = [ReportingNode(server.caller, number, status, heard) for number in range(nodes)]
            for node in started:
                await stack.enter_async_context(node)
            yield ControlPlane(server, started, heard)
    finally:
        await store.close()
