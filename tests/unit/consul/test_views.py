"""The catalog as Consul shows it."""

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.consul import views
from lepa.consul.indexes import View, advance
from lepa.consul.views import Asked
from lepa.kit.bexpr import compile_filter
from lepa.model.service import CheckState

N1 = Node(name="n1", address="10.0.0.1", id="1", datacenter="dc1", meta=(("rack", "a"),))
N2 = Node(name="n2", address="10.0.0.2", id="2", datacenter="dc2")
CHECK = CheckState(id="c1", name="alive", type="http", status="critical", definition={"Interval": "10s"})


def instance(number: int, node: Node = N1, **more: object) -> Instance:
    fields = {
        "id": f"web-{number}",
        "service": "web",
        "node_id": node.id,
        "node_name": node.name,
        "datacenter": node.datacenter,
        "address": node.address,
        "port": 80,
    }
    return Instance(**fields | more)  # type: ignore[arg-type]


def view(*instances: Instance) -> View:
    return advance(View(), ServiceTable.build(instances, (N1, N2), 10))


def ids(entries: list[views.Json]) -> list[str]:
    return [entry["Service"]["ID"] for entry in entries]


def test_services_have_the_union_of_their_tags() -> None:
    assert views.services(view(instance(1, tags=("b",)), instance(2, tags=("a", "b"))), Asked()) == {"web": ["a", "b"]}


def test_services_of_other_namespaces_are_not_shown() -> None:
    other = view(instance(1, namespace="team"))
    assert views.services(other, Asked()) == {}
    assert views.services(other, Asked(namespace="team")) == {"web": []}


def test_the_catalog_shows_what_is_unhealthy_too() -> None:
    sick = view(instance(1, healthy=False, status="critical"))
    assert len(views.service(sick, Asked(name="web"))) == 1
    assert len(views.health_service(sick, Asked(name="web"))) == 1


def test_passing_wants_every_check_to_pass() -> None:
    found = view(instance(1), instance(2, status="warning"), instance(3, checks=(CHECK,), status="critical"))
    assert ids(views.health_service(found, Asked(name="web", passing=True))) == ["web-1"]


def test_an_instance_on_a_lost_node_is_critical_by_its_node() -> None:
    lost = Node(name="n9", address="10.0.0.9", id="9")
    (entry,) = views.health_service(view(instance(1, lost)), Asked(name="web"))
    assert (entry["Checks"][0]["CheckID"], entry["Checks"][0]["Status"]) == ("serfHealth", "critical")
    assert views.health_service(view(instance(1, lost)), Asked(name="web", passing=True)) == []


def test_checks_of_a_registration_are_shown_one_by_one() -> None:
    (check,) = views.health_checks(view(instance(1, checks=(CHECK,))), Asked(name="web"))
    assert (check["CheckID"], check["Type"], check["Interval"], check["ServiceID"]) == ("c1", "http", "10s", "web-1")


def test_several_tags_must_all_be_carried_in_any_case() -> None:
    found = view(instance(1, tags=("A", "b")), instance(2, tags=("a",)))
    entries = views.service(found, Asked(name="web", tags=("a", "B")))
    assert [entry["ServiceID"] for entry in entries] == ["web-1"]


def test_near_puts_the_same_node_first_and_the_same_datacenter_next() -> None:
    here = Node(name="n3", address="10.0.0.3", id="3", datacenter="dc2")
    table = ServiceTable.build([instance(1, N1), instance(2, here), instance(3, N2)], (N1, N2, here), 10)
    found = views.health_service(advance(View(), table), Asked(name="web", near="n2"))
    assert ids(found) == ["web-3", "web-2", "web-1"]


def test_a_datacenter_and_node_meta_narrow_down() -> None:
    found = view(instance(1, N1), instance(2, N2))
    assert ids(views.health_service(found, Asked(name="web", datacenter="dc2"))) == ["web-2"]
    assert ids(views.health_service(found, Asked(name="web", node_meta=(("rack", "a"),)))) == ["web-1"]
    assert [n["Node"] for n in views.nodes(found, Asked(node_meta=(("rack", "a"),)))] == ["n1"]


def test_a_filter_is_over_what_is_shown() -> None:
    found = view(instance(1, port=80), instance(2, port=81))
    keeps = compile_filter("Service.Port == 81")
    assert ids(views.health_service(found, Asked(name="web", keeps=keeps))) == ["web-2"]


def test_a_node_is_shown_with_what_is_on_it() -> None:
    shown = views.node(view(instance(1)), Asked(name="N1"))
    assert shown is not None
    assert (shown["Node"]["Node"], list(shown["Services"])) == ("n1", ["web-1"])
    assert views.node(view(), Asked(name="nobody")) is None
    listed = views.node_services(view(instance(1)), Asked(name="N1"))
    assert listed == {"Node": shown["Node"], "Services": list(shown["Services"].values())}
    assert views.node_services(view(), Asked(name="nobody")) == {"Node": None, "Services": []}


def test_states_collect_checks_of_nodes_and_services() -> None:
    found = view(instance(1, checks=(CHECK,)))
    assert [c["CheckID"] for c in views.health_state(found, Asked(name="critical"))] == ["c1"]
    assert len(views.health_state(found, Asked(name="any"))) == 3
    assert [c["CheckID"] for c in views.health_node(found, Asked(name="n1"))] == ["serfHealth", "c1"]


def test_datacenters_begin_with_our_own() -> None:
    assert views.datacenters(view(), "dc2") == ["dc2", "dc1"]


def test_a_host_name_as_address_has_no_tagged_addresses() -> None:
    (entry,) = views.service(view(instance(1, address="db.example.org")), Asked(name="web"))
    assert entry["ServiceTaggedAddresses"] == {}


def test_all_keys_of_an_entry_are_there() -> None:
    (entry,) = views.service(view(instance(1)), Asked(name="web"))
    assert set(entry) == {
        "ID", "Node", "Address", "Datacenter", "TaggedAddresses", "NodeMeta", "ServiceKind", "ServiceID", "ServiceName",
        "ServiceTags", "ServiceAddress", "ServiceTaggedAddresses", "ServiceWeights", "ServiceMeta", "ServicePort",
        "ServiceSocketPath", "ServiceEnableTagOverride", "ServiceProxy", "ServiceConnect", "CreateIndex", "ModifyIndex",
    }  # fmt: skip
