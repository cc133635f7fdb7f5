"""Gives groups of tasks a network of their own: makes the namespace, attaches it, and takes both away again.

    ""  host         the host's network: nothing is made
    none             a namespace with nothing but loopback
    bridge           the node's own bridge, with mapped host ports
    cni/NAME         a network that the operator described in `cni_config_dir`
    overlay/NAME     a network that all nodes of the cluster share (`overlays`)

What was made is on disk before the first plugin runs, with all that is needed to take it away, so that an agent that is
killed anywhere in between leaves nothing that its successor does not find. A namespace outlives the agent, and a later
agent takes it up as it is; one that vanished with its host is made anew.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from lepa.client.local_state import LocalState, NetworkRecord
from lepa.client.network import cni, conflists, namespace, resolving
from lepa.client.network.cni import PluginList
from lepa.client.network.cni_programs import CniPrograms
from lepa.client.settings import ClientSettings
from lepa.model.allocation import Allocation, AllocNetworkStatus
from lepa.model.errors import LepaError, invalid
from lepa.model.job import Job, TaskGroup
from lepa.model.resources import AllocatedPortMapping

log = logging.getLogger(__name__)

ON_HOST = ("", "host")
LOOPBACK = ("127.", "::1")


class GroupNetwork(NamedTuple):
    """The network of one allocation's tasks. namespace "": the host's. hosts: the path of a file for /etc/hosts."""

    namespace: str = ""
    hosts: str = ""
    status: AllocNetworkStatus | None = None


HOST_NETWORK = GroupNetwork()


class OverlayNetworks(Protocol):
    """This node's part in overlays."""

    async def plugin_list(self, name: str) -> PluginList:
        """The overlay on this node, ready to be attached to. Raises LepaError."""

    async def enter(self, name: str, path: Path) -> tuple[str, ...]:
        """Let a namespace that was attached find names; the addresses of its name servers."""


class Networks:
    """Networks of this node's allocations."""

    def __init__(self, settings: ClientSettings, state: LocalState, overlays: OverlayNetworks) -> None:
        self._settings = settings
        self._state = state
        self._overlays = overlays
        self._programs = CniPrograms(settings.cni_path)
        self._directory = settings.directory / "netns"
        self._attached: dict[str, GroupNetwork] = {}

    async def attach(self, alloc: Allocation, job: Job, group: TaskGroup) -> GroupNetwork:
        """The network of an allocation, made when it is not there yet. Raises LepaError."""
        if (known := self._attached.get(alloc.id)) is not None:
            return known
        mode = group.networks[0].mode if group.networks else ""
        if mode in ON_HOST:
            return HOST_NETWORK
        found = await self._take_up(alloc.id) or await self._make(alloc, job, group, mode)
        self._attached[alloc.id] = found
        return found

    async def _take_up(self, alloc_id: str) -> GroupNetwork | None:
        """What an earlier agent made, when it is still there and whole."""
        record = self._state.network(alloc_id)
        if record is None:
            return None
        if record.status is not None and await asyncio.to_thread(namespace.exists, Path(record.namespace)):
            return GroupNetwork(record.namespace, record.hosts, record.status)
        await self.detach(alloc_id)
        return None

    async def _make(self, alloc: Allocation, job: Job, group: TaskGroup, mode: str) -> GroupNetwork:
        network = await self._plugin_list(mode)
        path = self._directory / alloc.id
        record = NetworkRecord(
            mode=mode,
            namespace=str(path),
            hosts=str(path.with_suffix(".hosts")),
            name=network.name if network else "",
            version=network.version if network else "",
            plugins=tuple(dict(plugin) for plugin in network.plugins) if network else (),
            facts=cni.runtime_facts(self._mapped_ports(alloc)),
            arguments=_arguments(alloc, job, group, self._settings.region),
        )
        await self._state.save_network(alloc.id, record)
        try:
            await asyncio.to_thread(_make_namespace, path)
            status = await self._attach(alloc, group, record, network)
        except LepaError:
            await self.detach(alloc.id)
            raise
        await asyncio.to_thread(
            Path(record.hosts).write_text, resolving.hosts_file(status.address, _host_name(alloc, group))
        )
        return GroupNetwork(record.namespace, record.hosts, status)

    async def _plugin_list(self, mode: str) -> PluginList | None:
        kind, _, name = mode.partition("/")
        if mode == "none":
            return None
        if mode == "bridge":
            return self._bridge()
        if kind == "cni" and name:
            return await asyncio.to_thread(find_list, Path(self._settings.cni_config_dir), name)
        if kind == "overlay" and name:
            return await self._overlays.plugin_list(name)
        raise LepaError(
            "unsupported", f'network mode "{mode}" is not known; known: host, none, bridge, cni/…, overlay/…'
        )

    def _bridge(self) -> PluginList:
        settings = self._settings
        return conflists.bridge(
            settings.bridge_name,
            settings.bridge_name,
            settings.bridge_subnet,
            settings.bridge_subnet_ipv6,
            str(settings.directory / "cni"),
            hairpin=settings.bridge_hairpin,
        )

    def _mapped_ports(self, alloc: Allocation) -> list[AllocatedPortMapping]:
        """Host ports to map. Those of the default network are bound on every address, as Nomad does."""
        wildcard = self._settings.bind_wildcard and not self._settings.host_networks
        return [
            AllocatedPortMapping(label=port.label, value=port.value, to=port.to, host_ip=_bound(port.host_ip, wildcard))
            for port in alloc.allocated_resources.shared.ports
        ]

    async def _attach(
        self, alloc: Allocation, group: TaskGroup, record: NetworkRecord, network: PluginList | None
    ) -> AllocNetworkStatus:
        wanted = group.networks[0]
        path = Path(record.namespace)
        result: dict[str, Any] | None = None
        given, servers = cni.Attached(interface="lo"), tuple[str, ...]()
        if network is not None:
            result = await self._programs.add(network, alloc.id, path, record.facts, record.arguments)
            given = cni.attached(result)
            kind, _, name = record.mode.partition("/")
            servers = await self._overlays.enter(name, path) if kind == "overlay" else ()
        dns = resolving.name_service(wanted.dns, given, servers, await asyncio.to_thread(resolving.host_files))
        status = AllocNetworkStatus(
            interface_name=given.interface, address=given.address, address_ipv6=given.address_ipv6, dns=dns
        )
        await self._state.save_network(alloc.id, replace(record, result=result, status=status))
        return status

    async def detach(self, alloc_id: str) -> None:
        """Take an allocation's network away; nothing happens when it has none."""
        self._attached.pop(alloc_id, None)
        record = self._state.network(alloc_id)
        if record is None:
            return
        path = Path(record.namespace)
        there = await asyncio.to_thread(namespace.exists, path)
        if record.plugins:
            network = PluginList(record.name, record.version, record.plugins)
            await self._programs.delete(
                network, alloc_id, path if there else None, record.facts, record.arguments, record.result
            )
        try:
            await asyncio.to_thread(_remove_files, path, Path(record.hosts))
        except OSError as error:
            log.warning("network namespace was not removed alloc_id=%s error=%s", alloc_id, error)
        await self._state.drop_network(alloc_id)

    async def collect(self, known: Iterable[str]) -> None:
        """Take away the networks of allocations that this node does not know."""
        for alloc_id in self._state.networks().keys() - set(known):
            log.warning("network of an unknown allocation is removed alloc_id=%s", alloc_id)
            await self.detach(alloc_id)


def _make_namespace(path: Path) -> None:
    namespace.remove(path)
    namespace.make(path)


def _remove_files(path: Path, hosts: Path) -> None:
    namespace.remove(path)
    hosts.unlink(missing_ok=True)


def _bound(address: str, wildcard: bool) -> str:
    return "" if wildcard and not address.startswith(LOOPBACK) else address


def _host_name(alloc: Allocation, group: TaskGroup) -> str:
    wanted = group.networks[0].hostname
    return wanted if wanted and "${" not in wanted else alloc.id[:8]


def _arguments(alloc: Allocation, job: Job, group: TaskGroup, region: str) -> dict[str, str]:
    """What plugins are told of the allocation, under Nomad's names. Values that would break the list are left out."""
    told: Mapping[str, str] = {
        "NOMAD_REGION": region,
        "NOMAD_NAMESPACE": alloc.namespace,
        "NOMAD_JOB_ID": job.id,
        "NOMAD_GROUP_NAME": group.name,
        "NOMAD_ALLOC_ID": alloc.id,
    }
    own = group.networks[0].cni
    return {name: value for name, value in told.items() if ";" not in value} | (own.args if own else {})


def find_list(directory: Path, name: str) -> PluginList:
    """The operator's network of this name, from the first file that describes it. Raises LepaError(invalid)."""
    found = lists_in(directory)
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise invalid(f'no CNI network "{name}" in {directory} (cni_config_dir); known: {known}')
    return found[name]


def lists_in(directory: Path) -> dict[str, PluginList]:
    """Networks that files of a directory describe, by name. A file that cannot be understood is logged and left out."""
    found: dict[str, PluginList] = {}
    for path in sorted(directory.glob("*")) if directory.is_dir() else ():
        if path.suffix not in {".conflist", ".conf", ".json"}:
            continue
        try:
            network = cni.parse_list(path.read_text(errors="replace"), str(path))
        except (OSError, LepaError) as error:
            log.warning("CNI network is left out path=%s error=%s", path, error)
            continue
        found.setdefault(network.name, network)
    return found
