"""Pure: services and nodes as one immutable snapshot, for DNS, ingress and the Consul views.

A watcher builds a table with `ServiceTable.build` and replaces single services with `with_service`; readers keep a
table for as long as they like and never lock. Rows that did not change are the very same objects from one table to
the next, so that a reader can tell with `is` which of its derived answers still hold.

Names are matched without regard to case (DNS does so), and belong to a namespace. All row order is by instance id.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

import msgspec

from lepa.model.service import CheckState, ServiceRegistration


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One registered instance of a service.

    address: IP or host name; empty means the address of the node. port: 0 when the service has none. healthy: whether
    it may be given to clients. status: "passing", "warning" or "critical". weight: its share beside its peers, as in an
    SRV record; warning_weight: the same while it warns. checks: those that its registration tells of. agent: the agent
    that took it from outside the jobs. Indexes are 0 where they are not told.
    """

    id: str
    service: str
    namespace: str = "default"
    node_id: str = ""
    node_name: str = ""
    datacenter: str = ""
    region: str = ""
    address: str = ""
    port: int = 0
    tags: tuple[str, ...] = ()
    job_id: str = ""
    alloc_id: str = ""
    healthy: bool = True
    status: str = "passing"
    weight: int = 1
    warning_weight: int = 1
    meta: tuple[tuple[str, str], ...] = ()
    checks: tuple[CheckState, ...] = ()
    agent: str = ""
    create_index: int = 0
    modify_index: int = 0

    @classmethod
    def of(cls, told: ServiceRegistration, *, node_name: str, region: str = "") -> "Instance":
        """The instance that a registration tells of."""
        return cls(
            id=told.id,
            service=told.service_name,
            namespace=told.namespace or "default",
            node_id=told.node_id,
            node_name=node_name,
            datacenter=told.datacenter,
            region=region,
            address=told.address,
            port=told.port,
            tags=told.tags,
            job_id=told.job_id,
            alloc_id=told.alloc_id,
            healthy=told.status != "critical",
            status=told.status,
            weight=told.weight,
            warning_weight=told.warning_weight,
            meta=tuple(sorted(told.meta.items())),
            checks=told.checks,
            agent=told.agent,
            create_index=told.create_index,
            modify_index=told.modify_index,
        )

    @property
    def share(self) -> int:
        """The weight that holds now."""
        return self.warning_weight if self.status == "warning" else self.weight


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node that has a name. address: IP or host name. meta: what its operator said of it, as pairs."""

    name: str
    address: str
    id: str = ""
    datacenter: str = ""
    region: str = ""
    meta: tuple[tuple[str, str], ...] = ()


class Rows(msgspec.Struct, frozen=True):
    """The instances of one service: all of them, and those that may be given to clients."""

    all: tuple[Instance, ...] = ()
    healthy: tuple[Instance, ...] = ()

    def tagged(self, tag: str) -> tuple[Instance, ...]:
        """The healthy instances that carry `tag`, in any case."""
        wanted = tag.lower()
        return tuple(row for row in self.healthy if any(wanted == own.lower() for own in row.tags))


ServiceKey = tuple[str, str]
"""Namespace and lower-cased name of a service."""

NO_ROWS = Rows()


class ServiceTable:
    """Every service instance and node known at one index."""

    def __init__(self, services: Mapping[ServiceKey, Rows], nodes: Mapping[str, tuple[Node, ...]], index: int) -> None:
        self.services: Mapping[ServiceKey, Rows] = MappingProxyType(dict(services))
        self.nodes: Mapping[str, tuple[Node, ...]] = nodes
        self.index = index

    @classmethod
    def build(
        cls,
        instances: Iterable[Instance],
        nodes: Iterable[Node],
        index: int,
        previous: "ServiceTable | None" = None,
    ) -> "ServiceTable":
        """A table of exactly these instances and nodes, sharing with `previous` all rows that are equal."""
        grouped: dict[ServiceKey, list[Instance]] = {}
        for instance in instances:
            grouped.setdefault(service_key(instance.namespace, instance.service), []).append(instance)
        old = previous or EMPTY
        services = {key: _rows(group, old.services.get(key)) for key, group in grouped.items()}
        return cls(services, _nodes_by_name(nodes, old.nodes), index)

    def with_service(self, namespace: str, name: str, instances: Iterable[Instance], index: int) -> "ServiceTable":
        """This table with the rows of one service replaced; no instances removes the service."""
        key = service_key(namespace, name)
        rows = _rows(instances, self.services.get(key))
        services = dict(self.services)
        if rows.all:
            services[key] = rows
        else:
            services.pop(key, None)
        return ServiceTable(services, self.nodes, index)

    def with_nodes(self, nodes: Iterable[Node], index: int) -> "ServiceTable":
        """This table with all nodes replaced."""
        return ServiceTable(self.services, _nodes_by_name(nodes, self.nodes), index)

    def service(self, namespace: str, name: str) -> Rows:
        """The rows of one service; empty rows when it is unknown."""
        return self.services.get(service_key(namespace, name), NO_ROWS)

    def node(self, name: str) -> tuple[Node, ...]:
        """The nodes of this name: one, unless datacenters share names."""
        return self.nodes.get(name.lower(), ())

    def instances_on(self, node_name: str) -> tuple[Instance, ...]:
        """Every instance on the node of this name."""
        return self._by_node.get(node_name.lower(), ())

    def node_of(self, instance: Instance) -> Node | None:
        """The node an instance is on, by id where both have one, else by name."""
        candidates = self.node(instance.node_name)
        for node in candidates:
            if instance.node_id and node.id == instance.node_id:
                return node
        return candidates[0] if candidates else None

    def instances(self) -> Iterator[Instance]:
        """Every instance, service by service."""
        for rows in self.services.values():
            yield from rows.all

    @cached_property
    def places(self) -> frozenset[str]:
        """Lower-cased names of all datacenters and regions."""
        rows: Iterable[Instance | Node] = [
            *self.instances(),
            *(node for group in self.nodes.values() for node in group),
        ]
        return frozenset(place.lower() for row in rows for place in (row.datacenter, row.region) if place)

    @cached_property
    def nodes_by_address(self) -> Mapping[str, Node]:
        """The first node of each address."""
        return {node.address: node for group in reversed(list(self.nodes.values())) for node in reversed(group)}

    @cached_property
    def instances_by_address(self) -> Mapping[str, Instance]:
        """The first healthy instance of each address."""
        found: dict[str, Instance] = {}
        for instance in self.instances():
            if instance.healthy and instance.address:
                found.setdefault(instance.address, instance)
        return found

    @cached_property
    def _by_node(self) -> Mapping[str, tuple[Instance, ...]]:
        grouped: dict[str, list[Instance]] = {}
        for instance in self.instances():
            grouped.setdefault(instance.node_name.lower(), []).append(instance)
        return {name: tuple(group) for name, group in grouped.items()}


def service_key(namespace: str, name: str) -> ServiceKey:
    """Where a service stands in the table."""
    return namespace, name.lower()


def _rows(instances: Iterable[Instance], old: Rows | None) -> Rows:
    ordered = tuple(sorted(instances, key=lambda instance: instance.id))
    if old is not None and old.all == ordered:
        return old
    return Rows(ordered, tuple(row for row in ordered if row.healthy))


def _nodes_by_name(nodes: Iterable[Node], old: Mapping[str, tuple[Node, ...]]) -> Mapping[str, tuple[Node, ...]]:
    grouped: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: (node.name.lower(), node.datacenter, node.id)):
        grouped.setdefault(node.name.lower(), []).append(node)
    fresh = {name: tuple(group) for name, group in grouped.items()}
    return old if fresh == old else fresh


EMPTY = ServiceTable({}, {}, 0)
