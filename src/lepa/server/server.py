"""One server: follows the store, answers calls, and leads when it is elected.

    async with Server(store, settings, clock, random, metrics, peers) as server:
        reply = await server.caller.call(methods.JOB_LIST, JobListRequest())

Several servers on one store are one region: they follow the same state, one of them leads, and each of them takes any
call (`forwarding`). Whatever is written goes through the leader's `Writer`, with the fence of its term. The store is
the caller's to close.
"""

import asyncio
import logging
import re
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc.channel import Answer, LocalCaller, Peers
from lepa.rpc.methods import METHODS
from lepa.rpc.requests import Reply
from lepa.rpc.server_requests import ServerRecord
from lepa.server import csi_release
from lepa.server.acl.guard import Guard
from lepa.server.acl.introduced import Introduced
from lepa.server.contact import Contact
from lepa.server.endpoints.acl import AclEndpoints
from lepa.server.endpoints.allocations import AllocationEndpoints
from lepa.server.endpoints.context import Context
from lepa.server.endpoints.csi import CsiEndpoints
from lepa.server.endpoints.deployments import DeploymentEndpoints
from lepa.server.endpoints.jobs import JobEndpoints
from lepa.server.endpoints.keyring import KeyringEndpoints
from lepa.server.endpoints.kv import KvEndpoints
from lepa.server.endpoints.nodes import NodeEndpoints
from lepa.server.endpoints.operator import OperatorEndpoints
from lepa.server.endpoints.overlays import OverlayEndpoints
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.servers import ServerEndpoints
from lepa.server.endpoints.services import ServiceEndpoints
from lepa.server.endpoints.variables import VariableEndpoints
from lepa.server.endpoints.volumes import VolumeEndpoints
from lepa.server.event_stream import EventStream
from lepa.server.forwarding import Forwarder
from lepa.server.key_file import load_or_make
from lepa.server.keyring import Keyring
from lepa.server.leadership import Leadership, Leading, Parts
from lepa.server.remote_desk import RemoteDesk
from lepa.server.roster import Roster
from lepa.server.settings import ServerSettings
from lepa.server.worker import AT_ONCE, Turns, Worker
from lepa.server.writer import Writer
from lepa.state.replica import Replica
from lepa.store.protocol import Store

log = logging.getLogger(__name__)

LAG_PROBE_S: Final = 0.25
"""How often the event loop is asked whether it is late."""


class Server:
    """The parts of one server, as an async context manager."""

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        clock: Clock,
        random: Random,
        metrics: Metrics | None = None,
        peers: Peers | None = None,
    ) -> None:
        """peers: the way to other servers on the same store; None: there are none, nor will there be."""
        metrics = metrics or Metrics()
        replica = Replica(store, clock)
        writer = Writer(store, replica, clock, random)
        writer.metrics = metrics
        acl = settings.acl
        wrapping = load_or_make(Path(acl.keyring_directory) if acl.keyring_directory else None, acl.shared_secret)
        peers = Introduced(peers, wrapping.server_token) if peers is not None else None
        keyring = Keyring(replica, writer, clock, wrapping)
        self.guest_token = wrapping.guest_token
        """What parts of this agent show that read for others, here and in regions that share the gossip key."""
        self.server_token = wrapping.server_token
        """What servers of the region show each other."""
        guard = Guard(
            replica,
            clock,
            keyring,
            enabled=acl.enabled,
            guest_token=wrapping.guest_token,
            server_token=wrapping.server_token,
        )
        self._parts = Parts(store, replica, writer, settings, clock, random, metrics, keyring, guard)
        self._leadership = Leadership(self._parts, lambda: Leading(self._parts))
        self._events = EventStream(replica, settings.event_batches_max, guard)
        self._peers = peers
        self._tasks = Tasks("server")
        self._stack = AsyncExitStack()
        self.roster = Roster(store, clock, _record(settings))
        self.contact = Contact(self._leadership, self.roster, replica, peers, clock, metrics)
        local = LocalCaller(self._answers(), {m.EVENT_STREAM.name: self._events.stream})
        self.caller = Forwarder(local, self._leadership, self.contact, peers, clock, metrics)

    @property
    def replica(self) -> Replica:
        """This server's copy of the state."""
        return self._parts.replica

    @property
    def leads(self) -> bool:
        """Whether this server leads now."""
        return self._leadership.leading is not None

    @property
    def leader_address(self) -> str:
        """Internal address of the server that leads, "" when none does."""
        return self._leadership.leader_address

    @property
    def term(self) -> int:
        """The revision at which the server that leads began to, 0 when none does: grows with each leader."""
        return self._leadership.key.created

    async def take_over(self, timeout_s: float) -> None:
        """Lead in the place of the server that leads now. Raises LepaError(timeout)."""
        await self._leadership.take_over(timeout_s)

    async def wait_until_leading(self, timeout_s: float) -> None:
        """Return when this server leads. Raises LepaError(no_leader)."""
        await self._leadership.leader(timeout_s)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._parts.replica)
            await stack.enter_async_context(self._events)
            await stack.enter_async_context(self._tasks)
            self._tasks.start("loop-lag", self._measure_lag())
            self._tasks.start("volumes", self._release_volumes())
            await stack.enter_async_context(self.roster)
            await stack.enter_async_context(self.contact)
            await stack.enter_async_context(self._leadership.running())
            await stack.enter_async_context(self.caller)
            if self._peers is not None:
                await self._schedule_for_others(stack, self._peers)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _schedule_for_others(self, stack: AsyncExitStack, peers: Peers) -> None:
        """Workers that get their evaluations from another server while that leads."""
        p, s = self._parts, self._parts.settings
        desk = RemoteDesk(s.name, s.scheduler_types, self._leadership, peers, p.clock)
        await stack.enter_async_context(desk)
        turns = Turns(s.workers)
        for number in range(s.workers):
            worker = Worker(p.replica, desk, p.clock, p.random, p.metrics, s.scheduler_types, turns, number)
            for _ in range(AT_ONCE):
                self._tasks.start(f"worker-{number}", worker.run())

    async def _release_volumes(self) -> None:
        """While this server leads: take CSI volumes away from allocations that have ended."""
        while True:
            await self._parts.clock.sleep(csi_release.LOOK_S)
            if self.leads and csi_release.abandoned(self.replica.snapshot):
                try:
                    await csi_release.release_abandoned(self._context)
                except LepaError as error:
                    log.debug("volumes not released error=%s", error)

    def _answers(self) -> dict[str, Answer]:
        self._context = context = Context(self._parts, self._leadership, self.roster, self.contact)
        queries = Queries(self._parts.replica, self._parts.clock, self._parts.random)
        endpoints = (
            JobEndpoints(context),
            AllocationEndpoints(context),
            DeploymentEndpoints(context),
            NodeEndpoints(context),
            ServiceEndpoints(context),
            KvEndpoints(context),
            VariableEndpoints(context),
            KeyringEndpoints(context),
            AclEndpoints(context),
            OperatorEndpoints(context),
            ServerEndpoints(context),
            OverlayEndpoints(context),
            VolumeEndpoints(context),
            CsiEndpoints(context),
        )
        return {
            method.name: self._measured(method.name, self._parts.guard.guarded(method.name, answer))
            for endpoint in endpoints
            for method, answer in endpoint.answers(queries).items()
        }

    def _measured(self, name: str, answer: Answer) -> Answer:
        metrics, clock = self._parts.metrics, self._parts.clock
        kind = "query" if METHODS[name].kind == "read" else "request"
        figure = f"nomad.nomad.{_snake(name)}"

        async def measured(request: Any) -> Reply[Any]:
            metrics.count(f"nomad.nomad.rpc.{kind}")
            started = clock.now()
            try:
                return await answer(request)
            except Exception:
                metrics.count("nomad.nomad.rpc.request_error", method=name)
                raise
            finally:
                if not getattr(request, "index", 0):  # a long poll's time tells nothing
                    metrics.sample(figure, 1e3 * (clock.now() - started))

        return measured

    async def _measure_lag(self) -> None:
        """How late the event loop is, in ms: heartbeats and leases are late by as much."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PROBE_S
            await asyncio.sleep(LAG_PROBE_S)
            self._parts.metrics.sample("lepa.loop.lag", 1e3 * max(0.0, loop.time() - due))


def _record(settings: ServerSettings) -> ServerRecord:
    """What others should know of this server."""
    return ServerRecord(
        name=settings.name,
        rpc_address=settings.rpc_address,
        http_address=settings.http_address,
        region=settings.region,
        datacenter=settings.datacenter,
        build=settings.build,
    )


def _snake(name: str) -> str:
    """How figures name a call: `Job.Register` is `job.register`, `NodePool.List` is `node_pool.list`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
