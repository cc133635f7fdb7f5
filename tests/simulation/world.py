"""A cluster from a seed: three servers, five nodes, people who want things, and faults, on virtual time.

`simulate(seed)` runs it and tells what was wrong. Everything is decided by the seed: who calls what, how long each
packet and each commit takes, what fails when. The hash of all that was written, with its time, is the same whenever
the seed is.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

from tests.builders import make_group, make_job, make_node, make_task
from tests.simulation import invariants
from tests.simulation.machines import HEARTBEAT, TERMINAL, SimulatedNode, SimulatedServer
from tests.simulation.network import Network, Session
from tests.simulation.virtual_time import Process, VirtualLoop

from lepa.kit.durations import SECOND
from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.kv import KvOperation
from lepa.model.node import DrainSpec, Node
from lepa.model.policies import ParameterizedJobConfig, ReschedulePolicy, RestartPolicy, UpdateStrategy
from lepa.model.resources import NetworkResource, Port
from lepa.rpc import kv_requests as k
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import HttpCaller
from lepa.state.reducer import reduce
from lepa.state.snapshot import Snapshot, empty_snapshot
from lepa.store.memory import MemoryStore

SERVERS = ("s1", "s2", "s3")
NODES = 5
CALLERS = 3
JOBS = 8
QUIET_S = 90.0
SETTLE_S = 400.0
FOLLOW_S = 600
"""How long a blocking read waits: whoever is not woken by what changes misses it."""
VIOLATIONS_MAX = 20


@dataclass
class Outcome:
    """One run. trace: the hash of everything that was written, and when. figures: what happened how often."""

    seed: int
    trace: str = ""
    violations: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


class World:
    """One cluster and what is known of it from outside."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Process()
        self.store = MemoryStore(self.clock)
        self.network = Network(random.Random(self.chance.getrandbits(63)))
        self.servers = {name: SimulatedServer(name, self.store, self.network, self._chance()) for name in SERVERS}
        self.nodes: dict[str, SimulatedNode] = {}
        self.snapshot: Snapshot = empty_snapshot()
        self.violations: list[str] = []
        self.registered: dict[str, int] = {}
        self.children: dict[str, str] = {}
        self.jobs: dict[str, Job] = {}
        self.node_cpu = 4_000
        self.faults: tuple[str, ...] = ()
        """Names of the only faults that there are; none for all."""
        self.counted = 0
        """What the one writer of the counter was told that it had written."""
        self.followed = (0, 0)
        """Index and number of the last answer to the one who follows the counter."""
        self.events: dict[str, int] = {}
        self.on_event: Callable[[str], None] = lambda text: None
        self._trace = sha256()
        self._ending = False
        self._born = 0

    def _chance(self) -> random.Random:
        return random.Random(self.chance.getrandbits(63))

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers.values()]

    def note(self, text: str) -> None:
        """Something happened."""
        kind = text.split(" ")[0]
        self.events[kind] = self.events.get(kind, 0) + 1
        self.on_event(f"{self.clock.now():9.3f} {text}")

    def wrong(self, found: list[str]) -> None:
        if found and len(self.violations) < VIOLATIONS_MAX:
            self.violations += [f"at {self.clock.now():.3f} s: {one}" for one in found]
            for one in found:
                self.on_event(f"{self.clock.now():9.3f} WRONG {one}")

    def trace(self) -> str:
        return self._trace.hexdigest()[:16]

    def begin_node(self) -> SimulatedNode:
        """A machine that was never there before."""
        self._born += 1
        node = make_node(f"node-{self._born}", cpu=self.node_cpu, memory_mb=8_192)
        made = self.nodes[node.id] = SimulatedNode(node, self.addresses, self.network, self._chance())
        made.start()
        return made

    async def watch(self) -> None:
        """Reduce what is committed, in order, and look at each step whether it may be."""
        async for changes in self.store.watch(0):
            for change in changes:
                text = f"{self.clock.now():.6f} {change.revision} {change.key}"
                self._trace.update(text.encode() + (change.value or b"\0"))
            reduced = reduce(self.snapshot, changes)
            self.snapshot = reduced.snapshot
            touched = set()
            for change in reduced.changes:
                self.wrong(invariants.wrong_change(change))
                if change.table == "allocs" and change.after is not None:
                    touched.add(change.after.node_id)
                elif change.table == "nodes" and change.after is not None and change.before is not None:
                    self._judge_silence(change.before, change.after)
            self.wrong(invariants.overused(self.snapshot, sorted(touched)))

    def _judge_silence(self, before: Node, after: Node) -> None:
        """A node that was answered just now is not silent."""
        node = self.nodes.get(after.id)
        if node is not None and (before.status, after.status) == ("ready", "down"):
            silent_s = self.clock.now() - node.heard_at
            if silent_s < HEARTBEAT.min_ttl_s:
                self.wrong([f"heartbeat: {after.id} is down {silent_s:.3f} s after its heartbeat was answered"])

    def running(self) -> dict[str, list[str]]:
        """What runs on each machine that is there."""
        return {
            node.id: [alloc_id for alloc_id, run in node.runs.items() if run.status not in TERMINAL]
            for node in self.nodes.values()
        }

    def caller(self, name: str) -> HttpCaller:
        """A person's way to the servers."""
        addresses = self.addresses
        self.chance.shuffle(addresses)
        own = SeededRandom(self.chance.getrandbits(63))
        return HttpCaller(cast(Any, Session(self.network, name, self.clock)), addresses, self.clock, own)

    def at_rest(self) -> list[str]:
        """What is wrong when nothing has been done for a while."""
        snapshot = self.snapshot
        leaders = [server.name for server in self.servers.values() if server.leads]
        found = [] if len(leaders) == 1 else [f"{leaders} lead"]
        for server in self.servers.values():
            assert server.server is not None
            if _rows(server.server.replica.snapshot) != _rows(snapshot):
                found.append(f"V12: {server.name} holds another state than the store")
        return [
            *found,
            *invariants.wrong_counts(snapshot),
            *invariants.unfinished(snapshot),
            *invariants.not_ready(snapshot, self.nodes),
            *invariants.gone(snapshot, self.nodes),
            *invariants.strays(snapshot, self.running()),
            *invariants.lost(snapshot, self.registered, self.children),
        ]


def _rows(snapshot: Snapshot) -> dict[str, Any]:
    return {name: dict(table.rows) for name, table in snapshot.tables.items()}


def service(name: str, chance: random.Random) -> Job:
    """A job of a service, as somebody might write it."""
    count, canary = chance.randint(1, 4), chance.choice((0, 0, 1))
    port = NetworkResource(mode="host", dynamic_ports=(Port(label="http"),))
    task = make_task(cpu=chance.choice((100, 300, 600)), memory_mb=128, env={"VERSION": str(chance.randint(0, 3))})
    group = make_group(
        count=count,
        tasks=(task,),
        networks=(port,),
        restart_policy=RestartPolicy(attempts=0),
        reschedule_policy=ReschedulePolicy(delay=5 * SECOND, delay_function="constant", unlimited=True),
        update=UpdateStrategy(
            max_parallel=chance.randint(1, 3),
            health_check="task_states",
            min_healthy_time=SECOND,
            healthy_deadline=30 * SECOND,
            progress_deadline=60 * SECOND,
            canary=canary,
            auto_promote=canary > 0,
        ),
    )
    return make_job(name, groups=(group,), datacenters=("*",))


def batch(name: str, *, parameterized: bool) -> Job:
    """A job that ends; parameterized: one that is dispatched."""
    group = make_group(
        tasks=(make_task(cpu=100, memory_mb=64),),
        restart_policy=RestartPolicy(attempts=0),
        reschedule_policy=ReschedulePolicy(delay=5 * SECOND, delay_function="constant", unlimited=True),
    )
    config = ParameterizedJobConfig() if parameterized else None
    return make_job(name, groups=(group,), type="batch", datacenters=("*",), parameterized_job=config)


class Person:
    """Somebody who calls the servers, and remembers what was acknowledged. Each job belongs to one person."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._chance = random.Random(world.chance.getrandbits(63))
        self._caller = world.caller(f"person-{number}")
        self._mine = [f"job-{at}" for at in range(JOBS) if at % CALLERS == number]
        self._number = number
        self._tokens = 0

    async def work(self) -> None:
        """Want something every now and then, for ever."""
        acts = [self._register] * 4 + [self._scale] * 3 + [self._stop, self._dispatch, self._dispatch, self._batch]
        acts += [self._drain] if self._number == 0 else []
        while True:
            await self._world.clock.sleep(self._chance.expovariate(0.25))
            try:
                await self._chance.choice(acts)()
            except LepaError as error:
                self._world.note(f"refused {error.code}: {error.message[:80]}")

    async def _register(self) -> None:
        name = self._chance.choice(self._mine)
        self._world.registered.pop(name, None)  # what is unknown until it is answered
        job = service(name, self._chance)
        answer = (await self._caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job))).value
        self._world.registered[name] = answer.job_modify_index
        self._world.note(f"registered {name} count={job.task_groups[0].count}")

    async def _scale(self) -> None:
        name = self._chance.choice(self._mine)
        if name not in self._world.registered:
            return
        count = self._chance.randint(0, 5)
        await self._caller.call(m.JOB_SCALE, r.JobScaleRequest(id=name, group="web", count=count))
        self._world.note(f"scaled {name} count={count}")

    async def _stop(self) -> None:
        name = self._chance.choice(self._mine)
        if name not in self._world.registered:
            return
        await self._caller.call(m.JOB_DEREGISTER, r.JobDeregisterRequest(id=name))
        self._world.note(f"stopped {name}")

    async def _batch(self) -> None:
        self._tokens += 1
        name = f"batch-{self._number}-{self._tokens}"
        await self._caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=batch(name, parameterized=False)))
        self._world.note(f"batch {name}")

    async def _dispatch(self) -> None:
        """The same token until an answer comes, as a careful caller does."""
        template = f"template-{self._number}"
        if template not in self._world.registered:
            job = batch(template, parameterized=True)
            answer = (await self._caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job))).value
            self._world.registered[template] = answer.job_modify_index
        self._tokens += 1
        token = f"token-{self._number}-{self._tokens}"
        for _ in range(10):
            request = r.JobDispatchRequest(id=template, idempotency_token=token)
            try:
                child = (await self._caller.call(m.JOB_DISPATCH, request)).value.dispatched_job_id
            except LepaError as error:
                if error.code not in ("timeout", "no_leader"):
                    raise
                await self._world.clock.sleep(1.0)
                continue
            self._world.children[token] = child
            self._world.note(f"dispatched {child}")
            return

    async def _drain(self) -> None:
        node_id = self._chance.choice(sorted(self._world.nodes))
        spec = DrainSpec(deadline=20 * SECOND)
        await self._caller.call(m.NODE_DRAIN, r.NodeDrainRequest(id=node_id, drain_spec=spec))
        self._world.note(f"drains {node_id}")
        await self._world.clock.sleep(self._chance.uniform(5, 40))
        await self._caller.call(m.NODE_DRAIN, r.NodeDrainRequest(id=node_id, mark_eligible=True))


class Counter:
    """Counts up one key by check-and-set, and reads it: what was read is never less than what was known before."""

    KEY = "counter"

    def __init__(self, world: World) -> None:
        self._world = world
        self._writer = world.caller("counter-writer")
        self._reader = world.caller("counter-reader")
        self._follower = world.caller("counter-follower")

    async def write(self) -> None:
        while True:
            await self._world.clock.sleep(1.0)
            with contextlib.suppress(LepaError):
                entry = (await self._writer.call(m.KV_GET, r.ReadRequest(id=self.KEY))).value
                number, index = (int(entry.value), entry.modify_index) if entry else (0, 0)
                if number < self._world.counted:
                    self._world.wrong([f"V3: {number} was read after {self._world.counted} had been acknowledged"])
                step = KvOperation("cas", self.KEY, str(number + 1).encode(), index=index)
                applied = (await self._writer.call(m.KV_APPLY, k.KvApplyRequest(operations=(step,)))).value
                if applied.applied:
                    self._world.counted = number + 1

    async def read(self) -> None:
        while True:
            await self._world.clock.sleep(0.5)
            known = self._world.counted
            with contextlib.suppress(LepaError):
                entry = (await self._reader.call(m.KV_GET, r.ReadRequest(id=self.KEY))).value
                number = int(entry.value) if entry else 0
                if number < known:
                    self._world.wrong([f"V3: {number} was read after {known} had been acknowledged"])

    async def follow(self) -> None:
        """Blocking reads, each from the index of the one before: every change is heard of, and nothing goes back."""
        while True:
            index, _ = self._world.followed
            request = r.ReadRequest(id=self.KEY, index=max(1, index), wait_ns=FOLLOW_S * SECOND)
            try:
                reply = await self._follower.call(m.KV_GET, request)
            except LepaError:
                await self._world.clock.sleep(0.5)
                continue
            heard = reply.index, int(reply.value.value) if reply.value else 0
            self._world.wrong(invariants.wrong_read(self._world.followed, heard))
            self._world.followed = heard


class Faults:
    """What goes wrong: one thing at a time, each for a while."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(world.chance.getrandbits(63))

    async def work(self) -> None:
        faults = [
            self._kill_leader, self._kill_leader, self._kill_follower, self._kill_all, self._stop_leader,
            self._cut_disk, self._lose_answers, self._isolate_server, self._half_open, self._restart_node,
            self._stop_node, self._isolate_node, self._lose_node,
        ]  # fmt: skip
        only = [fault for fault in faults if fault.__name__.strip("_") in self._world.faults]
        while True:
            await self._world.clock.sleep(self._chance.uniform(8, 40))
            await self._chance.choice(only or faults)()

    def _leader(self) -> SimulatedServer:
        leaders = [server for server in self._world.servers.values() if server.leads]
        return leaders[0] if leaders else self._any_server()

    def _any_server(self) -> SimulatedServer:
        return self._world.servers[self._chance.choice(SERVERS)]

    def _any_node(self) -> SimulatedNode:
        return self._world.nodes[self._chance.choice(sorted(self._world.nodes))]

    async def _pause(self, low: float = 0.5, high: float = 15.0) -> None:
        await self._world.clock.sleep(self._chance.uniform(low, high))

    async def _kill(self, *servers: SimulatedServer) -> None:
        for server in servers:
            self._world.note(f"kills {server.name} leads={server.leads}")
            await server.kill()
        await self._pause()
        for server in servers:
            await server.start()
            self._world.note(f"starts {server.name}")

    async def _kill_leader(self) -> None:
        await self._kill(self._leader())

    async def _kill_follower(self) -> None:
        await self._kill(self._any_server())

    async def _kill_all(self) -> None:
        await self._kill(*self._world.servers.values())

    async def _stop_leader(self) -> None:
        server = self._leader()
        self._world.note(f"stalls {server.name} leads={server.leads}")
        server.process.stop()
        await self._pause(1.0, 20.0)
        server.process.go_on()
        self._world.note(f"goes-on {server.name}")

    async def _cut_disk(self) -> None:
        server = self._any_server()
        self._world.note(f"cuts-store {server.name} leads={server.leads}")
        server.disk.cut()
        await self._pause()
        server.disk.mend()

    async def _lose_answers(self) -> None:
        server = self._leader()
        self._world.note(f"loses-answers {server.name}")
        server.disk.answers_lost = 0.3
        await self._pause()
        server.disk.mend()

    async def _isolate_server(self) -> None:
        server = self._any_server()
        self._world.note(f"isolates {server.name} leads={server.leads}")
        self._world.network.isolate(server.name, [*SERVERS, *self._world.nodes])
        await self._pause()
        self._world.network.heal()

    async def _half_open(self) -> None:
        server, other = self._any_server(), self._any_server()
        self._world.note(f"half-opens {server.name} {other.name}")
        self._world.network.cut(server.name, other.name)
        await self._pause()
        self._world.network.heal()

    async def _restart_node(self) -> None:
        node = self._any_node()
        self._world.note(f"restarts {node.id}")
        await node.kill_agent()
        await self._pause(0.1, 12.0)
        node.start()

    async def _stop_node(self) -> None:
        node = self._any_node()
        self._world.note(f"stalls {node.id}")
        node.process.stop()
        await self._pause(1.0, 12.0)
        node.process.go_on()

    async def _isolate_node(self) -> None:
        node = self._any_node()
        self._world.note(f"isolates {node.id}")
        self._world.network.isolate(node.id, SERVERS)
        await self._pause(1.0, 25.0)
        self._world.network.heal()

    async def _lose_node(self) -> None:
        node = self._any_node()
        self._world.note(f"destroys {node.id}")
        await node.destroy()
        del self._world.nodes[node.id]
        await self._pause(0.0, 10.0)
        self._world.begin_node()


@asynccontextmanager
async def beginning(world: World) -> AsyncIterator[None]:
    """The cluster runs while inside."""
    loop = asyncio.get_running_loop()
    watching = loop.create_task(world.watch())
    try:
        for server in world.servers.values():
            await server.start()
        for _ in range(NODES):
            world.begin_node()
        yield
    finally:
        for node in world.nodes.values():
            await node.kill_agent()
        for server in world.servers.values():
            await server.stop()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await world.store.close()


async def _run(world: World, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    async with beginning(world):
        counter = Counter(world)
        faults = loop.create_task(Faults(world).work())
        people = [loop.create_task(Person(world, number).work()) for number in range(CALLERS)]
        counting = [loop.create_task(counter.write()), loop.create_task(counter.read())]
        following = loop.create_task(counter.follow())
        await world.clock.sleep(seconds)
        await _mend(world, faults)
        await _ended(people)
        await _forget_drains(world)
        world.note("rests")
        await world.clock.sleep(QUIET_S)
        await _ended(counting)
        await world.clock.sleep(2.0)
        world.wrong(invariants.missed(world.counted, world.followed[1]))
        await _ended([following])
        deadline = world.clock.now() + SETTLE_S
        while (found := world.at_rest()) and world.clock.now() < deadline:
            await world.clock.sleep(5.0)
        world.wrong(found)


async def _ended(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _mend(world: World, faults: "asyncio.Task[None]") -> None:
    """Whatever is broken is made whole again."""
    await _ended([faults])
    world.network.heal()
    for server in world.servers.values():
        server.process.go_on()
        server.disk.mend()
        if server.server is None:
            await server.kill()
            await server.start()
    for node in world.nodes.values():
        node.failing = False
        node.process.go_on()
        if not node.alive:
            node.start()
    while len(world.nodes) < NODES:
        world.begin_node()


async def _forget_drains(world: World) -> None:
    caller = world.caller("operator")
    for node_id in sorted(world.nodes):
        for _ in range(20):
            try:
                await caller.call(m.NODE_DRAIN, r.NodeDrainRequest(id=node_id, mark_eligible=True))
                break
            except LepaError:
                await world.clock.sleep(1.0)


def simulate(
    seed: int,
    minutes: float = 10.0,
    prepare: Callable[[World], None] = lambda world: None,
    on_event: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run one seed for so many virtual minutes, and then until it is at rest. prepare: changes the world first."""
    loop = VirtualLoop(seed)
    asyncio.set_event_loop(None)
    try:
        return loop.run_until_complete(_simulated(loop, seed, minutes, prepare, on_event))
    finally:
        loop.close()


async def _simulated(
    loop: VirtualLoop,
    seed: int,
    minutes: float,
    prepare: Callable[[World], None],
    on_event: Callable[[str], None],
) -> Outcome:
    world = World(seed)
    world.on_event = on_event
    prepare(world)
    await _run(world, 60.0 * minutes)
    failures = [str(one.get("exception") or one["message"]) for one in loop.failures]
    world.wrong([f"failure in the event loop: {one}" for one in failures])
    figures = {**world.events, "calls": world.network.calls, "revisions": world.snapshot.index}
    return Outcome(seed, world.trace(), world.violations, figures)
