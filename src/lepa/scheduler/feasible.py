"""Pure: may this node run this group, and if not, why.

A `Check` looks at one `Column`: a property of a node that many nodes share, such as the value of `${meta.rack}` or
whether a driver works. Whoever holds many nodes reads a column once per node, and asks the check once per *distinct*
value; ten thousand nodes in three racks cost three verdicts. Checks read only the node, never what runs on it, so a
verdict holds until the node changes. `distinct_hosts` and `distinct_property` depend on the plan and are handled in
`lepa.scheduler.rank`.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any, Protocol

from lepa.model.constraint import Affinity, Constraint
from lepa.model.job import Job, TaskGroup, VolumeRequest
from lepa.model.node import ClientHostVolumeConfig, Node
from lepa.model.resources import RequestedDevice
from lepa.scheduler.devices import devices_suffice
from lepa.scheduler.operators import satisfies
from lepa.scheduler.volumes import BoundRequest

DISTINCT_HOSTS = "distinct_hosts"
DISTINCT_PROPERTY = "distinct_property"
ALL_NODES_POOL = "all"


class Column(Protocol):
    """A property of nodes, itself a hashable value so that it can name a kept column."""

    def read(self, node: Node) -> Hashable:
        """Its value on one node."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Check:
    """A requirement on one column. reason: how AllocMetric names the nodes that fail it. passes: of what the column
    reads of a node."""

    reason: str
    column: Column
    passes: Callable[[Any], bool]

    def allows(self, node: Node) -> bool:
        """Whether one node passes."""
        return self.passes(self.column.read(node))


def failed_check(node: Node, checks: Iterable[Check]) -> str:
    """The reason of the first check that a node fails, or ""."""
    return next((check.reason for check in checks if not check.allows(node)), "")


def group_checks(job: Job, group: TaskGroup) -> list[Check]:
    """Everything a node must offer to run a group, cheapest and most telling first."""
    checks = [constraint_check(constraint) for constraint in _plain(job.constraints)]
    checks += [_driver_check(driver) for driver in sorted({task.driver for task in group.tasks})]
    checks += [constraint_check(constraint) for constraint in _plain(group.constraints)]
    checks += [constraint_check(c) for task in group.tasks for c in _plain(task.constraints)]
    checks += _volume_checks(job, group)
    checks += _network_checks(group)
    devices = tuple(device for task in group.tasks for device in task.resources.devices)
    if devices:
        checks.append(Check("missing devices", DevicesColumn(devices), bool))
    return checks


def _plain(constraints: Iterable[Constraint]) -> list[Constraint]:
    return [c for c in constraints if c.operand not in (DISTINCT_HOSTS, DISTINCT_PROPERTY)]


def distinct_constraints(job: Job, group: TaskGroup) -> list[tuple[Constraint, bool]]:
    """`distinct_hosts` and `distinct_property` with whether they count the whole job or only the group.

    `distinct_hosts = false` switches the constraint off.
    """
    whole_job = [(c, True) for c in job.constraints if c.operand in (DISTINCT_HOSTS, DISTINCT_PROPERTY)]
    own = [(c, False) for c in group.constraints]
    own += [(c, False) for task in group.tasks for c in task.constraints]
    own = [(c, whole) for c, whole in own if c.operand in (DISTINCT_HOSTS, DISTINCT_PROPERTY)]
    return [(c, whole) for c, whole in whole_job + own if not (c.operand == DISTINCT_HOSTS and c.rtarget == "false")]


@dataclass(frozen=True)
class ReadyColumn:
    """Whether a node may get new work at all."""

    def read(self, node: Node) -> bool:
        return is_ready(node)


def is_ready(node: Node) -> bool:
    """Whether a node may get new work."""
    return node.status == "ready" and node.drain_strategy is None and node.scheduling_eligibility != "ineligible"


@dataclass(frozen=True)
class FieldColumn:
    """An attribute of `Node` by name, such as "datacenter", "node_pool", "node_class", "computed_class"."""

    name: str

    def read(self, node: Node) -> Hashable:
        value: Hashable = getattr(node, self.name)
        return value


def pool_matches(pool: str, wanted: str) -> bool:
    """Whether a node of `pool` may run jobs of pool `wanted`; pool "all" holds every node."""
    return wanted in (ALL_NODES_POOL, pool)


def datacenter_matches(datacenter: str, globs: tuple[str, ...]) -> bool:
    """Whether one of the globs matches."""
    return any(_glob(glob).fullmatch(datacenter) is not None for glob in globs)


@lru_cache(maxsize=1024)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@dataclass(frozen=True)
class TargetColumn:
    """The value of a target such as `${attr.kernel.name}`; None where the node has none."""

    target: str

    def read(self, node: Node) -> str | None:
        return resolve_target(node, self.target)


@dataclass(frozen=True)
class TargetPairColumn:
    """Both sides of a constraint whose value is itself a target."""

    left: str
    right: str

    def read(self, node: Node) -> tuple[str | None, str | None]:
        return resolve_target(node, self.left), resolve_target(node, self.right)


_NODE_TARGETS: dict[str, Callable[[Node], str]] = {
    "node.unique.id": lambda node: node.id,
    "node.unique.name": lambda node: node.name,
    "node.datacenter": lambda node: node.datacenter,
    "node.class": lambda node: node.node_class,
    "node.pool": lambda node: node.node_pool,
}


def resolve_target(node: Node, target: str) -> str | None:
    """A literal as it is, `${node.*}`, `${attr.*}`, `${meta.*}` as the node has it, None when it does not."""
    if not (target.startswith("${") and target.endswith("}")):
        return target
    name = target[2:-1].strip()
    if name in _NODE_TARGETS:
        return _NODE_TARGETS[name](node)
    scope, _, key = name.partition(".")
    if scope == "attr":
        return node.attributes.get(key)
    if scope == "meta":
        return node.meta.get(key)
    return None


_INTERPOLATION = re.compile(r"\$\{[^}]*\}")


def interpolate(node: Node, text: str) -> str:
    """`text` with every target that the node has filled in."""
    return _INTERPOLATION.sub(lambda match: resolve_target(node, match[0]) or match[0], text)


def all_constraints(job: Job, group: TaskGroup) -> list[Constraint]:
    """The constraints of a group: the job's, its own and its tasks'."""
    return [*job.constraints, *group.constraints, *(c for task in group.tasks for c in task.constraints)]


def constraint_text(constraint: Constraint) -> str:
    """How AllocMetric names a constraint: `${attr.kernel.name} = linux`."""
    if constraint.operand == DISTINCT_HOSTS:
        return DISTINCT_HOSTS
    if constraint.operand == DISTINCT_PROPERTY:
        return f"{DISTINCT_PROPERTY}: {constraint.ltarget}"
    return f"{constraint.ltarget} {constraint.operand} {constraint.rtarget}".strip()


def constraint_check(constraint: Constraint | Affinity) -> Check:
    """A constraint or an affinity as a check."""
    left, operand, right = constraint.ltarget, constraint.operand, constraint.rtarget
    text = f"{left} {operand} {right}".strip()
    if right.startswith("${"):
        return Check(text, TargetPairColumn(left, right), lambda pair: satisfies(pair[0], operand, pair[1]))
    return Check(text, TargetColumn(left), lambda value: satisfies(value, operand, right))


@dataclass(frozen=True)
class DriverColumn:
    """Whether a driver was found and is healthy."""

    driver: str

    def read(self, node: Node) -> bool:
        info = node.drivers.get(self.driver)
        if info is not None:
            return info.detected and info.healthy
        return node.attributes.get(f"driver.{self.driver}", "").lower() in ("1", "true")


def _driver_check(driver: str) -> Check:
    return Check("missing drivers", DriverColumn(driver), bool)


@dataclass(frozen=True)
class HostVolumeColumn:
    """What a node offers under a volume's name: "", "read-only" or "writable".

    A volume that was made while the agent ran (it has an id) is one of its namespace, and used in its own modes only.
    """

    source: str
    namespace: str = "default"
    access_mode: str = ""
    attachment_mode: str = ""
    volume_id: str = ""

    def read(self, node: Node) -> str:
        volume = node.host_volumes.get(self.source)
        if volume is None or (self.volume_id and volume.id != self.volume_id):
            return ""
        if volume.id and not self._fits(volume):
            return ""
        return "read-only" if volume.read_only else "writable"

    def _fits(self, volume: ClientHostVolumeConfig) -> bool:
        if volume.namespace not in ("", self.namespace):
            return False
        asked = ((self.access_mode, volume.access_modes), (self.attachment_mode, volume.attachment_modes))
        return all(not mode or not offered or mode in offered for mode, offered in asked)


@dataclass(frozen=True)
class CsiPluginColumn:
    """Whether a node has a CSI plugin for its volumes: "", "unhealthy" or "healthy"."""

    plugin_id: str

    def read(self, node: Node) -> str:
        info = node.csi_node_plugins.get(self.plugin_id)
        return "" if info is None else "healthy" if info.healthy else "unhealthy"


@dataclass(frozen=True)
class CsiTopologyColumn:
    """Whether a node is where a CSI volume is; a volume without topologies is everywhere."""

    plugin_id: str
    segments: tuple[tuple[tuple[str, str], ...], ...]

    def read(self, node: Node) -> bool:
        info = node.csi_node_plugins.get(self.plugin_id)
        place = info.node_info.accessible_topology if info is not None and info.node_info is not None else None
        here = place.segments if place is not None else {}
        return any(all(here.get(name) == value for name, value in each) for each in self.segments)


def _volume_checks(job: Job, group: TaskGroup) -> list[Check]:
    """What nodes must have.

    Only a bound group (`scheduler.volumes.bind`) says what its CSI volumes need, and which volume of several
    (`per_alloc`) each allocation has.
    """
    checks = []
    for request in group.volumes.values():
        if request.type == "host" and not request.per_alloc:
            checks.append(_host_volume_check(job, request))
        elif isinstance(request, BoundRequest):
            checks += _csi_checks(request)
    return checks


def _host_volume_check(job: Job, request: VolumeRequest) -> Check:
    enough = ("read-only", "writable") if request.read_only else ("writable",)
    volume_id = request.volume_id if isinstance(request, BoundRequest) else ""
    name, modes = request.source or request.name, (request.access_mode, request.attachment_mode)
    column = HostVolumeColumn(name, job.namespace, *modes, volume_id)
    return Check("missing compatible host volumes", column, enough.__contains__)


def _csi_checks(request: BoundRequest) -> list[Check]:
    if request.refusal:
        return [Check(request.refusal, FieldColumn("id"), lambda _: False)]
    plugin, column = request.plugin_id, CsiPluginColumn(request.plugin_id)
    checks = [
        Check(f"CSI plugin {plugin} is missing from client", column, bool),
        Check(f"CSI plugin {plugin} is unhealthy on client", column, "healthy".__eq__),
    ]
    if request.topologies:
        segments = tuple(tuple(sorted(each.segments.items())) for each in request.topologies)
        topology = CsiTopologyColumn(plugin, segments)
        checks.append(Check("did not meet topology requirement", topology, bool))
    return checks


@dataclass(frozen=True)
class NetworkModeColumn:
    """Whether a node offers a network mode; "", "host" and "none" are everywhere."""

    mode: str

    def read(self, node: Node) -> bool:
        has = node.node_resources
        offered = {network.mode for network in has.networks} | {network.mode for network in has.node_networks}
        return self.mode in offered


@dataclass(frozen=True)
class HostNetworkColumn:
    """Whether a node has an address under the name a port asks for."""

    host_network: str

    def read(self, node: Node) -> bool:
        wanted = interpolate(node, self.host_network)
        networks = node.node_resources.node_networks
        return wanted == "default" or any(a.alias == wanted for network in networks for a in network.addresses)


def _network_checks(group: TaskGroup) -> list[Check]:
    checks = []
    for network in group.networks:
        if network.mode not in ("", "host", "none"):
            checks.append(Check("missing network", NetworkModeColumn(network.mode), bool))
        for port in (*network.reserved_ports, *network.dynamic_ports):
            if port.host_network not in ("", "default"):
                reason = f'missing host network "{port.host_network}" for port "{port.label}"'
                checks.append(Check(reason, HostNetworkColumn(port.host_network), bool))
    return checks


@dataclass(frozen=True)
class DevicesColumn:
    """Whether a node has all requested devices, whoever uses them now."""

    requests: tuple[RequestedDevice, ...]

    def read(self, node: Node) -> bool:
        return devices_suffice(node, self.requests)


@dataclass(frozen=True)
class ReservedPortsColumn:
    """The host ports that the operator keeps back, as text."""

    def read(self, node: Node) -> str:
        return node.reserved_resources.networks.reserved_host_ports
