"""Indexes of the catalog: they rise with what changed and never fall."""

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.consul import indexes
from lepa.consul.indexes import View, advance

NODE = Node(name="n1", address="10.0.0.1", id="1", datacenter="dc1")
NOTHING = View()
WEB = Instance(id="web-1", service="web", node_id="1", node_name="n1", address="10.0.0.1", port=80)
DB = Instance(id="db-1", service="db", node_id="2", node_name="n2")


def table(index: int, *instances: Instance, nodes: tuple[Node, ...] = (NODE,), before: View = NOTHING) -> ServiceTable:
    return ServiceTable.build(instances, nodes, index, before.table)


def test_what_changed_gets_the_index_of_the_table() -> None:
    first = advance(View(), table(10, WEB))
    assert (first.changed, first.nodes, first.index_of("default", "web")) == (10, 10, 10)


def test_what_did_not_change_keeps_its_index() -> None:
    first = advance(View(), table(10, WEB))
    second = advance(first, table(12, WEB, DB, before=first))
    assert second.index_of("default", "web") == 10
    assert second.index_of("default", "db") == 12
    assert second.nodes == 10


def test_a_table_that_says_nothing_new_moves_no_index() -> None:
    first = advance(View(), table(10, WEB))
    assert advance(first, table(99, WEB, before=first)).changed == 10


def test_a_change_told_with_an_old_index_still_gets_a_new_one() -> None:
    first = advance(View(), table(10, WEB))
    second = advance(first, table(10, WEB, DB, before=first))
    assert second.index_of("default", "db") == 11


def test_a_service_that_vanished_has_the_index_of_its_going() -> None:
    first = advance(View(), table(10, WEB))
    second = advance(first, table(15, before=first))
    assert second.index_of("default", "web") == 15


def test_a_service_that_nobody_knows_gets_a_higher_index_when_it_appears() -> None:
    first = advance(View(), table(10))
    second = advance(first, table(11, WEB, before=first))
    assert first.index_of("default", "web") < second.index_of("default", "web")


def test_a_change_of_a_node_touches_the_services_on_it_only() -> None:
    first = advance(View(), table(10, WEB, DB))
    moved = Node(name="n1", address="10.0.0.9", id="1", datacenter="dc1")
    second = advance(first, table(20, WEB, DB, nodes=(moved,), before=first))
    assert (second.index_of("default", "web"), second.index_of("default", "db"), second.nodes) == (20, 10, 20)


def test_forgotten_services_never_go_back() -> None:
    view = advance(View(), table(1))
    for number in range(indexes.GONE_MAX + 10):
        one = Instance(id=f"s{number}", service=f"s{number}")
        view = advance(view, table(view.changed + 1, one, before=view))
    assert len(view.services) <= indexes.GONE_MAX + 1
    assert view.index_of("default", "s0") >= 3
