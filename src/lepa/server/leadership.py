"""What begins and ends with leading.

A server that wins the election waits until its replica has seen the win, so that it decides on everything its
predecessors have committed; then it fills the broker, gives every node time to find it, and starts workers and
deciders. When it loses the election all of that ends; a write that was under way is refused by its fence.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.server.acl.guard import Guard
from lepa.server.alarm import Alarm
from lepa.server.deciders import deployments, drains, gates, sessions, tokens, variable_locks
from lepa.server.deciders.garbage import find_garbage
from lepa.server.deciders.heartbeats import Heartbeats, disconnected_too_long, silent
from lepa.server.deciders.overlooked import find_overlooked
from lepa.server.deciders.periodic import Periodic
from lepa.server.desk import LocalDesk
from lepa.server.eval_feed import EvalFeed
from lepa.server.keyring import Keyring
from lepa.server.keyring_care import KeyringCare
from lepa.server.leader_key import LeaderKey
from lepa.server.lending import Lending
from lepa.server.loops import carry_out, run_decider
from lepa.server.plan_applier import PlanApplier
from lepa.server.report_desk import ReportDesk
from lepa.server.settings import ServerSettings
from lepa.server.worker import AT_ONCE, Turns, Worker
from lepa.server.writer import REPLICA_WAIT_S, Writer
from lepa.state.commands import garbage as garbage_commands
from lepa.state.commands.draft import Draft
from lepa.state.commands.tenancy import set_autopilot, set_scheduler_configuration
from lepa.state.keys import LEADER
from lepa.state.replica import Replica
from lepa.store.election import Campaign, Election, KeepLease, Lead, StepDown
from lepa.store.protocol import Lease, Store

HEARTBEAT_LOOK_S: Final = 1.0
OVERLOOKED_S: Final = 60.0
"""How often to look for jobs whose evaluations were lost when a server died."""
REVOKE_S: Final = 2.0
"""How long the store may take to end a lease; it lapses by itself after that."""
REPORT_S: Final = 1.0
TAKE_OVER_LOOK_S: Final = 2.0
"""How long an attempt to lead in another's place may take before the next."""

log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """What every part of a server needs."""

    store: Store
    replica: Replica
    writer: Writer
    settings: ServerSettings
    clock: Clock
    random: Random
    metrics: Metrics
    keyring: Keyring
    guard: Guard


class Leading:
    """The parts of a server that leads, as an async context manager."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tasks = Tasks("leading")
        self._stack = AsyncExitStack()
        self.heartbeats = Heartbeats(parts.settings.heartbeat)
        self.feed = EvalFeed(parts.replica, parts.writer, parts.clock, parts.random, parts.metrics)
        self.keyring_care = KeyringCare(parts.replica, parts.writer, parts.keyring, parts.clock, parts.settings.acl)
        self.applier = PlanApplier(
            parts.store, parts.replica, parts.writer, parts.clock, parts.metrics, self.feed.holds
        )

        self.reports = ReportDesk(parts.writer, parts.store.limits)
        self.desk = LocalDesk(self.feed, self.applier, parts.writer)
        self.lending = Lending(self.feed, self.desk, parts.clock, parts.metrics)

    async def __aenter__(self) -> "Leading":
        p = self._parts
        self.heartbeats.start(p.replica.snapshot.nodes(), p.clock.now())
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.feed)
            await stack.enter_async_context(self.applier)
            await stack.enter_async_context(self.reports)
            await stack.enter_async_context(self._tasks)
            self._start()
            self._stack = stack.pop_all()
        return self

    def _start(self) -> None:
        p = self._parts
        turns, desk = Turns(p.settings.workers), self.desk
        for number in range(p.settings.workers):
            worker = Worker(
                p.replica,
                desk,
                p.clock,
                p.random,
                p.metrics,
                p.settings.scheduler_types,
                turns,
                number,
            )
            for _ in range(AT_ONCE):
                self._tasks.start(f"worker-{number}", worker.run())
        periodic = Periodic(p.clock.now_ns() // SECOND)
        for name, decide, tables in (
            ("deployments", deployments.decide, ("deployments", "allocs", "jobs")),
            ("drains", drains.decide, ("nodes", "allocs")),
            ("periodic", periodic.decide, ("jobs",)),
            ("gates", gates.decide, ("jobs", "allocs", "evals")),
            ("sessions", sessions.decide, ("sessions", "kv_delays", "nodes", "services")),
            ("variable-locks", variable_locks.decide, ("variable_leases",)),
            ("tokens", tokens.decide, ("acl_tokens", "acl_one_time")),
        ):
            run = run_decider(name, decide, tables, p.replica, p.writer, p.clock)
            self._tasks.start(name, run)
        self._tasks.start("lending", self.lending.watch())
        self._tasks.start("defaults", self._store_defaults())
        self._tasks.start("heartbeats", self._watch_heartbeats())
        self._tasks.start("overlooked", self._look_for_overlooked())
        self._tasks.start("garbage", self._collect_garbage())
        self._tasks.start("keyring", self.keyring_care.run())
        self._tasks.start("report", self._report())

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def collect_garbage(self, *, force: bool) -> None:
        """Forget what has ended long enough ago; force: however recently it ended."""
        p = self._parts
        snapshot = p.replica.snapshot
        found = await asyncio.to_thread(find_garbage, snapshot, p.settings.garbage, p.clock.now_ns(), force=force)
        for part in found.parts(p.store.limits):
            await p.writer.write(_collect(part))
        if not found.empty:
            log.info("garbage collected allocs=%d evals=%d jobs=%d deployments=%d nodes=%d", *map(len, _counts(found)))

    async def _store_defaults(self) -> None:
        """Let the configured settings of operators be the stored ones, unless somebody has stored others."""
        p, settings, tables = self._parts, self._parts.settings, self._parts.replica.snapshot.tables
        scheduler, autopilot = settings.scheduler_defaults, settings.autopilot_defaults
        if scheduler != SchedulerConfiguration() and tables["config"].get("scheduler") is None:
            await p.writer.write(lambda draft: set_scheduler_configuration(draft, scheduler, check_index=0))
        if autopilot != AutopilotConfiguration() and tables["autopilot"].get("configuration") is None:
            await p.writer.write(lambda draft: set_autopilot(draft, autopilot, check_index=0))

    async def _watch_heartbeats(self) -> None:
        p = self._parts
        while True:
            now = p.clock.now()
            snapshot = p.replica.snapshot
            orders = [silent(snapshot, node_id) for node_id in self.heartbeats.expired(now)]
            for order in orders:
                p.metrics.count("nomad.nomad.heartbeat.invalidate")
                log.warning("node missed its heartbeat node_id=%s status=%s", order.node_id, order.status)
            await carry_out("heartbeats", [*orders, *disconnected_too_long(snapshot)], p.writer)
            wake_at = self.heartbeats.wake_at()
            pause = HEARTBEAT_LOOK_S if wake_at is None else min(HEARTBEAT_LOOK_S, max(0.0, wake_at - p.clock.now()))
            await p.clock.sleep(max(pause, 0.01))

    async def _look_for_overlooked(self) -> None:
        p = self._parts
        while True:
            await carry_out("overlooked", await asyncio.to_thread(find_overlooked, p.replica.snapshot), p.writer)
            await p.clock.sleep(OVERLOOKED_S)

    async def _collect_garbage(self) -> None:
        while True:
            await self._parts.clock.sleep(self._parts.settings.garbage.interval_s)
            try:
                await self.collect_garbage(force=False)
            except LepaError as error:
                log.warning("garbage not collected error=%s", error)

    async def _report(self) -> None:
        while True:
            self.feed.report()
            self._parts.metrics.gauge("nomad.nomad.heartbeat.active", len(self.heartbeats))
            await self._parts.clock.sleep(REPORT_S)


def _collect(part: garbage_commands.Garbage) -> Callable[[Draft], None]:
    return lambda draft: garbage_commands.collect(draft, part)


def _counts(found: garbage_commands.Garbage) -> tuple[tuple[object, ...], ...]:
    return found.allocations, found.evaluations, found.jobs, found.deployments, found.nodes


class Leadership:
    """This server's part in the election, and the parts that run while it leads."""

    def __init__(self, parts: Parts, lead: Callable[[], Leading]) -> None:
        """lead: makes the parts of one term."""
        self._parts = parts
        self._lead = lead
        self._tasks = Tasks("leadership")
        self._term: AsyncExitStack | None = None
        self._lease: Lease | None = None
        self._moved = asyncio.Event()
        self._changed = asyncio.Event()
        settings = parts.settings
        self._election = Election(LEADER, settings.rpc_address.encode(), settings.lease_ttl_s, parts.clock.now())
        self.key = LeaderKey(parts.store, parts.clock, self._seen)
        self._led: Leading | None = None
        parts.writer.on_fenced = self._fenced

    @property
    def leader_address(self) -> str:
        """Internal address of the server that leads, "" when none does."""
        return self.key.address

    @property
    def leading(self) -> Leading | None:
        """What leads here, while this server may believe that it leads.

        A process that stood still for longer than its lease wakes up with calls to answer, before it hears that
        another leads: what it says to a node's heartbeat then, nobody else would know of.
        """
        return self._led if self._election.leads(self._parts.clock.now()) else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Leadership"]:
        """Campaign and lead while inside."""
        async with self._tasks:
            await self._depose_former_self()
            self._tasks.start("election", self._elect())
            try:
                async with self.key:
                    yield self
            finally:
                await self._tasks.close()
                await self._end_term()
                await self._revoke()

    async def leader(self, timeout_s: float) -> Leading:
        """The leading parts; waits for them up to timeout_s. Raises LepaError(no_leader)."""
        deadline = self._parts.clock.now() + timeout_s
        while self.leading is None:
            if self._parts.clock.now() >= deadline:
                raise LepaError("no_leader", "No cluster leader")
            await self.changed(deadline)
        return self.leading

    async def take_over(self, timeout_s: float) -> None:
        """Lead in the place of the server that leads now. Raises LepaError(timeout) when this server does not."""
        deadline = self._parts.clock.now() + timeout_s
        while self.leading is None:
            if self._parts.clock.now() >= deadline:
                raise LepaError("timeout", f"this server does not lead after {timeout_s:g} s; try again")
            if self._election.take_over(self._parts.clock.now()):
                self._moved.set()
            await self.changed(min(deadline, self._parts.clock.now() + TAKE_OVER_LOOK_S))

    async def changed(self, deadline: float) -> None:
        """Return when leading begins or ends here or elsewhere, or at the deadline (of the clock's `now`)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - self._parts.clock.now())):
                await self._changed.wait()

    async def confirm(self) -> None:
        """Return when this server has certainly led at some moment after the call. Raises LepaError(no_leader).

        What it reads from its own snapshot after that is not older than what anybody had read or written before.
        """
        fence = self._parts.writer.fence
        if fence is not None and self.leading is not None:
            try:
                if await self.key.created_now() == fence.created:
                    return
            except LepaError as error:
                log.warning("leadership not confirmed error=%s", error.message)
        raise LepaError("no_leader", "No cluster leader")

    def _seen(self) -> None:
        self._election.leader_seen(self.key.created, self._parts.clock.now(), self.key.revision)
        self._moved.set()
        self._announce()

    def _fenced(self) -> None:
        self._election.fenced(self._parts.clock.now())
        self._moved.set()

    async def _depose_former_self(self) -> None:
        """A leader key with this server's address is that of an earlier process of its own, which has ended."""
        try:
            read = await self._parts.store.read(LEADER)
            for entry in read.entries:
                if entry.key == LEADER and entry.value == self._parts.settings.rpc_address.encode():
                    await self.key.depose(entry.value.decode(), entry.created)
        except LepaError as error:
            log.warning("an earlier term was not ended error=%s", error.message)

    async def _elect(self) -> None:
        clock = self._parts.clock
        alarm = Alarm(clock, self._tasks)
        while True:
            self._moved.clear()
            while orders := self._election.poll(clock.now()):
                for order in orders:
                    await self._carry_out(order)
            await alarm.wait(self._moved, self._election.wake_at())

    async def _carry_out(self, order: Campaign | KeepLease | Lead | StepDown) -> None:
        if isinstance(order, Campaign):
            await self._campaign(order)
        elif isinstance(order, KeepLease) and self._lease is not None:
            await self._keep(self._lease)
        elif isinstance(order, Lead):
            await self._begin_term(order)
        elif isinstance(order, StepDown):
            log.warning("steps down reason=%s", order.reason)
            await self._end_term()
            await self._revoke()

    async def _keep(self, lease: Lease) -> None:
        clock = self._parts.clock
        asked_at = clock.now()
        try:
            await lease.keep()
            self._election.lease_kept(asked_at)
        except LepaError as error:
            log.warning("lease not kept error=%s", error.message)
            if error.code == "not_found":
                self._election.lease_lapsed(clock.now())

    async def _campaign(self, order: Campaign) -> None:
        store, clock = self._parts.store, self._parts.clock
        try:
            self._lease = await store.lease(order.ttl_s)
            if order.instead_of:
                await self.key.depose(self.key.address, order.instead_of, "an operator wants another leader")
            committed = await store.commit(self._election.campaign_txn(self._lease.id))
        except LepaError as error:
            log.warning("campaign failed error=%s", error.message)
            self._election.campaign_failed(clock.now())
            await self._revoke()
            return
        self._election.campaign_ended(committed, clock.now())
        if not committed.ok:
            await self._revoke()

    async def _begin_term(self, order: Lead) -> None:
        p = self._parts
        asked = p.clock.now()
        try:
            await p.replica.wait_for(order.fence.created, REPLICA_WAIT_S)
        except LepaError as error:
            log.warning("does not lead: its copy of the state is behind error=%s", error.message)
            self._election.resign(p.clock.now())
            return
        p.metrics.sample("nomad.nomad.leader.barrier", 1e3 * (p.clock.now() - asked))
        p.writer.fence = order.fence
        stack = AsyncExitStack()
        self._led = await stack.enter_async_context(self._lead())
        self._term = stack
        p.metrics.gauge("nomad.raft.state.leader", 1)
        log.info("leads revision=%d", order.fence.created)
        self._announce()

    async def _end_term(self) -> None:
        self._led = None
        self._parts.writer.fence = None
        self._announce()
        self._parts.metrics.gauge("nomad.raft.state.leader", 0)
        if self._term is not None:
            term, self._term = self._term, None
            await term.aclose()

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _revoke(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                async with asyncio.timeout(REVOKE_S):
                    await lease.revoke()
            except (LepaError, TimeoutError) as error:
                log.debug("lease not revoked error=%s", error)
