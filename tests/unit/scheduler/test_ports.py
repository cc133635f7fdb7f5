"""Host ports."""

import msgspec
from tests.builders import make_alloc, make_node

from lepa.model.node import Node, NodeNetworkAddress, NodeNetworkResource, NodeReservedNetworkResources
from lepa.model.resources import AllocatedPortMapping, AllocatedSharedResources, NetworkResource, Port
from lepa.scheduler.ports import NodePorts, PortsGiven, held_ports, parse_ports

ME = ("default", "me")


def holder(port: int, *, address: str = "127.0.0.1", **changes: str):  # type: ignore[no-untyped-def]
    alloc = make_alloc(**changes)
    shared = AllocatedSharedResources(ports=(AllocatedPortMapping(label="p", value=port, host_ip=address),))
    return msgspec.structs.replace(
        alloc, allocated_resources=msgspec.structs.replace(alloc.allocated_resources, shared=shared)
    )


def static(port: int, **changes: object) -> NetworkResource:
    return NetworkResource(reserved_ports=(Port(label="http", value=port, **changes),))  # type: ignore[arg-type]


def dynamic(*labels: str, to: int = 0) -> NetworkResource:
    return NetworkResource(dynamic_ports=tuple(Port(label=label, to=to) for label in labels))


def two_networks() -> Node:
    addresses = (
        NodeNetworkAddress(alias="net1", address="10.0.0.1"),
        NodeNetworkAddress(alias="net2", address="10.0.0.2", reserved_ports="90"),
    )
    node = make_node()
    networks = (*node.node_resources.node_networks, NodeNetworkResource(mode="host", addresses=addresses))
    resources = msgspec.structs.replace(node.node_resources, node_networks=networks)
    return msgspec.structs.replace(node, node_resources=resources)


def test_port_texts_hold_numbers_and_ranges() -> None:
    assert parse_ports("22,80,8000-8002, 9") == {22, 80, 8000, 8001, 8002, 9}
    assert parse_ports("") == frozenset()
    assert parse_ports("x,-5,7-") == {7}


def test_dynamic_ports_are_apart_and_in_range() -> None:
    given = NodePorts(make_node(), (), ME).assign([dynamic("a", "b", "c", to=-1)], 1)
    assert isinstance(given, PortsGiven)
    values = [port.value for port in given.mappings]
    assert len(set(values)) == 3
    assert all(20_000 <= value <= 32_000 for value in values)
    assert [port.to for port in given.mappings] == values
    assert given.networks[0].dynamic_ports[0].value == values[0]
    assert given.networks[0].ip == "127.0.0.1"


def test_static_collision_names_label_and_port() -> None:
    ports = NodePorts(make_node(), [holder(8080)], ME)
    assert ports.assign([static(8080)], 1) == "network: reserved port collision http=8080"
    assert isinstance(ports.assign([static(8080, ignore_collision=True)], 1), PortsGiven)


def test_two_networks_of_a_group_may_not_share_a_port() -> None:
    ports = NodePorts(make_node(), (), ME)
    assert ports.assign([static(80), static(80)], 1) == "network: reserved port collision http=80"
    assert isinstance(ports.assign([static(80)], 1), PortsGiven), "the refused try must have given everything back"


def test_one_port_on_two_host_networks() -> None:
    """B057."""
    ports = NodePorts(two_networks(), (), ME)
    asked = [static(80, host_network="net1"), static(80, host_network="net2")]
    given = ports.assign(asked, 1)
    assert isinstance(given, PortsGiven)
    assert [port.host_ip for port in given.mappings] == ["10.0.0.1", "10.0.0.2"]
    assert isinstance(ports.assign([static(80, host_network="net1")], 1), str)
    assert isinstance(ports.assign([static(90, host_network="net2")], 1), str)
    assert isinstance(ports.assign([static(90, host_network="net1")], 1), PortsGiven)


def test_ports_that_the_operator_keeps_are_closed_on_every_network() -> None:
    """B060."""
    kept = NodeReservedNetworkResources(reserved_host_ports="20000-31999")
    node = two_networks()
    node = msgspec.structs.replace(
        node, reserved_resources=msgspec.structs.replace(node.reserved_resources, networks=kept)
    )
    ports = NodePorts(node, (), ME)
    assert isinstance(ports.assign([static(20_001, host_network="net1")], 1), str)
    given = ports.assign([dynamic("a")], 1)
    assert isinstance(given, PortsGiven)
    assert given.mappings[0].value == 32_000
    assert ports.assign([dynamic("b")], 1) == "network: dynamic port selection failed"


def test_port_of_a_stopping_allocation_is_not_handed_out() -> None:
    """B059."""
    node = make_node()
    narrow = msgspec.structs.replace(node.node_resources, min_dynamic_port=20_000, max_dynamic_port=20_000)
    node = msgspec.structs.replace(node, node_resources=narrow)
    stopping = holder(20_000, desired_status="stop")
    assert NodePorts(node, [stopping], ME).assign([dynamic("a")], 1) == "network: dynamic port selection failed"
    same_job = ("default", stopping.job_id)
    assert isinstance(NodePorts(node, [stopping], same_job).assign([dynamic("a")], 1), str)
    assert isinstance(NodePorts(node, [stopping], same_job).assign([static(20_000)], 1), PortsGiven)
    assert isinstance(NodePorts(node, [stopping], ME).assign([static(20_000)], 1), str)
    ended = msgspec.structs.replace(stopping, client_status="complete")
    assert isinstance(NodePorts(node, [ended], ME).assign([dynamic("a")], 1), PortsGiven)


def test_held_ports_are_read_from_networks_where_there_is_no_flat_list() -> None:
    alloc = make_alloc()
    network = NetworkResource(ip="10.0.0.1", dynamic_ports=(Port(label="a", value=25_000),))
    shared = AllocatedSharedResources(networks=(network,))
    alloc = msgspec.structs.replace(
        alloc, allocated_resources=msgspec.structs.replace(alloc.allocated_resources, shared=shared)
    )
    assert held_ports(alloc) == [("10.0.0.1", 25_000)]
