from lepa.catalog.table import EMPTY, Instance, Node, ServiceTable


def instance(number: int, **fields: object) -> Instance:
    settings = {"service": "web", "address": f"10.0.0.{number}", "port": 8000 + number, **fields}
    return Instance(id=f"id-{number}", **settings)


def test_services_are_found_by_name_in_any_case() -> None:
    table = ServiceTable.build([instance(1, service="Web")], [], 7)
    assert [row.id for row in table.service("default", "wEB").all] == ["id-1"]
    assert table.index == 7


def test_namespaces_do_not_see_each_other() -> None:
    table = ServiceTable.build([instance(1), instance(2, namespace="other")], [], 1)
    assert [row.id for row in table.service("default", "web").all] == ["id-1"]
    assert [row.id for row in table.service("other", "web").all] == ["id-2"]


def test_only_healthy_instances_are_given_to_clients() -> None:
    table = ServiceTable.build([instance(1, healthy=False), instance(2)], [], 1)
    rows = table.service("default", "web")
    assert [row.id for row in rows.all] == ["id-1", "id-2"]
    assert [row.id for row in rows.healthy] == ["id-2"]


def test_tags_choose_among_healthy_instances_in_any_case() -> None:
    table = ServiceTable.build(
        [instance(1, tags=("V1.2",)), instance(2), instance(3, tags=("v1.2",), healthy=False)], [], 1
    )
    assert [row.id for row in table.service("default", "web").tagged("v1.2")] == ["id-1"]


def test_an_unknown_service_has_no_rows() -> None:
    assert EMPTY.service("default", "web").all == ()
    assert EMPTY.node("n1") == ()
    assert EMPTY.instances_on("n1") == ()


def test_rows_come_in_the_order_of_their_ids_whatever_the_order_given() -> None:
    rows = [instance(number) for number in (3, 1, 2)]
    assert [row.id for row in ServiceTable.build(rows, [], 1).service("default", "web").all] == ["id-1", "id-2", "id-3"]


def test_a_rebuild_shares_the_rows_that_did_not_change() -> None:
    old = ServiceTable.build([instance(1), instance(2, service="db")], [Node(name="n1", address="10.0.0.9")], 1)
    new = ServiceTable.build([instance(1), instance(3, service="db")], [Node(name="n1", address="10.0.0.9")], 2, old)
    assert new.service("default", "web") is old.service("default", "web")
    assert new.service("default", "db") is not old.service("default", "db")
    assert new.nodes is old.nodes


def test_one_service_is_replaced_and_the_others_are_shared() -> None:
    old = ServiceTable.build([instance(1), instance(2, service="db")], [], 1)
    new = old.with_service("default", "DB", [instance(4, service="db")], 2)
    assert [row.id for row in new.service("default", "db").all] == ["id-4"]
    assert new.service("default", "web") is old.service("default", "web")
    assert [row.id for row in old.service("default", "db").all] == ["id-2"]
    assert new.index == 2


def test_a_service_without_instances_is_gone() -> None:
    table = ServiceTable.build([instance(1)], [], 1).with_service("default", "web", [], 2)
    assert list(table.services) == []


def test_nodes_are_replaced_and_kept_when_equal() -> None:
    old = ServiceTable.build([], [Node(name="N1", address="10.0.0.9")], 1)
    assert old.with_nodes([Node(name="N1", address="10.0.0.9")], 2).nodes is old.nodes
    new = old.with_nodes([Node(name="n1", address="10.0.0.8")], 3)
    assert [node.address for node in new.node("n1")] == ["10.0.0.8"]


def test_nodes_of_one_name_in_two_datacenters_are_both_found() -> None:
    nodes = [
        Node(name="n1", address="10.2.0.1", datacenter="dc2"),
        Node(name="n1", address="10.1.0.1", datacenter="dc1"),
    ]
    assert [node.datacenter for node in ServiceTable.build([], nodes, 1).node("n1")] == ["dc1", "dc2"]


def test_an_instance_knows_its_node_by_id_before_name() -> None:
    nodes = [Node(name="n1", address="10.1.0.1", id="a"), Node(name="n1", address="10.2.0.1", id="b")]
    table = ServiceTable.build([], nodes, 1)
    assert table.node_of(instance(1, node_name="n1", node_id="b")) == nodes[1]
    assert table.node_of(instance(1, node_name="n1", node_id="c")) == nodes[0]
    assert table.node_of(instance(1, node_name="n2")) is None


def test_instances_are_found_by_the_name_of_their_node() -> None:
    table = ServiceTable.build(
        [instance(1, node_name="n1"), instance(2, service="db", node_name="N1"), instance(3)], [], 1
    )
    assert {row.id for row in table.instances_on("n1")} == {"id-1", "id-2"}


def test_addresses_lead_back_to_nodes_and_healthy_instances() -> None:
    table = ServiceTable.build([instance(1, healthy=False), instance(2)], [Node(name="n1", address="10.0.0.9")], 1)
    assert table.nodes_by_address["10.0.0.9"].name == "n1"
    assert list(table.instances_by_address) == ["10.0.0.2"]


def test_places_are_all_datacenters_and_regions() -> None:
    table = ServiceTable.build([instance(1, datacenter="DC1")], [Node(name="n", address="", region="global")], 1)
    assert table.places == {"dc1", "global"}


def test_a_warning_instance_has_another_share() -> None:
    row = Instance(id="a", service="web", weight=10, warning_weight=2)
    assert (row.share, Instance(id="a", service="web", weight=10, warning_weight=2, status="warning").share) == (10, 2)
