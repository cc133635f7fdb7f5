import dns.reversename
import pytest
from tests.dns_answers import answers, ask, instance, outcome, responder

from lepa.catalog.table import ServiceTable
from lepa.dns.resolver import parse_place


@pytest.mark.parametrize("domain", ["consul", "lepa"])
def test_a_service_has_the_addresses_of_its_healthy_instances(domain: str) -> None:
    assert answers(f"web.service.{domain}") == ["10.0.0.1", "10.0.0.2"]


def test_a_service_has_srv_records_with_weights_ports_and_targets_in_the_domain_asked() -> None:
    assert answers("web.service.lepa", "SRV") == [
        "1 1 8001 0a000001.addr.dc1.lepa.",
        "1 7 8002 0a000002.addr.dc2.lepa.",
    ]


def test_srv_answers_carry_the_addresses_of_their_targets() -> None:
    extras = {str(rrset.name): str(rrset[0]) for rrset in ask("web.service.consul", "SRV").additional}
    assert extras == {"0a000001.addr.dc1.consul.": "10.0.0.1", "0a000002.addr.dc2.consul.": "10.0.0.2"}


def test_every_srv_target_resolves_through_us() -> None:
    for row in ask("web.service.consul", "SRV").answer[0]:
        assert len(answers(str(row.target))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "primary.web.service.consul",
        "v1.2.web.service.consul",
        "_web._primary.service.consul",
        "_web._primary.consul",
        "_web._tcp.service.dc1.consul",
        "_web._udp.dc1.consul",
        "web.service.dc1.consul",
        "web.service.dc1.dc.consul",
        "web.service.dc1.dc.global.region.consul",
        "web.service.default.ns.dc1.dc.consul",
        "PRIMARY.Web.SERVICE.dc1.consul",
    ],
)
def test_one_instance_is_found_by_tag_or_place(name: str) -> None:
    assert answers(name) == ["10.0.0.1"]
    assert answers(name, "SRV") == ["1 1 8001 0a000001.addr.dc1.consul."]


@pytest.mark.parametrize("name", ["_web._tcp.service.consul", "_web._tcp.consul", "web.service.global.consul"])
def test_tcp_is_no_tag_and_a_region_is_a_place(name: str) -> None:
    assert answers(name) == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    "name",
    [
        "none.service.consul",
        "down.service.consul",
        "web.service.dc9.consul",
        "web.service.dc1.dc2.consul",
        "web.service.other.region.consul",
        "v9.web.service.consul",
        "_web._v9.service.consul",
        "secret.service.consul",
        "web.unheard.consul",
        "web.consul",
        "none.node.consul",
        "n1.node.dc2.consul",
        "zzzzzzzz.addr.consul",
        "0a0000.addr.consul",
        "x.0a000001.addr.consul",
        "_web._tcp.dc1.dc2.consul",
    ],
)
def test_what_does_not_exist_or_is_not_healthy_is_nxdomain_with_soa(name: str) -> None:
    assert outcome(ask(name)) == "NXDOMAIN 0 soa"


@pytest.mark.parametrize(
    ("name", "rtype"),
    [
        ("web.service.consul", "AAAA"),
        ("web.service.consul", "MX"),
        ("web.service.consul", "TXT"),
        ("n1.node.consul", "AAAA"),
        ("n1.node.consul", "SRV"),
        ("0a000001.addr.consul", "AAAA"),
        ("consul", "A"),
        ("lost.service.consul", "SRV"),
        ("service.consul", "A"),
        ("service.dc1.consul", "A"),
        ("dc1.consul", "A"),
        ("_tcp.service.consul", "A"),
        ("ns.consul", "A"),
    ],
)
def test_what_exists_without_such_records_is_no_error_with_soa(name: str, rtype: str) -> None:
    assert outcome(ask(name, rtype)) == "NOERROR 0 soa"


def test_negative_answers_carry_the_table_index_and_the_negative_ttl() -> None:
    soa = ask("none.service.lepa", server=responder(negative_ttl_s=5)).authority[0]
    assert str(soa.name) == "lepa."
    assert soa.ttl == 5
    assert str(soa[0]) == "ns.lepa. hostmaster.lepa. 42 3600 600 86400 5"


def test_an_ipv6_service_has_aaaa_records_only() -> None:
    assert answers("six.service.consul", "AAAA") == ["fd00::5"]
    assert outcome(ask("six.service.consul", "A")) == "NOERROR 0 soa"
    target = "fd000000000000000000000000000005.addr.dc1.consul."
    assert answers("six.service.consul", "SRV") == [f"1 1 8005 {target}"]
    assert answers(target, "AAAA") == ["fd00::5"]


def test_an_instance_without_an_address_has_its_nodes() -> None:
    assert answers("bare.service.consul") == ["10.9.0.1"]
    message = ask("bare.service.consul", "SRV")
    assert str(message.answer[0][0]) == "1 1 8006 n1.node.dc1.consul."
    extras = sorted(str(row) for rrset in message.additional for row in rrset)
    assert extras == ['"bare"', '"rack=r=1"', "10.9.0.1"]


def test_a_host_name_as_address_is_a_cname_and_an_srv_target() -> None:
    assert answers("named.service.consul") == ["db.example.com."]
    assert answers("named.service.consul", "SRV") == ["1 1 8007 db.example.com."]
    assert answers("n3.node.consul", "AAAA") == ["host.example.com."]


def test_a_datacenter_that_is_no_dns_name_is_left_out_of_targets() -> None:
    for datacenter in ("x" * 64, "a..b", ".".join(["x" * 60] * 4)):
        table = ServiceTable.build([instance(5, address="fd00::5", datacenter=datacenter)], [], 1)
        target = "fd000000000000000000000000000005.addr.consul."
        assert answers("web.service.consul", "SRV", server=responder(table)) == [f"1 1 8005 {target}"]


def test_nodes_are_found_with_dots_and_places() -> None:
    assert answers("n1.node.consul") == answers("n1.node.dc1.consul") == ["10.9.0.1"]
    assert answers("n2.rack.four.node.dc2.consul", "AAAA") == ["fd00::2"]


def test_a_nodes_metadata_is_text() -> None:
    assert answers("n1.node.consul", "TXT") == ['"bare"', '"rack=r=1"']
    assert answers("n1.node.consul", "ANY") == ['"bare"', '"rack=r=1"', "10.9.0.1"]


def test_addresses_lead_back_to_names() -> None:
    assert answers(str(dns.reversename.from_address("10.9.0.1")), "PTR") == ["n1.node.dc1.consul."]
    assert answers(str(dns.reversename.from_address("10.0.0.1")), "PTR") == ["web.service.dc1.consul."]
    assert answers(str(dns.reversename.from_address("fd00::2")), "PTR") == ["n2.rack.four.node.dc2.consul."]
    assert outcome(ask(str(dns.reversename.from_address("10.0.0.99")), "PTR")) == "REFUSED 0"


def test_the_domain_itself_has_soa_and_ns_with_glue() -> None:
    assert answers("consul", "SOA") == ["ns.consul. hostmaster.consul. 42 3600 600 86400 0"]
    message = ask("lepa", "NS", server=responder(name_server="10.0.0.53"))
    assert str(message.answer[0][0]) == "ns.lepa."
    assert str(message.additional[0][0]) == "10.0.0.53"
    assert answers("ns.lepa", server=responder(name_server="10.0.0.53")) == ["10.0.0.53"]


def test_namespaces_are_asked_by_name() -> None:
    assert answers("secret.service.ops.ns.consul") == ["10.0.0.8"]
    assert answers("secret.service.consul", server=responder(namespace="ops")) == ["10.0.0.8"]


def test_ttls_come_from_the_name_then_the_longest_prefix() -> None:
    ttls = {"*": 1, "w*": 2, "WE*": 3, "six": 4}
    server = responder(service_ttl_s=ttls, node_ttl_s=9)
    message = ask("web.service.consul", "SRV", server=server)
    assert {rrset.ttl for rrset in message.answer + message.additional} == {3}
    assert ask("six.service.consul", "AAAA", server=server).answer[0].ttl == 4
    assert ask("named.service.consul", server=server).answer[0].ttl == 1
    assert ask("n1.node.consul", server=server).answer[0].ttl == 9


def test_instances_that_share_address_and_port_on_a_node_are_one_srv_record() -> None:
    rows = [instance(1, id="a"), instance(1, id="b"), instance(1, id="c", port=9)]
    table = ServiceTable.build(rows, [], 1)
    assert len(answers("web.service.consul", "SRV", server=responder(table))) == 2
    assert answers("web.service.consul", server=responder(table)) == ["10.0.0.1"]


def test_places_are_read_from_the_right() -> None:
    place = parse_place(["ops", "ns", "dc1"])
    assert place is not None
    assert (place.namespace, place.any) == ("ops", "dc1")
    assert parse_place(["dc"]) is not None
    assert parse_place(["a", "b"]) is None
    assert parse_place(["a", "dc", "b", "dc"]) is None
