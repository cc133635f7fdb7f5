"""The machines of the simulated cluster: real servers, and nodes that do what clients do."""

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from tests.simulation.network import Disk, Network, Session
from tests.simulation.virtual_time import Process

from lepa.kit.sources import SeededRandom
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.errors import LepaError
from lepa.model.node import Node
from lepa.model.wire import from_msgpack, to_msgpack
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import STATUS, HttpCaller, HttpPeers, Refusal
from lepa.server.server import Server
from lepa.server.settings import HeartbeatSettings, ServerSettings
from lepa.store.memory import MemoryStore

TERMINAL = ("complete", "failed", "lost")
HEARTBEAT = HeartbeatSettings(min_ttl_s=2.0, grace_s=2.0, failover_ttl_s=6.0)
LEASE_S = 3.0
RETRY_S = 0.5


class SimulatedServer:
    """One server that can be killed, stopped, cut off and started again."""

    def __init__(self, name: str, store: MemoryStore, network: Network, chance: random.Random) -> None:
        self.name = name
        self.address = f"{name}:4647"
        self._store = store
        self._network = network
        self._chance = chance
        self._stack = AsyncExitStack()
        self._answering: dict[asyncio.Task[Any], None] = {}
        self.process = Process()
        self.disk = Disk(store, self.process, chance)
        self.server: Server | None = None
        self.metrics = Metrics()

    @property
    def leads(self) -> bool:
        return self.server is not None and self.server.leads

    async def start(self) -> None:
        """Start a new process."""
        self.process = Process()
        fenced, lies = self.disk.fenced, self.disk.lies
        self.disk = Disk(self._store, self.process, self._chance)
        self.disk.fenced, self.disk.lies = fenced, lies
        settings = ServerSettings(
            name=f"{self.name}.global",
            rpc_address=self.address,
            lease_ttl_s=LEASE_S,
            heartbeat=HEARTBEAT,
        )
        own = SeededRandom(self._chance.getrandbits(63))
        session = cast(Any, Session(self._network, self.name, self.process))
        server = Server(self.disk, settings, self.process, own, self.metrics, HttpPeers(session))
        while True:
            try:
                await self._stack.enter_async_context(server)
                break
            except LepaError:
                await asyncio.sleep(RETRY_S)
        self.server = server
        self._network.listen(self.address, self.name, self._serve, self.process)

    async def _serve(self, name: str, body: bytes, as_leader: bool) -> tuple[int, bytes]:
        task = asyncio.current_task()
        assert task is not None
        self._answering[task] = None
        try:
            server = self.server
            if server is None:
                raise asyncio.CancelledError
            method = m.METHODS[name]
            caller = server.caller.as_leader if as_leader else server.caller
            reply = await caller.call(method, from_msgpack(body, method.request))
            return 200, to_msgpack(reply)
        except LepaError as error:
            facts = {key: str(value) for key, value in error.facts.items()}
            return STATUS[error.code], to_msgpack(Refusal(code=error.code, message=error.message, facts=facts))
        finally:
            self._answering.pop(task, None)

    async def kill(self) -> None:
        """SIGKILL: it answers nothing and writes nothing more; its lease stays until it lapses."""
        self.disk.cut()
        self._network.hang_up(self.address)
        self.process.go_on()
        self.server = None
        for task in list(self._answering):
            task.cancel()
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def stop(self) -> None:
        """SIGTERM."""
        self._network.hang_up(self.address)
        self.server = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()


class Run(msgspec.Struct):
    """What a node has of an allocation. told: the status that servers were last told."""

    alloc: Allocation
    status: str = "pending"
    told: str = ""
    wanted: str = "run"
    healthy: bool = False
    told_healthy: bool = False


class SimulatedNode:
    """One client. Its tasks start, fail, end and stop by chance; what it runs survives its agent, not its machine."""

    def __init__(self, node: Node, servers: list[str], network: Network, chance: random.Random) -> None:
        self.id = node.id
        self.node = replace(node, secret_id=f"secret-{node.id}", status="ready")
        self._servers = servers
        self._network = network
        self._chance = chance
        self.process = Process()
        self.runs: dict[str, Run] = {}
        self.started: dict[str, int] = {}
        """How often each allocation began here; more than once is an error."""
        self.heard_at = -1e9
        """When it last sent a heartbeat that a server answered."""
        self.failing = True
        """Whether its tasks fail by chance."""
        self._tasks = Tasks(self.id)
        self._alive = False
        self._unsaid = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self._alive

    def start(self) -> None:
        """Start the agent; it finds what it runs."""
        self._alive = True
        self.process = Process()
        session = cast(Any, Session(self._network, self.id, self.process))
        own = SeededRandom(self._chance.getrandbits(63))
        servers = list(self._servers)
        self._chance.shuffle(servers)
        self._caller = HttpCaller(session, servers, self.process, own)
        self._tasks = Tasks(self.id)
        self._tasks.start("life", self._live())
        for run in self.runs.values():
            if run.status not in TERMINAL:
                self._tasks.start("task", self._go_on(run))

    async def kill_agent(self) -> None:
        """The agent ends, its tasks go on."""
        self._alive = False
        self.process.go_on()
        await self._tasks.close()

    async def destroy(self) -> None:
        """The machine is gone, with all that it ran."""
        await self.kill_agent()
        self.runs.clear()

    async def _live(self) -> None:
        await self._register()
        self._tasks.start("follow", self._follow())
        self._tasks.start("tell", self._tell())
        while True:
            try:
                request = r.NodeHeartbeatRequest(node_id=self.id, secret_id=self.node.secret_id)
                asked_at = self.process.now()
                answer = (await self._caller.call(m.NODE_HEARTBEAT, request)).value
                self.heard_at = asked_at  # a node that stood still reads the answer long after the server gave it
                if answer.servers:
                    self._caller.use(answer.servers)
                await self.process.sleep(answer.heartbeat_ttl / 1e9 / 2)
            except LepaError as error:
                if error.code == "not_found":
                    await self._register()
                await self.process.sleep(RETRY_S)

    async def _register(self) -> None:
        while True:
            try:
                await self._caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=self.node))
                return
            except LepaError:
                await self.process.sleep(RETRY_S)

    async def _follow(self) -> None:
        index = 0
        while True:
            request = r.NodeAllocationsRequest(
                node_id=self.id, secret_id=self.node.secret_id, index=index, wait_ns=10_000_000_000
            )
            try:
                reply = await self._caller.call(m.NODE_FOLLOW, request)
            except LepaError:
                index = 0
                await self.process.sleep(RETRY_S)
                continue
            index = reply.index
            for alloc in reply.value.allocations:
                self._take(alloc)
            for alloc_id in [alloc_id for alloc_id in self.runs if alloc_id not in reply.value.indexes]:
                self.runs[alloc_id].wanted = "stop"

    def _take(self, alloc: Allocation) -> None:
        run = self.runs.get(alloc.id)
        if run is not None:
            run.alloc, run.wanted = alloc, alloc.desired_status
            return
        if alloc.desired_status != "run" or alloc.client_status in TERMINAL:
            return
        run = self.runs[alloc.id] = Run(alloc)
        self.started[alloc.id] = self.started.get(alloc.id, 0) + 1
        self._tasks.start("task", self._go_on(run))

    async def _go_on(self, run: Run) -> None:
        """What a task does from here: begin, be healthy for a while, end, fail, or be stopped."""
        chance = self._chance
        if run.status == "pending":
            await self._rest(run, chance.uniform(0.05, 0.8))
            self._becomes(run, "running")
        assert run.alloc.job is not None
        lasts = chance.uniform(1.0, 15.0) if run.alloc.job.type == "batch" else float("inf")
        fails = chance.uniform(5.0, 60.0) if self.failing and chance.random() < 0.1 else float("inf")
        await self._rest(run, 1.0)
        run.healthy = True
        self._unsaid.set()
        lived = 0.0
        while lived < lasts and not (lived >= fails and self.failing) and run.wanted == "run":
            await self.process.sleep(0.5)
            lived += 0.5
        if run.wanted != "run":
            await self.process.sleep(chance.uniform(0.05, 1.0))
            self._becomes(run, "complete")
        else:
            self._becomes(run, "complete" if lived >= lasts else "failed")

    async def _rest(self, run: Run, seconds: float) -> None:
        while seconds > 0 and run.wanted == "run":
            await self.process.sleep(min(seconds, 0.25))
            seconds -= 0.25

    def _becomes(self, run: Run, status: str) -> None:
        run.status = status
        self._unsaid.set()

    async def _tell(self) -> None:
        for run in self.runs.values():
            run.told, run.told_healthy = "", False  # an agent that starts tells everything again
        self._unsaid.set()
        while True:
            await self._unsaid.wait()
            self._unsaid.clear()
            await self.process.sleep(0.2)
            changed = [run for run in self.runs.values() if run.told != run.status or run.told_healthy != run.healthy]
            updates = [(run, run.status, run.healthy) for run in changed]
            request = r.NodeAllocationUpdatesRequest(
                node_id=self.id,
                secret_id=self.node.secret_id,
                allocations=tuple(_update(run) for run in changed),
            )
            try:
                if updates:
                    await self._caller.call(m.NODE_UPDATE_ALLOCATIONS, request)
            except LepaError:
                await self.process.sleep(RETRY_S)
                self._unsaid.set()
                continue
            for run, status, healthy in updates:
                run.told, run.told_healthy = status, healthy
                if status in TERMINAL and run.wanted != "run":
                    self.runs.pop(run.alloc.id, None)


def _update(run: Run) -> Allocation:
    healthy = None
    if run.alloc.deployment_id and (run.healthy or run.status == "failed"):
        healthy = AllocDeploymentStatus(healthy=run.status == "running")
    return Allocation(id=run.alloc.id, client_status=run.status, deployment_status=healthy)
