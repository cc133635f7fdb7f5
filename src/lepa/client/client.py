"""The node: registers, heartbeats, follows its allocations, runs them, reports what happens.

    server_link   registered, and heard of often enough
    allocations   what an earlier agent left, what the servers want, what has ended
    reports       what became of allocations, told in batches
    service_sync  instances of services, told as they come and go

Tasks do not depend on any of it: they go on while the agent or all servers are away. The class itself joins these parts
and answers what the HTTP edge asks of a node.
"""

import asyncio
import contextlib
import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
from msgspec.structs import replace

from lepa.client import files, node_stats, secrets_mount
from lepa.client.alloc_dir import AllocDir
from lepa.client.alloc_runner import Hooks, NodeParts
from lepa.client.allocations import Allocations
from lepa.client.cores import Cores
from lepa.client.csi.controller import CsiController
from lepa.client.csi.mounts import CsiMounts
from lepa.client.csi.plugins import CsiPlugins
from lepa.client.devices import Devices
from lepa.client.ephemeral_disk import DiskParts
from lepa.client.figures import Placed, allocation_figures, happenings, node_figures
from lepa.client.fingerprint.registry import Fingerprint
from lepa.client.hooks.artifact_http import guarded_session
from lepa.client.hooks.artifacts import ArtifactHook
from lepa.client.hooks.identities import IdentityHook, TaskApi, shown
from lepa.client.hooks.payload import PayloadHook
from lepa.client.hooks.protocol import TaskHook
from lepa.client.hooks.templates import TemplateHook
from lepa.client.identities import Identities
from lepa.client.local_state import LocalState
from lepa.client.migration import pack
from lepa.client.network.networks import Networks
from lepa.client.network.overlays import Overlays
from lepa.client.network.tunnels import names
from lepa.client.node_desk import Handler, NodeDesk
from lepa.client.node_options import hidden_variables
from lepa.client.server_link import ServerLink
from lepa.client.service_sync import ServiceSync
from lepa.client.settings import ClientSettings
from lepa.client.shipping.receivers import Doors
from lepa.client.shipping.shipper import Shipping
from lepa.client.storage.host_plugins import Plugin, find_plugins
from lepa.client.storage.host_volumes import HostVolumes
from lepa.client.task_env import Place, interpolate, references
from lepa.client.task_runner import TaskRunner
from lepa.drivers.protocol import Driver
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.migration import opens
from lepa.model.node import (
    ClientHostVolumeConfig,
    Node,
    NodeReservedCpuResources,
    NodeReservedDiskResources,
    NodeReservedMemoryResources,
    NodeReservedNetworkResources,
    NodeReservedResources,
)
from lepa.model.resources import NetworkResource
from lepa.model.service import CheckQueryResult
from lepa.model.stats import AllocFileInfo, AllocResourceUsage, Figure, HostStats
from lepa.rpc.methods import Caller
from lepa.rpc.node_service import StreamFrame, TaskSession

CHECK_DRIVERS_S = 30.0
STOP_S = 15.0
MIGRATE_WAIT_S = 300.0
"""How long a node that fetches data waits for the old allocation to end, before it is told to ask again."""
READ_MAX = 64 * 1024 * 1024
CONNECTIONS_MAX = 1000
"""Of health checks and downloads at a time."""
BUILDERS_MAX = 2
META_FACT = "meta:"
OVERLAY = "overlay/"
CNI_MODES = ("bridge", "cni/")
CNI_PLUGINS = "plugins.cni."
META_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Client:
    """The node of this machine, as an async context manager that runs while it is entered.

    hooks: makes the hooks of a task; by default payload, identities, artifacts and templates. task_api: where tasks
    that have an identity talk to this agent.
    """

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
        devices: Devices | None = None,
        task_api: TaskApi | None = None,
        agents_tls: ssl.SSLContext | None = None,
    ) -> None:
        """agents_tls: how other agents are called, when not in plain text."""
        self._settings = settings
        self._caller = caller
        self._drivers = drivers
        self._fingerprint = fingerprint
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._devices = devices or Devices()
        self._agents_tls = agents_tls
        self._hooks = hooks or self._default_hooks
        self._identities = Identities(caller, lambda: self.node)
        self._task_api = task_api
        self._tasks = Tasks("client")
        self._link = ServerLink(caller, clock, random, self._forgotten)
        self._services = ServiceSync(
            caller, clock, lambda: (self.node.id, self.node.secret_id), lambda: self._link.seen
        )

    @property
    def node(self) -> Node:
        """What this node is."""
        return self._link.node

    @property
    def node_id(self) -> str:
        """This node's id."""
        return self.node.id

    @property
    def registered(self) -> bool:
        """Whether the servers know this node."""
        return self._link.registered.is_set()

    @property
    def last_contact(self) -> float:
        """When a server last answered, in seconds of the clock."""
        return self._link.last_contact

    @property
    def alloc_root(self) -> Path:
        """Where allocations have their directories."""
        return self._allocations.root

    def task_ids(self) -> set[str]:
        """What drivers know this node's tasks by."""
        runners = [task for alloc in self._allocations.runners.values() for task in alloc.runners.values()]
        return {task.task_id for task in runners if task.task_id}

    def counts(self) -> dict[str, int]:
        """Allocations by client status."""
        found: dict[str, int] = {}
        for runner in self._allocations.runners.values():
            status, _ = runner.status()
            found[status] = found.get(status, 0) + 1
        return found

    async def figures(self, *, host: bool, allocations: bool) -> list[Figure]:
        """Figures of the node. host: with the use of its host; allocations: with the use of its tasks."""
        stats = await self.host_stats() if host else None
        placed = [Placed(runner.alloc, runner.status()[0]) for runner in self._allocations.runners.values()]
        node = replace(self.node, status="ready") if self.registered else self.node
        found = list(node_figures(node, placed, stats))
        for each in placed if allocations else ():
            if each.status == "running":
                with contextlib.suppress(LepaError):  # it has just ended
                    usage = await self.allocation_stats(each.allocation.id)
                    found += allocation_figures(self.node, each.allocation, usage)
        return found

    def _count(self, before: Allocation | None, after: Allocation) -> None:
        runner = self._allocations.runners.get(after.id)
        if runner is not None:
            whole = replace(runner.alloc, task_states=after.task_states)
            for name, labels in happenings(self.node, before, whole):
                self._metrics.count(name, 1, **labels)

    # Life

    async def __aenter__(self) -> Self:
        self._state = LocalState(self._settings.directory / "state.db")
        self._host_volumes = HostVolumes(self._state, {}, self._volumes_changed)
        node = await self._make_node()
        self._host_volumes = HostVolumes(self._state, self._volume_plugins(node), self._volumes_changed)
        await self._host_volumes.restore()
        self._link.change(replace(node, host_volumes=self._all_host_volumes()))
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, force_close=True),
        )
        self._overlays = Overlays(self._settings, self._state, self._link, self._clock, self._overlays_changed)
        self._networks = Networks(self._settings, self._state, self._overlays)
        self._downloads = guarded_session(self._settings.artifacts)
        own, of_jobs = Doors(self._http), Doors(self._downloads, self._settings.artifacts.denied_networks)
        self._shipping = Shipping(self._settings.ship_logs, own, of_jobs, self._clock, self._random, self._metrics)
        self._csi_plugins = CsiPlugins(self._settings.directory, self._clock, self._plugins_changed)
        self._csi_mounts = CsiMounts(self._csi_plugins, self._state, self._link, self._clock)
        self._allocations = Allocations(self._settings, self._state, self._link, self._clock)
        self._allocations.parts = self._parts()
        self._allocations.cores = Cores(self._drivers)
        self._allocations.reports.on_told = self._count
        await self._allocations.restore()
        runs = [alloc_id for alloc_id, runner in self._allocations.runners.items() if not runner.finished.is_set()]
        await self._networks.collect(runs)
        self._overlays.start()
        for name, loop in {
            "register": self._link.register(),
            "heartbeat": self._link.beat(),
            "follow": self._allocations.follow(),
            "report": self._allocations.reports.run(),
            "collect": self._allocations.keep_within_bounds(),
            "disconnection": self._allocations.watch_disconnection(),
            "services": self._services.run(),
            "drivers": self._watch_drivers(),
            "desk": NodeDesk(self._link, self._clock, self._handlers()).run(),
        }.items():
            self._tasks.start(name, loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._settings.exit_with_agent:
            await self._allocations.stop_all(STOP_S)
        await self._tasks.close()
        await self._allocations.close()
        await self._csi_plugins.close()
        await self._overlays.close()
        for driver in self._drivers.values():
            await driver.close()
        await self._devices.close()
        await self._shipping.close()
        await self._http.close()
        await self._downloads.close()
        await asyncio.to_thread(self._state.close)
        if self._settings.exit_with_agent:
            await asyncio.to_thread(secrets_mount.unmount_below, self._allocations.root)

    def _parts(self) -> NodeParts:
        return NodeParts(
            node=lambda: self.node,
            region=self._settings.region,
            drivers=self._drivers,
            state=self._state,
            services=self._services,
            http=self._http,
            clock=self._clock,
            random=self._random,
            host_env=self._host_environment(),
            options=self._settings.options,
            hooks=self._hooks,
            may_start=self._allocations.may_start,
            earlier=self._allocations.earlier,
            disk=self._disk_parts(),
            networks=self._networks,
            volumes=self._csi_mounts,
            csi_plugins=self._csi_plugins,
            kill_timeout_max_s=self._settings.max_kill_timeout_s,
            devices=self._devices,
        )

    def _disk_parts(self) -> DiskParts:
        return DiskParts(
            self._http,
            self._allocations.may_start,
            self._allocations.migrate_sources.get,
            asyncio.Semaphore(BUILDERS_MAX),
            self._agents_tls,
        )

    def _host_environment(self) -> dict[str, str]:
        hidden = hidden_variables(self._settings.options)
        return {name: value for name, value in os.environ.items() if name not in hidden}

    def _default_hooks(self, directory: AllocDir, place: Place) -> list[TaskHook]:
        found: list[TaskHook] = [PayloadHook(directory)]
        if shown(place.task):
            found.append(IdentityHook(directory, self._identities, self._task_api, self._clock, self._random))
        if place.task.artifacts:
            found.append(ArtifactHook(directory, self._downloads, self._settings.artifacts))
        if place.task.templates:
            found.append(self._templates(directory))
        return [*found, *self._shipping.hooks(directory, place)]

    def _templates(self, directory: AllocDir) -> TemplateHook:
        return TemplateHook(
            directory, self._caller, self._clock, self._random, self._settings.templates, self._identities
        )

    def _forgotten(self) -> None:
        """The servers lost this node: tell them everything again."""
        self._services.forget_known()
        self._allocations.tell_everything()

    # What this node is

    async def _make_node(self) -> Node:
        """Its lasting identity, what was found on the host, what the settings say."""
        settings, facts = self._settings, self._state.facts()
        identity = {
            "node_id": settings.node_id or facts.get("node_id") or self._random.uuid(),
            "secret_id": facts.get("secret_id") or self._random.uuid(),
        }
        await self._state.save_facts(identity)
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
            meta=self._meta(),
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
        own = tuple(f"driver.{name}" for name in self._drivers)
        attributes = {
            key: value
            for key, value in node.attributes.items()
            if key not in own and not key.startswith(tuple(f"{name}." for name in own))
        }
        for info in found.values():
            attributes |= info.attributes if info.detected else {}
        resources = replace(node.node_resources, devices=await self._devices.fingerprint())
        return replace(node, drivers=found, attributes=attributes, node_resources=resources)

    # Volumes

    def _volume_plugins(self, node: Node) -> dict[str, Plugin]:
        folder = self._settings.host_volume_plugin_dir
        return find_plugins(folder, self._settings.host_volumes_dir, node.id, node.node_pool)

    def _all_host_volumes(self) -> dict[str, ClientHostVolumeConfig]:
        """Those of the settings win over those of the same name that were made later."""
        return self._host_volumes.offered() | {volume.name: volume for volume in self._settings.host_volumes}

    def _volumes_changed(self) -> None:
        self._link.change(replace(self.node, host_volumes=self._all_host_volumes()))

    def _handlers(self) -> dict[str, Handler]:
        """What servers may ask of this node."""
        return {
            "host-volume.create": self._host_volumes.create,
            "host-volume.register": self._host_volumes.register,
            "host-volume.delete": self._host_volumes.delete,
            "csi.node-detach": self._csi_mounts.detach,
            "csi.node-expand": self._csi_mounts.expand,
            **CsiController(self._csi_plugins).handlers(),
        }

    def _plugins_changed(self) -> None:
        self._link.change(self._csi_plugins.of_node(self.node))

    def _overlays_changed(self) -> None:
        """Offer the overlays that work now."""
        resources = self.node.node_resources
        others = [network for network in resources.networks if not network.mode.startswith(OVERLAY)]
        own = [
            NetworkResource(mode=f"{OVERLAY}{name}", device=names(lease.vni).bridge, cidr=lease.subnet)
            for name, lease in sorted(self._overlays.ready().items())
        ]
        self._link.change(replace(self.node, node_resources=replace(resources, networks=(*others, *own))))

    def reload(self) -> None:
        """Read again, in a while, what operators change beside the configuration: CNI networks and plugins."""
        self._tasks.start("reload", self._reload())

    async def _reload(self) -> None:
        networks, plugins = await self._fingerprint.networks()
        before, resources = self.node, self.node.node_resources
        kept = [each for each in resources.networks if not each.mode.startswith(CNI_MODES)]
        attributes = {name: value for name, value in before.attributes.items() if not name.startswith(CNI_PLUGINS)}
        changed = replace(
            before,
            attributes=attributes | plugins,
            node_resources=replace(resources, networks=(*kept, *networks)),
        )
        if changed != before:
            self._link.change(changed)

    async def _watch_drivers(self) -> None:
        """Tell the servers when a driver or a device appears, vanishes or falls ill."""
        while True:
            await self._clock.sleep(CHECK_DRIVERS_S)
            node = await self._with_drivers(self.node)
            devices = node.node_resources.devices
            if _health(node) != _health(self.node) or devices != self.node.node_resources.devices:
                resources = replace(self.node.node_resources, devices=devices)
                changed = replace(self.node, drivers=node.drivers, attributes=node.attributes, node_resources=resources)
                self._link.change(changed)

    def _dynamic_meta(self) -> dict[str, str | None]:
        """Keys that were set through the API; None for those that were unset."""
        facts = self._state.facts().items()
        return {name.removeprefix(META_FACT): json.loads(value) for name, value in facts if name.startswith(META_FACT)}

    def _meta(self) -> dict[str, str]:
        merged = {**self._settings.meta, **self._dynamic_meta()}
        return {key: value for key, value in merged.items() if value is not None}

    async def metadata(self) -> dict[str, Any]:
        """The node's metadata, and where it comes from."""
        return {"Meta": self.node.meta, "Dynamic": self._dynamic_meta(), "Static": self._settings.meta}

    async def set_metadata(self, changes: dict[str, str | None]) -> dict[str, Any]:
        """Set or unset keys; they stay so when the agent restarts."""
        for key in changes:
            if not META_KEY.fullmatch(key):
                raise invalid(f'meta key "{key}" is not a name of letters, digits, "_", "-" and "."')
        await self._state.save_facts({META_FACT + key: json.dumps(value) for key, value in changes.items()})
        self._link.change(replace(self.node, meta=self._meta()))
        return await self.metadata()

    # What the HTTP edge asks

    def has_allocation(self, alloc_id: str) -> bool:
        """Whether this node knows the allocation."""
        return alloc_id in self._allocations.runners

    async def list_files(self, alloc_id: str, path: str) -> Sequence[AllocFileInfo]:
        """Entries of a directory of the allocation."""
        return await asyncio.to_thread(files.list_files, self._directory(alloc_id), path)

    async def stat_file(self, alloc_id: str, path: str) -> AllocFileInfo:
        """One file or directory."""
        return await asyncio.to_thread(files.stat_file, self._directory(alloc_id), path)

    async def read_file(self, alloc_id: str, path: str, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of a file."""
        length = READ_MAX if limit < 0 else min(limit, READ_MAX)
        return await asyncio.to_thread(files.read_file, self._directory(alloc_id), path, offset, length)

    def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """A file, then what is appended."""
        directory = self._directory(alloc_id)
        return files.stream_file(directory, path, self._clock, offset=offset, origin=origin, follow=follow)

    def stream_logs(
        self, alloc_id: str, task: str, stream: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """A task's output over all rotated files."""
        state = self._allocations.runner(alloc_id).states().get(task)
        if state is None:
            raise invalid(f'unknown task name "{task}"')
        if stream not in {"stdout", "stderr"}:
            raise invalid("must provide log type (stdout/stderr)")
        logs = files.LogFiles(self._directory(alloc_id), task, stream)
        if not logs.numbers() and state.state == "pending" and not state.restarts:
            raise not_found(f'task "{task}" not started yet. No logs available')
        return files.stream_logs(logs, self._clock, offset=offset, origin=origin, follow=follow)

    def _directory(self, alloc_id: str) -> AllocDir:
        return self._allocations.runner(alloc_id).directory

    def command_of_action(self, alloc_id: str, job_id: str, task: str, action: str) -> list[str]:
        """The command that an action of a job is in a task of one of its allocations."""
        alloc = self._allocations.runner(alloc_id)
        if alloc.job.id != job_id:
            raise invalid(f'allocation "{alloc_id}" is of job "{alloc.job.id}", not of "{job_id}"')
        runner = self._task_runner(alloc_id, task)
        found = next((each for each in runner.task.actions if each.name == action), None)
        if found is None:
            known = ", ".join(each.name for each in runner.task.actions) or "none"
            raise invalid(f'task "{task}" has no action "{action}"; it has {known}')
        targets = references(runner.place, runner.env)
        return [interpolate(word, targets) for word in (found.command, *found.args)]

    def _task_runner(self, alloc_id: str, task: str) -> TaskRunner:
        runner = self._allocations.runner(alloc_id).runners.get(task)
        if runner is None:
            raise invalid(f'unknown task name "{task}"')
        return runner

    async def exec(self, alloc_id: str, task: str, command: Sequence[str], *, tty: bool) -> TaskSession:
        """Run a command inside a running task."""
        if not self._settings.exec_allowed:
            raise LepaError("denied", "commands inside tasks are not allowed on this node")
        runner = self._task_runner(alloc_id, task)
        if runner.handle is None or runner.state.state != "running":
            raise invalid(f'task "{task}" is not running')
        driver = self._drivers[runner.task.driver]
        if not driver.capabilities.exec:
            raise invalid(f'driver "{driver.name}" cannot run commands inside a task')
        return await driver.exec(runner.handle.task_id, command, tty=tty)

    async def snapshot(self, alloc_id: str, token: str) -> AsyncGenerator[bytes]:
        """The data of an allocation that moves to another node, once it has ended."""
        runner = self._allocations.runner(alloc_id)
        if not opens(token, self.node.secret_id, alloc_id):
            raise LepaError("denied", "the token does not open the data of this allocation")
        try:
            async with asyncio.timeout(MIGRATE_WAIT_S):
                await runner.finished.wait()
        except TimeoutError as error:
            text = f"allocation {alloc_id} has not ended within {MIGRATE_WAIT_S:g} s"
            raise LepaError("conflict", text) from error
        return pack(runner.directory, list(runner.runners))

    async def allocation_stats(self, alloc_id: str, task: str = "") -> AllocResourceUsage:
        """Present use of the allocation's tasks."""
        usages = {}
        for name, runner in self._allocations.runner(alloc_id).runners.items():
            if runner.handle is not None and task in {"", name}:
                with contextlib.suppress(LepaError):  # it has just ended
                    usages[name] = await self._drivers[runner.task.driver].stats(runner.handle.task_id)
        return node_stats.sum_usage(usages, self._clock.now_ns())

    async def checks(self, alloc_id: str) -> dict[str, CheckQueryResult]:
        """Last results of the allocation's checks."""
        return dict(self._allocations.runner(alloc_id).checks.results)

    async def restart(self, alloc_id: str, task: str = "", *, all_tasks: bool = False) -> None:
        """Restart one task, or all that run; all_tasks: begin the allocation again, ended tasks included."""
        self._allocations.runner(alloc_id).restart(task, all_tasks=all_tasks)

    async def signal(self, alloc_id: str, task: str, signal: str) -> None:
        """Signal one task, or all that run."""
        await self._allocations.runner(alloc_id).signal(task, signal)

    async def collect(self, alloc_id: str = "") -> None:
        """Remove an ended allocation from the disk, or all of them."""
        await self._allocations.collect(alloc_id)

    async def host_stats(self) -> HostStats:
        """Present use of the host."""
        stats = await asyncio.to_thread(node_stats.host_stats, self.alloc_root, self._clock.now_ns())
        return replace(stats, device_stats=await self._devices.stats())


def _health(node: Node) -> dict[str, tuple[bool, bool]]:
    return {name: (info.detected, info.healthy) for name, info in node.drivers.items()}


def _reserved(settings: ClientSettings) -> NodeReservedResources:
    reserved = settings.reserved
    return NodeReservedResources(
        cpu=NodeReservedCpuResources(cpu_shares=reserved.cpu, reserved_cpu_cores=reserved.cores),
        memory=NodeReservedMemoryResources(memory_mb=reserved.memory_mb),
        disk=NodeReservedDiskResources(disk_mb=reserved.disk_mb),
        networks=NodeReservedNetworkResources(reserved_host_ports=reserved.ports),
    )
