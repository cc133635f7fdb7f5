"""A server on a store, and nodes that do what clients do: register, beat, follow, report."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.server import Server
from lepa.server.settings import ServerSettings
from lepa.server.writer import Writer
from lepa.state.keys import LEADER
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Store

WAIT_S = 10.0

Report = Callable[[Allocation], str]


def runs(alloc: Allocation) -> str:
    """Every task runs for ever."""
    return "running"


def completes(alloc: Allocation) -> str:
    """Every task ends at once, and well."""
    return "complete"


def fails(alloc: Allocation) -> str:
    """Every task fails at once."""
    return "failed"


class FakeNode:
    """A client without tasks: what becomes of an allocation is what `report` says."""

    def __init__(self, caller: m.Caller, node: Node, report: Report = runs) -> None:
        self.caller = caller
        self.node = replace(node, secret_id=f"secret-{node.id}", status="ready")
        self.report = report
        self.seen: dict[str, int] = {}
        self.seen_index = 0
        self.stale = False
        self.tasks = Tasks(f"fake-{node.id}")

    async def __aenter__(self) -> "FakeNode":
        await self.caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=self.node))
        self.tasks.start("follow", self.follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tasks.close()

    async def beat(self) -> r.NodeUpdateResponse:
        request = r.NodeHeartbeatRequest(node_id=self.node.id, secret_id=self.node.secret_id)
        return (await self.caller.call(m.NODE_HEARTBEAT, request)).value

    async def follow(self) -> None:
        index = 0
        while True:
            request = r.NodeAllocationsRequest(
                node_id=self.node.id, secret_id=self.node.secret_id, index=index, stale=self.stale
            )
            try:
                reply = await self.caller.call(m.NODE_FOLLOW, request)
                self.seen_index = reply.index
                updates = [self.act(alloc) for alloc in reply.value.allocations]
                await self.say([update for update in updates if update is not None])
                index = reply.index
            except LepaError as error:
                if error.code not in ("no_leader", "timeout"):
                    raise
                index = 0
                await asyncio.sleep(0.1)

    def act(self, alloc: Allocation) -> Allocation | None:
        """What the client answers to an allocation that is new or changed."""
        assert alloc.job is not None
        self.seen[alloc.id] = alloc.alloc_modify_index
        if alloc.desired_status != "run":
            return Allocation(id=alloc.id, client_status="complete")
        healthy = AllocDeploymentStatus(healthy=True) if alloc.deployment_id else None
        status = self.report(alloc)
        return Allocation(id=alloc.id, client_status=status, deployment_status=healthy if status == "running" else None)

    async def say(self, updates: list[Allocation]) -> None:
        request = r.NodeAllocationUpdatesRequest(
            node_id=self.node.id,
            secret_id=self.node.secret_id,
            seen=self.seen_index,
            allocations=tuple(updates),
        )
        await self.caller.call(m.NODE_UPDATE_ALLOCATIONS, request)


class Cluster:
    """Questions to a server, as tests ask them. writer: changes the state as the server's own parts do."""

    def __init__(self, server: Server, store: Store) -> None:
        self.server = server
        self.caller = server.caller
        self.writer = Writer(store, server.replica, SystemClock(), SystemRandom())
        self.writer.fence = Fence(LEADER, server.term)

    async def register(self, job: Job, **fields: Any) -> r.JobRegisterResponse:
        return (await self.caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job, **fields))).value

    async def stop(self, job_id: str, *, purge: bool = False) -> r.JobRegisterResponse:
        return (await self.caller.call(m.JOB_DEREGISTER, r.JobDeregisterRequest(id=job_id, purge=purge))).value

    def allocations(self, job_id: str) -> list[Allocation]:
        return list(self.server.replica.snapshot.job_allocations("default", job_id))

    def statuses(self, job_id: str) -> list[tuple[str, str]]:
        """(desired, client) of each allocation, sorted."""
        return sorted((alloc.desired_status, alloc.client_status) for alloc in self.allocations(job_id))

    def job_status(self, job_id: str) -> str:
        job = self.server.replica.snapshot.job("default", job_id)
        return job.status if job is not None else "absent"

    async def until(self, true: Callable[[], Any], what: str) -> None:
        """Wait for a condition on the state; looks again whenever the state changes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while not true():
            left = deadline - loop.time()
            index = self.server.replica.snapshot.index
            assert left > 0, f"waited {WAIT_S} s for: {what}"
            try:
                await self.server.replica.wait_for(index + 1, min(left, 0.2))
            except Exception:
                continue


@asynccontextmanager
async def cluster(store: Store | None = None, settings: ServerSettings | None = None) -> AsyncIterator[Cluster]:
    """A server that leads."""
    clock = SystemClock()
    used = store or MemoryStore(clock)
    server = Server(used, settings or ServerSettings(), clock, SystemRandom())
    try:
        async with server:
            await server.wait_until_leading(WAIT_S)
            yield Cluster(server, used)
    finally:
        if store is None:
            await used.close()
