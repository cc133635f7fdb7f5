"""The node: registers, heartbeats, follows its allocations, runs them, reports what happens.

    follow     a long poll tells which allocations changed; alloc_sync says what to fetch, start and forget
    report     allocations with news are sent in batches, only when they differ from what was sent last
    heartbeat  half as often as the servers allow; a server that forgot this node is told everything again

Tasks do not depend on any of it: they go on while the agent or all servers are away.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
from msgspec.structs import replace

from lepa.client import alloc_sync, files, node_stats
from lepa.client.alloc_dir import AllocDir
from lepa.client.alloc_runner import AllocRunner, NodeParts
from lepa.client.fingerprint.registry import Fingerprint
from lepa.client.hooks.protocol import TaskHook
from lepa.client.local_state import LocalState, Remembered
from lepa.client.service_sync import ServiceSync
from lepa.client.settings import ClientSettings
from lepa.client.task_env import Place
from lepa.drivers.protocol import Driver
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.node import (
    Node,
    NodeReservedCpuResources,
    NodeReservedDiskResources,
    NodeReservedMemoryResources,
    NodeReservedNetworkResources,
    NodeReservedResources,
)
from lepa.model.service import CheckQueryResult
from lepa.model.stats import AllocFileInfo, AllocResourceUsage, HostStats
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.methods import Caller
from lepa.rpc.node_service import StreamFrame, TaskSession

log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_MAX_S = 15.0
REPORT_WAIT_S = 0.02
REPORT_BATCH_MAX = 100
HEARTBEAT_DEFAULT_S = 10.0
CHECK_DRIVERS_S = 30.0
CALL_S = 30.0
STOP_S = 15.0
READ_MAX = 64 * 1024 * 1024

Hooks = Callable[[AllocDir, Place], list[TaskHook]]


class Client:
    """The node of this machine. As an async context manager it runs while it is entered."""

    def __init__(
        self,
        settings: ClientSettings,
        caller: Caller,
        drivers: Mapping[str, Driver],
        fingerprint: Fingerprint,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        hooks: Hooks | None = None,
    ) -> None:
        self._settings = settings
        self._caller = caller
        self._drivers = drivers
        self._fingerprint = fingerprint
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._hooks: Hooks = hooks or (lambda directory, place: [])
        self._alloc_root = settings.alloc_dir or settings.directory / "alloc"
        self._tasks = Tasks("client")
        self._runners: dict[str, AllocRunner] = {}
        self._ended: list[str] = []
        self._unknown: set[str] = set()
        self._dirty: dict[str, None] = {}
        self._has_news = asyncio.Event()
        self._reported: dict[str, Allocation] = {}
        self._heartbeat_s = HEARTBEAT_DEFAULT_S
        self._registered = asyncio.Event()
        self._follow_from = 0
        self.node = Node()
        self.last_contact: float | None = None

    @property
    def node_id(self) -> str:
        """This node's id."""
        return self.node.id

    @property
    def registered(self) -> bool:
        """Whether the servers know this node."""
        return self._registered.is_set()

    # Life

    async def __aenter__(self) -> Self:
        self._state = LocalState(self._settings.directory / "state.db")
        self.node = await self._make_node()
        timeout = aiohttp.ClientTimeout(total=None)
        self._http = aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0, force_close=True), auto_decompress=True
        )
        self._services = ServiceSync(self._caller, self._clock, lambda: (self.node.id, self.node.secret_id))
        self._parts = NodeParts(
            node=lambda: self.node,
            region=self._settings.region,
            drivers=self._drivers,
            state=self._state,
            services=self._services,
            http=self._http,
            clock=self._clock,
            random=self._random,
            host_env=dict(os.environ),
            hooks=self._hooks,
            kill_timeout_max_s=self._settings.max_kill_timeout_s,
        )
        self._restore()
        self._tasks.start("register", self._register_loop())
        self._tasks.start("heartbeat", self._heartbeat_loop())
        self._tasks.start("follow", self._follow_loop())
        self._tasks.start("report", self._report_loop())
        self._tasks.start("services", self._services.run())
        self._tasks.start("collect", self._collect_loop())
        self._tasks.start("drivers", self._drivers_loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._settings.exit_with_agent:
            await self._stop_everything()
        await self._tasks.close()
        for runner in self._runners.values():
            await runner.close()
        for driver in self._drivers.values():
            await driver.close()
        await self._http.close()
        self._state.close()

    async def _stop_everything(self) -> None:
        """End all tasks: only an agent for development does this."""
        running = [runner for runner in self._runners.values() if not runner.finished.is_set()]
        for runner in running:
            runner.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                for runner in running:
                    await runner.finished.wait()

    async def _make_node(self) -> Node:
        """What this node is: its lasting identity, what was found on the host, what the settings say."""
        facts = self._state.facts()
        identity = {
            "node_id": self._settings.node_id or facts.get("node_id") or self._random.uuid(),
            "secret_id": facts.get("secret_id") or self._random.uuid(),
        }
        await self._state.save_facts(identity)
        settings = self._settings
        host = await self._fingerprint.host()
        node = Node(
            id=identity["node_id"],
            secret_id=identity["secret_id"],
            name=settings.name,
            datacenter=settings.datacenter,
            node_class=settings.node_class,
            node_pool=settings.node_pool,
            http_addr=settings.http_address,
            attributes=host.attributes,
            links=host.links,
            meta=settings.meta | _own_meta(facts),
            node_resources=host.resources,
            reserved_resources=_reserved(settings),
            status="initializing",
            host_volumes={volume.name: volume for volume in settings.host_volumes},
            host_networks={network.name: network for network in settings.host_networks},
            node_max_allocs=settings.allocs_max,
            cgroup_parent=host.cgroup_parent,
        )
        return await self._with_drivers(node)

    async def _with_drivers(self, node: Node) -> Node:
        """The node with what its drivers say of themselves now."""
        found = await self._fingerprint.drivers(self._drivers)
        names = {f"driver.{name}" for name in self._drivers}
        kept = {
            key: value
            for key, value in node.attributes.items()
            if key not in names and not key.startswith(tuple(f"{name}." for name in names))
        }
        for info in found.values():
            if info.detected:
                kept |= info.attributes
        return replace(node, drivers=found, attributes=kept)

    # Servers

    async def _register_loop(self) -> None:
        """Tell the servers about this node whenever they do not know it."""
        delay = RETRY_S
        while True:
            if self._registered.is_set():
                await self._clock.sleep(RETRY_S)
                continue
            try:
                node = replace(self.node, status="ready")
                reply = await self._call(m.NODE_REGISTER, r.NodeRegisterRequest(node=node))
                self._note_contact(reply.value)
                delay = RETRY_S
                self._registered.set()
                self._services.forget_known()
                self._reported.clear()
                for alloc_id in self._runners:
                    self._note_news(alloc_id)
                log.info("node registered node_id=%s name=%s", self.node.id, self.node.name)
            except LepaError as error:
                log.warning("node could not register error=%s retry_s=%.1f", error.message, delay)
                await self._clock.sleep(delay * self._random.uniform(0.75, 1.25))
                delay = min(delay * 2, RETRY_MAX_S)

    async def _call(self, method: m.Method[Any, Any], request: r.Request, timeout_s: float = CALL_S) -> r.Reply[Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._caller.call(method, request)
        except TimeoutError as error:
            raise LepaError("timeout", f"no server answered {method.name} within {timeout_s:g} s") from error

    def _note_contact(self, answer: r.NodeUpdateResponse) -> None:
        self.last_contact = self._clock.now()
        if answer.heartbeat_ttl > 0:
            self._heartbeat_s = answer.heartbeat_ttl / SECOND

    async def _heartbeat_loop(self) -> None:
        while True:
            await self._registered.wait()
            await self._clock.sleep(self._heartbeat_s / 2 * self._random.uniform(0.8, 1.0))
            beat = r.NodeHeartbeatRequest(node_id=self.node.id, secret_id=self.node.secret_id, status="ready")
            try:
                self._note_contact((await self._call(m.NODE_HEARTBEAT, beat)).value)
            except LepaError as error:
                if error.code == "not_found":
                    log.warning("the servers do not know this node; registering again node_id=%s", self.node.id)
                    self._registered.clear()
                else:
                    log.warning("heartbeat failed error=%s", error.message)
                    await self._clock.sleep(RETRY_S)

    async def _follow_loop(self) -> None:
        while True:
            await self._registered.wait()
            query = r.NodeAllocationsRequest(
                node_id=self.node.id, secret_id=self.node.secret_id, index=self._follow_from, stale=True
            )
            try:
                reply = await self._call(m.NODE_FOLLOW, query, timeout_s=r.WAIT_MAX_NS / SECOND * 1.2)
            except LepaError as error:
                log.warning("allocations could not be followed error=%s", error.message)
                if error.code == "not_found":
                    self._registered.clear()
                await self._clock.sleep(RETRY_S)
                continue
            if await self._take(reply.value):
                self._follow_from = reply.index
            else:
                self._follow_from = 0
                await self._clock.sleep(RETRY_S)

    async def _take(self, wanted: r.NodeAllocations) -> bool:
        """Carry out what the servers want; False when allocations are missing from the answer and must be asked for."""
        have = {alloc_id: runner.alloc.alloc_modify_index for alloc_id, runner in self._runners.items()}
        orders = alloc_sync.compare(wanted.indexes, have, self._follow_from)
        for alloc_id in orders.forget:
            await self._forget(alloc_id)
        given = {alloc.id: alloc for alloc in wanted.allocations}
        fetched = tuple(given[alloc_id] for alloc_id in orders.fetch if alloc_id in given)
        change = alloc_sync.divide(fetched, set(self._runners))
        for alloc in change.start:
            await self._state.save_allocation(alloc)
            self._start(Remembered(alloc, {}))
        for alloc in change.update:
            self._runners[alloc.id].update(alloc)
            await self._state.save_allocation(replace(self._runners[alloc.id].alloc, job=self._runners[alloc.id].job))
        return len(fetched) == len(orders.fetch)

    # Allocations

    def _restore(self) -> None:
        """Take up what an earlier agent left."""
        for remembered in self._state.load():
            self._start(remembered)
        if self._runners:
            log.info("allocations restored count=%d", len(self._runners))

    def _start(self, remembered: Remembered) -> None:
        alloc = remembered.alloc
        directory = AllocDir(self._alloc_root, alloc.id)
        try:
            runner = AllocRunner(alloc, directory, self._parts, self._note_news, remembered.tasks)
        except LepaError as error:
            log.error("allocation cannot run alloc_id=%s error=%s", alloc.id, error.message)
            failed = replace(alloc, job=None, client_status="failed", client_description=error.message)
            self._tasks.start(f"fail.{alloc.id}", self._send([failed]))
            return
        self._runners[alloc.id] = runner
        if runner.finished.is_set():
            self._ended.append(alloc.id)
        else:
            self._tasks.start(f"alloc.{alloc.id}", self._run(runner))
        self._note_news(alloc.id)

    async def _run(self, runner: AllocRunner) -> None:
        await runner.run()
        self._ended.append(runner.alloc.id)
        if runner.alloc.id in self._unknown:
            await self._remove(runner.alloc.id)
        else:
            await self._state.save_allocation(replace(runner.alloc, job=runner.job))

    async def _forget(self, alloc_id: str) -> None:
        """The servers no longer know it: end it and remove what it left."""
        runner = self._runners[alloc_id]
        if not runner.finished.is_set():
            self._unknown.add(alloc_id)
            runner.stop()
            return
        await self._remove(alloc_id)

    async def _remove(self, alloc_id: str) -> None:
        runner = self._runners.pop(alloc_id)
        if alloc_id in self._ended:
            self._ended.remove(alloc_id)
        self._reported.pop(alloc_id, None)
        self._unknown.discard(alloc_id)
        await asyncio.get_running_loop().run_in_executor(None, runner.directory.destroy)
        await self._state.forget(alloc_id)

    async def _collect_loop(self) -> None:
        """Keep the number of ended allocations on disk within its bound, oldest first."""
        while True:
            await self._clock.sleep(self._settings.gc_interval_s)
            while len(self._ended) > self._settings.gc_allocs_max:
                await self._remove(self._ended[0])

    async def _drivers_loop(self) -> None:
        """Tell the servers when a driver appears, vanishes or falls ill."""
        while True:
            await self._clock.sleep(CHECK_DRIVERS_S)
            node = await self._with_drivers(self.node)
            same = {k: (v.detected, v.healthy) for k, v in node.drivers.items()}
            if same != {k: (v.detected, v.healthy) for k, v in self.node.drivers.items()}:
                self.node = node
                self._registered.clear()

    # Reports

    def _note_news(self, alloc_id: str) -> None:
        self._dirty[alloc_id] = None
        self._has_news.set()

    async def _report_loop(self) -> None:
        while True:
            await self._has_news.wait()
            await self._clock.sleep(REPORT_WAIT_S)
            await self._registered.wait()
            self._has_news.clear()
            chosen = list(self._dirty)[:REPORT_BATCH_MAX]
            for alloc_id in chosen:
                del self._dirty[alloc_id]
            present = [self._runners[alloc_id].present() for alloc_id in chosen if alloc_id in self._runners]
            news = [alloc for alloc in present if not _same_report(alloc, self._reported.get(alloc.id))]
            if news and not await self._send(news):
                self._dirty |= dict.fromkeys(alloc.id for alloc in news)
                await self._clock.sleep(RETRY_S)
            if self._dirty:
                self._has_news.set()

    async def _send(self, allocations: Sequence[Allocation]) -> bool:
        update = r.NodeAllocationUpdatesRequest(
            node_id=self.node.id,
            secret_id=self.node.secret_id,
            allocations=tuple(_report_of(alloc) for alloc in allocations),
        )
        try:
            await self._call(m.NODE_UPDATE_ALLOCATIONS, update)
        except LepaError as error:
            log.warning("allocations could not be reported count=%d error=%s", len(allocations), error.message)
            return False
        self._reported |= {alloc.id: alloc for alloc in allocations}
        return True

    # What the HTTP edge asks

    def has_allocation(self, alloc_id: str) -> bool:
        """Whether this node knows the allocation."""
        return alloc_id in self._runners

    def _runner(self, alloc_id: str) -> AllocRunner:
        runner = self._runners.get(alloc_id)
        if runner is None:
            raise not_found(f'Unknown allocation "{alloc_id}"')
        return runner

    async def list_files(self, alloc_id: str, path: str) -> Sequence[AllocFileInfo]:
        """Entries of a directory of the allocation."""
        return files.list_files(self._runner(alloc_id).directory, path)

    async def stat_file(self, alloc_id: str, path: str) -> AllocFileInfo:
        """One file or directory."""
        return files.stat_file(self._runner(alloc_id).directory, path)

    async def read_file(self, alloc_id: str, path: str, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of a file."""
        directory = self._runner(alloc_id).directory
        length = READ_MAX if limit < 0 else min(limit, READ_MAX)
        return await asyncio.to_thread(files.read_file, directory, path, offset, length)

    def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        """A file, then what is appended."""
        directory = self._runner(alloc_id).directory
        return files.stream_file(directory, path, offset=offset, origin=origin, follow=follow)

    def stream_logs(
        self, alloc_id: str, task: str, stream: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        """A task's output over all rotated files."""
        runner = self._runner(alloc_id)
        state = runner.states().get(task)
        if state is None:
            raise invalid(f'unknown task name "{task}"')
        logs = files.LogFiles(runner.directory, task, stream)
        if not logs.numbers() and state.state == "pending" and not state.restarts:
            raise not_found(f'task "{task}" not started yet. No logs available')
        return files.stream_logs(logs, offset=offset, origin=origin, follow=follow)

    async def exec(self, alloc_id: str, task: str, command: Sequence[str], *, tty: bool) -> TaskSession:
        """Run a command inside a running task."""
        runner = self._runner(alloc_id).runners.get(task)
        if runner is None:
            raise invalid(f'unknown task name "{task}"')
        if runner.handle is None or runner.state.state != "running":
            raise invalid(f'task "{task}" is not running')
        driver = self._drivers[runner.task.driver]
        if not driver.capabilities.exec:
            raise invalid(f'driver "{driver.name}" cannot run commands inside a task')
        return await driver.exec(runner.handle.task_id, command, tty=tty)

    async def allocation_stats(self, alloc_id: str, task: str = "") -> AllocResourceUsage:
        """Present use of the allocation's tasks."""
        runner = self._runner(alloc_id)
        usages = {}
        for name, one in runner.runners.items():
            if one.handle is not None and task in {"", name}:
                with contextlib.suppress(LepaError):
                    usages[name] = await self._drivers[one.task.driver].stats(one.handle.task_id)
        return node_stats.sum_usage(usages, self._clock.now_ns())

    async def checks(self, alloc_id: str) -> dict[str, CheckQueryResult]:
        """Last results of the allocation's checks."""
        return dict(self._runner(alloc_id).checks.results)

    async def restart(self, alloc_id: str, task: str = "", *, all_tasks: bool = False) -> None:
        """Restart one task, or all that run."""
        self._runner(alloc_id).restart(task, all_tasks=all_tasks)

    async def signal(self, alloc_id: str, task: str, signal: str) -> None:
        """Signal one task, or all that run."""
        await self._runner(alloc_id).signal(task, signal)

    async def collect(self, alloc_id: str = "") -> None:
        """Remove an ended allocation from the disk, or all of them."""
        if alloc_id and not self._runner(alloc_id).finished.is_set():
            raise invalid("allocation is still running; stop it first", http_status=500)
        for ended in [alloc_id] if alloc_id else list(self._ended):
            await self._remove(ended)

    async def host_stats(self) -> HostStats:
        """Present use of the host."""
        return await asyncio.to_thread(node_stats.host_stats, self._alloc_root, self._clock.now_ns())

    async def metadata(self) -> dict[str, Any]:
        """The node's metadata."""
        dynamic = _own_meta(self._state.facts())
        return {"Meta": self.node.meta, "Dynamic": dynamic, "Static": self._settings.meta}

    async def set_metadata(self, changes: dict[str, str | None]) -> dict[str, Any]:
        """Set or unset keys that stay over restarts."""
        for key in changes:
            if not key or not all(part.isidentifier() for part in key.replace("-", "_").split(".")):
                raise invalid(f'meta key "{key}" is not a name of letters, digits, "_", "-" and "."')
        given = {META_PREFIX + key: value for key, value in changes.items() if value is not None}
        await self._state.save_facts(given)
        await self._state.drop_facts([META_PREFIX + key for key, value in changes.items() if value is None])
        meta = self._settings.meta | _own_meta(self._state.facts())
        unset = {key for key, value in changes.items() if value is None}
        self.node = replace(self.node, meta={key: value for key, value in meta.items() if key not in unset})
        self._registered.clear()
        return await self.metadata()

    # Figures

    def counts(self) -> dict[str, int]:
        """Allocations by client status."""
        found: dict[str, int] = {}
        for runner in self._runners.values():
            status = runner.present().client_status
            found[status] = found.get(status, 0) + 1
        return found

    @property
    def alloc_root(self) -> Path:
        """Where allocations have their directories."""
        return self._alloc_root


META_PREFIX = "meta:"


def _own_meta(facts: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(META_PREFIX): value for name, value in facts.items() if name.startswith(META_PREFIX)}


def _reserved(settings: ClientSettings) -> NodeReservedResources:
    reserved = settings.reserved
    return NodeReservedResources(
        cpu=NodeReservedCpuResources(cpu_shares=reserved.cpu, reserved_cpu_cores=reserved.cores),
        memory=NodeReservedMemoryResources(memory_mb=reserved.memory_mb),
        disk=NodeReservedDiskResources(disk_mb=reserved.disk_mb),
        networks=NodeReservedNetworkResources(reserved_host_ports=reserved.ports),
    )


def _report_of(alloc: Allocation) -> Allocation:
    """Only what the node has a say in."""
    return Allocation(
        id=alloc.id,
        namespace=alloc.namespace,
        job_id=alloc.job_id,
        task_group=alloc.task_group,
        node_id=alloc.node_id,
        eval_id=alloc.eval_id,
        deployment_id=alloc.deployment_id,
        client_status=alloc.client_status,
        client_description=alloc.client_description,
        task_states=alloc.task_states,
        deployment_status=alloc.deployment_status,
        network_status=alloc.network_status,
    )


def _same_report(now: Allocation, before: Allocation | None) -> bool:
    return before is not None and _report_of(now) == _report_of(before)
