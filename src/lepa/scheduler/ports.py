"""Pure: which host ports an allocation gets on a node.

A port is taken per address: the same number may be used on two host networks. Ports that the operator keeps back, for
the whole node or for one address, are never given. A dynamic port is looked for upwards from a seeded start, so that a
port that was just freed is not at once given again.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.node import Node
from lepa.model.resources import AllocatedPortMapping, NetworkResource, Port
from lepa.model.usage import has_ended, is_stopped
from lepa.scheduler.chance import mix
from lepa.scheduler.feasible import interpolate

ANY_ADDRESS = ""
PORT_MAX = 65_535
DYNAMIC_FAILED = "network: dynamic port selection failed"


class PortsGiven(NamedTuple):
    """networks: as asked, with addresses and port numbers filled in. mappings: the same ports in a flat list."""

    networks: tuple[NetworkResource, ...] = ()
    mappings: tuple[AllocatedPortMapping, ...] = ()


@lru_cache(maxsize=4096)
def parse_ports(text: str) -> frozenset[int]:
    """The ports in a text such as "22,80,8000-8010"; parts that are not ports are left out."""
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit() and (high.isdigit() or not high):
            found.update(range(int(low), min(int(high or low), PORT_MAX) + 1))
    return frozenset(found)


def held_ports(alloc: Allocation) -> list[tuple[str, int]]:
    """Address and number of every host port an allocation was given."""
    resources = alloc.allocated_resources
    held = [(port.host_ip, port.value) for port in resources.shared.ports if not port.ignore_collision]
    networks = list(resources.shared.networks) if not resources.shared.ports else []
    for task in resources.tasks.values():
        networks += task.networks
    for network in networks:
        held += [(network.ip, port.value) for port in (*network.reserved_ports, *network.dynamic_ports)]
    return held


def holds_ports_against(alloc: Allocation, job: tuple[str, str]) -> bool:
    """Whether the ports of an allocation are closed to a new allocation of `job` (namespace and id).

    One that was told to stop still listens until its client says otherwise. Its own job, and whoever evicted it, may
    already plan with its static ports, because a client starts them only after the one before has ended.
    """
    gives_way = alloc.desired_status == "evict" or (alloc.namespace, alloc.job_id) == job
    return not has_ended(alloc) and not (is_stopped(alloc) and gives_way)


class NodePorts:
    """The ports of one node: what is taken, what is still being given up, and addresses by host network.

    allocs: every allocation on the node that has not ended. job: namespace and id of the job that asks.
    """

    def __init__(self, node: Node, allocs: Iterable[Allocation], job: tuple[str, str]) -> None:
        self._node = node
        self._taken: dict[str, set[int]] = {}
        self._closing: set[tuple[str, int]] = set()
        for alloc in allocs:
            if holds_ports_against(alloc, job):
                self._take(held_ports(alloc))
            elif not has_ended(alloc):
                self._closing.update(held_ports(alloc))
        self._reserved = parse_ports(node.reserved_resources.networks.reserved_host_ports)
        self._addresses = _addresses_by_network(node)

    def assign(self, networks: Iterable[NetworkResource], seed: int) -> PortsGiven | str:
        """Take ports for all networks asked for, or say why that cannot be; then nothing is taken."""
        before = {address: set(ports) for address, ports in self._taken.items()}
        given: list[NetworkResource] = []
        mappings: list[AllocatedPortMapping] = []
        for network in networks:
            offer = self._assign_network(network, mix(seed, len(given)))
            if isinstance(offer, str):
                self._taken = before
                return offer
            given.append(offer[0])
            mappings += offer[1]
        return PortsGiven(tuple(given), tuple(mappings))

    def static_collision(self, ports: Iterable[Port]) -> str:
        """The first static port that is not free, in the words of AllocMetric, or ""."""
        for port in ports:
            address, reserved = self._address_of(port)
            if not port.ignore_collision and not self._is_free(address, reserved, port.value):
                return f"network: reserved port collision {port.label}={port.value}"
        return ""

    def _assign_network(
        self, network: NetworkResource, seed: int
    ) -> tuple[NetworkResource, list[AllocatedPortMapping]] | str:
        static: list[Port] = []
        dynamic: list[Port] = []
        mappings: list[AllocatedPortMapping] = []
        for port in network.reserved_ports:
            collision = self.static_collision((port,))
            if collision:
                return collision
            static.append(self._given(port, port.value, mappings))
        for position, port in enumerate(network.dynamic_ports):
            value = self._free_dynamic_port(port, mix(seed, position))
            if value is None:
                return DYNAMIC_FAILED
            dynamic.append(self._given(port, value, mappings))
        address = mappings[0].host_ip if mappings else self._addresses["default"][0]
        filled = msgspec.structs.replace(
            network, ip=address, reserved_ports=tuple(static), dynamic_ports=tuple(dynamic)
        )
        return filled, mappings

    def _given(self, port: Port, value: int, mappings: list[AllocatedPortMapping]) -> Port:
        address, _ = self._address_of(port)
        self._take([(address, value)])
        to = value if port.to == -1 else port.to
        mappings.append(
            AllocatedPortMapping(
                label=port.label, value=value, to=to, host_ip=address, ignore_collision=port.ignore_collision
            )
        )
        return msgspec.structs.replace(port, value=value, to=to)

    def _free_dynamic_port(self, port: Port, seed: int) -> int | None:
        address, reserved = self._address_of(port)
        low = self._node.node_resources.min_dynamic_port
        span = self._node.node_resources.max_dynamic_port - low + 1
        start = seed % max(1, span)
        for step in range(span):
            value = low + (start + step) % span
            if (address, value) not in self._closing and self._is_free(address, reserved, value):
                return value
        return None

    def _is_free(self, address: str, reserved: frozenset[int], value: int) -> bool:
        if value in self._reserved or value in reserved:
            return False
        if address == ANY_ADDRESS:
            return not any(value in ports for ports in self._taken.values())
        return value not in self._taken.get(address, ()) and value not in self._taken.get(ANY_ADDRESS, ())

    def _address_of(self, port: Port) -> tuple[str, frozenset[int]]:
        wanted = interpolate(self._node, port.host_network) or "default"
        return self._addresses.get(wanted, self._addresses["default"])

    def _take(self, ports: Iterable[tuple[str, int]]) -> None:
        for address, value in ports:
            self._taken.setdefault("" if address == "0.0.0.0" else address, set()).add(value)


def _addresses_by_network(node: Node) -> dict[str, tuple[str, frozenset[int]]]:
    """Address and reserved ports of each host network, and of "default"."""
    found: dict[str, tuple[str, frozenset[int]]] = {}
    for network in node.node_resources.node_networks:
        for address in network.addresses:
            named = node.host_networks.get(address.alias)
            reserved = parse_ports(address.reserved_ports) | parse_ports(named.reserved_ports if named else "")
            found.setdefault(address.alias or "default", (address.address, reserved))
    if "default" not in found:
        networks = node.node_resources.networks
        address_text = networks[0].ip if networks else node.attributes.get("unique.network.ip-address", ANY_ADDRESS)
        found["default"] = (address_text, frozenset())
    return found
