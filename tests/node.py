"""A node under test: servers that hold everything in memory, and a client that talks to them.

`Servers` answers the calls of nodes as a leader would, keeps what they report, and remembers the order of it.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.builders import make_alloc, make_node, uuid_of
from tests.processes import command_of

from lepa.client.client import Client
from lepa.client.fingerprint.facts import HostFacts
from lepa.client.fingerprint.registry import Fingerprint
from lepa.client.settings import ClientSettings
from lepa.drivers.mock import MockDriver
from lepa.drivers.protocol import Driver
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import Clock, SeededRandom, SystemClock
from lepa.kit.telemetry import Metrics
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, not_found
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.service import ServiceRegistration
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.volume_requests import NodeWorkList, NodeWorkRequest

WITHIN_S = 20.0
NUMBERS_FROM = os.getpid() * 1_000


class Servers:
    """A Caller that answers itself.

    log: what nodes told, in order, as short texts. away: nobody answers. lagging: who is asked for stale data has old
    ones.
    """

    def __init__(self) -> None:
        self.index = 10
        self.nodes: dict[str, Node] = {}
        self.allocations: dict[str, Allocation] = {}
        self.services: dict[str, ServiceRegistration] = {}
        self.reported: dict[str, Allocation] = {}
        self.log: list[str] = []
        self.heartbeats = 0
        self.asked: list[r.Request] = []
        self.away = False
        self.lagging = False
        self._changed = asyncio.Event()
        self._answers: Mapping[str, Callable[[Any], Any]] = {
            m.NODE_REGISTER.name: self._register,
            m.NODE_HEARTBEAT.name: self._heartbeat,
            m.NODE_FOLLOW.name: self._follow,
            m.NODE_UPDATE_ALLOCATIONS.name: self._update,
            m.SERVICE_UPSERT.name: self._upsert,
            m.SERVICE_DELETE.name: self._delete,
            m.SERVICE_GET.name: self._service,
            m.SERVICE_LIST.name: self._services,
            m.NODE_WORK.name: self._work,
        }

    # What a test does

    def place(self, *allocations: Allocation) -> None:
        """Give allocations to the node, or newer forms of them."""
        self.index += 1
        for alloc in allocations:
            self.allocations[alloc.id] = replace(alloc, alloc_modify_index=self.index)
        self._wake()

    def change(self, alloc_id: str, **fields: Any) -> None:
        """Change one allocation."""
        self.place(replace(self.allocations[alloc_id], **fields))

    def stop(self, alloc_id: str) -> None:
        """Ask for the end of an allocation."""
        self.log.append(f"stop {alloc_id[:8]}")
        self.change(alloc_id, desired_status="stop")

    def forget(self, alloc_id: str) -> None:
        """Know nothing of an allocation any more."""
        self.index += 1
        del self.allocations[alloc_id]
        self._wake()

    def offer(self, *services: ServiceRegistration) -> None:
        """Instances of services from elsewhere."""
        self.index += 1
        self.services |= {each.id: replace(each, modify_index=self.index) for each in services}
        self._wake()

    def withdraw(self, service_id: str) -> None:
        """Remove an instance from elsewhere."""
        self.index += 1
        del self.services[service_id]
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], Any], what: str = "") -> Any:
        """Wait until something holds; its value."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHIN_S):
                while not (value := holds()):  # noqa: ASYNC110 - what is waited for differs
                    await asyncio.sleep(0.005)
                return value
        seen = {alloc_id[:8]: alloc.client_status for alloc_id, alloc in self.reported.items()}
        raise AssertionError(f"not within {WITHIN_S} s: {what or holds}; reported {seen}; log {self.log[-20:]}")

    async def removed(self, client: Client, alloc_id: str) -> None:
        """Collect an allocation that has ended, once the node has seen all of its end."""
        await self.status(alloc_id, "complete", "failed")
        async with asyncio.timeout(WITHIN_S):
            while client.has_allocation(alloc_id):
                await client.collect()
                await asyncio.sleep(0.005)

    async def status(self, alloc_id: str, *wanted: str) -> Allocation:
        """The report of an allocation once it has one of these client statuses."""

        def holds() -> Allocation | None:
            alloc = self.reported.get(alloc_id)
            return alloc if alloc is not None and alloc.client_status in wanted else None

        found = await self.until(holds, f"{alloc_id[:8]} {wanted}")
        assert isinstance(found, Allocation)
        return found

    def events(self, alloc_id: str, task: str = "web") -> list[str]:
        """Types of a task's events as they were reported last."""
        return [told.type for told in self.reported[alloc_id].task_states[task].events]

    # What nodes ask

    async def call(self, method: m.Method[Any, Any], request: Any) -> r.Reply[Any]:
        """As `lepa.rpc.methods.Caller`."""
        await asyncio.sleep(0)
        if self.away:
            raise LepaError("no_leader", "no server can be reached")
        self.asked.append(request)
        answer = self._answers[method.name](request)
        value = await answer if asyncio.iscoroutine(answer) else answer
        if self.lagging and getattr(request, "stale", False):
            return r.Reply(value=r.NodeAllocations(), index=1)
        return r.Reply(value=value, index=self.index)

    def stream(self, method: m.Method[Any, Any], request: Any) -> AsyncIterator[Any]:
        """Nodes follow no streams."""
        raise LepaError("unsupported", f"{method.name} is not for nodes")

    def _known(self, node_id: str) -> None:
        if node_id not in self.nodes:
            raise not_found("node not found")

    def _register(self, request: r.NodeRegisterRequest) -> r.NodeUpdateResponse:
        assert request.node is not None
        self.nodes[request.node.id] = request.node
        self.log.append("register")
        return r.NodeUpdateResponse(heartbeat_ttl=10_000_000_000)

    def _heartbeat(self, request: r.NodeHeartbeatRequest) -> r.NodeUpdateResponse:
        self._known(request.node_id)
        self.heartbeats += 1
        return r.NodeUpdateResponse(heartbeat_ttl=10_000_000_000)

    async def _follow(self, request: r.NodeAllocationsRequest) -> r.NodeAllocations:
        self._known(request.node_id)
        if request.index >= self.index:
            await self._changed.wait()
        indexes = {alloc_id: alloc.alloc_modify_index for alloc_id, alloc in self.allocations.items()}
        newer = tuple(a for a in self.allocations.values() if a.alloc_modify_index > request.index)
        return r.NodeAllocations(indexes=indexes, allocations=newer)

    def _update(self, request: r.NodeAllocationUpdatesRequest) -> None:
        for alloc in request.allocations:
            before = self.reported.get(alloc.id)
            if before is None or before.client_status != alloc.client_status:
                self.log.append(f"{alloc.client_status} {alloc.id[:8]}")
            self.reported[alloc.id] = alloc
            if known := self.allocations.get(alloc.id):
                self.allocations[alloc.id] = replace(known, client_status=alloc.client_status)

    def _upsert(self, request: r.ServiceUpsertRequest) -> None:
        for each in request.services:
            self.log.append(f"service {each.service_name} {each.status}")
        self.offer(*request.services)

    def _delete(self, request: r.ServiceDeleteRequest) -> None:
        for service_id in request.ids:
            if service_id in self.services:
                self.log.append(f"no service {self.services[service_id].service_name}")
                self.withdraw(service_id)

    async def _work(self, request: NodeWorkRequest) -> NodeWorkList:
        """Nothing, for as long as the node asks."""
        self._known(request.id)
        await asyncio.Event().wait()
        return NodeWorkList()

    async def _service(self, request: r.ServiceReadRequest) -> tuple[ServiceRegistration, ...]:
        while request.index and request.index >= self.index:
            await self._changed.wait()
        return tuple(each for each in self.services.values() if each.service_name == request.id)

    async def _services(self, request: r.ReadRequest) -> tuple[r.NamespaceServices, ...]:
        while request.index and request.index >= self.index:
            await self._changed.wait()
        stubs = {
            each.service_name: r.ServiceListStub(service_name=each.service_name, tags=each.tags)
            for each in self.services.values()
        }
        return (r.NamespaceServices(namespace="default", services=tuple(stubs.values())),)


class PlainFingerprint(Fingerprint):
    """A host with nothing to find out, for tests that start many clients."""

    async def host(self) -> HostFacts:
        resources = make_node().node_resources
        attributes = {"unique.network.ip-address": "127.0.0.1", "kernel.name": "linux"}
        cpu = replace(resources.cpu, reservable_cpu_cores=(0, 1, 2, 3))
        return HostFacts(attributes, {}, replace(resources, cpu=cpu))


@contextlib.asynccontextmanager
async def running_client(
    directory: Path,
    servers: Servers,
    drivers: Mapping[str, Driver] | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """A client that runs; by default with the mock driver alone."""
    clock = clock or SystemClock()
    wanted = ClientSettings(**{"directory": directory, "name": "here", "gc_interval_s": 3600.0} | settings)
    chosen: Mapping[str, Driver] = drivers if drivers is not None else {"mock_driver": MockDriver(clock)}
    fingerprint = PlainFingerprint(wanted, clock)
    async with Client(wanted, servers, chosen, fingerprint, clock, SeededRandom(7), Metrics()) as client:
        yield client


@contextlib.asynccontextmanager
async def own_supervisor(directory: Path) -> AsyncIterator[Supervisor]:
    """A supervisor of the test's own: its tasks are ended with it, and its process is gone at the end."""
    async with await Supervisor.connect(str(directory / "supervisor"), clock=SystemClock()) as found:
        yield found
        await found.shutdown(kill=True)
        async with asyncio.timeout(WITHIN_S):
            while command_of(found.pid):  # noqa: ASYNC110 - it is nobody's child
                await asyncio.sleep(0.01)


def placed(job: Job, number: int = 1, **fields: Any) -> Allocation:
    """An allocation of the job's first group, with the job, as a node is given it.

    Tasks of other test processes have other ids: the cgroups that hold processes are called after them.
    """
    values: dict[str, Any] = {"client_status": "pending"}
    return replace(make_alloc(uuid_of(NUMBERS_FROM + number), job=job, **(values | fields)), job=job)
