from collections import Counter

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.reversename
import pytest

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.dns.resolver import DnsSettings, Responder, Verdict, parse_place, recursor_address
from lepa.model.errors import LepaError


def instance(number: int, **fields: object) -> Instance:
    settings = {"id": f"id-{number}", "service": "web", "node_name": "n1", "datacenter": "dc1", "region": "global"}
    return Instance(**{**settings, "address": f"10.0.0.{number}", "port": 8000 + number, **fields})


NODES = [
    Node(
        name="n1", address="10.9.0.1", datacenter="dc1", region="global", meta=(("rack", "r=1"), ("rfc1035-x", "bare"))
    ),
    Node(name="n2.rack.four", address="fd00::2", datacenter="dc2", region="global"),
    Node(name="n3", address="host.example.com", datacenter="dc1"),
]
INSTANCES = [
    instance(1, tags=("primary", "v1.2")),
    instance(2, datacenter="dc2", weight=7),
    instance(3, healthy=False),
    instance(4, service="down", healthy=False),
    instance(5, service="six", address="fd00::5"),
    instance(6, service="bare", address="", node_name="n1"),
    instance(7, service="named", address="db.example.com"),
    instance(8, service="secret", namespace="ops"),
    instance(9, service="lost", address="", node_name="gone"),
]
TABLE = ServiceTable.build(INSTANCES, NODES, 42)


def responder(table: ServiceTable | None = TABLE, **settings: object) -> Responder:
    return Responder(table, DnsSettings(**settings), seed=1)


def ask(name: str, rtype: str = "A", *, server: Responder | None = None, **options: object) -> dns.message.Message:
    asked = dns.message.make_query(name, rtype, **options)
    answer = (server or responder()).udp(asked.to_wire())
    assert isinstance(answer, bytes)
    read = dns.message.from_wire(answer)
    assert asked.is_response(read)
    return read


def answers(name: str, rtype: str = "A", **options: object) -> list[str]:
    return sorted(str(row) for rrset in ask(name, rtype, **options).answer for row in rrset)


def outcome(message: dns.message.Message) -> str:
    soa = any(rrset.rdtype == dns.rdatatype.SOA for rrset in message.authority)
    return f"{dns.rcode.to_text(message.rcode())} {len(message.answer)}{' soa' if soa else ''}"


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


def test_other_domains_are_refused_or_forwarded() -> None:
    assert outcome(ask("example.com")) == "REFUSED 0"
    asked = dns.message.make_query("example.com", "A").to_wire()
    assert responder(recursors=("10.0.0.2",)).udp(asked) is Verdict.FORWARD


def test_recursion_is_offered_only_with_recursors() -> None:
    assert not ask("web.service.consul").flags & dns.flags.RA
    assert ask("web.service.consul", server=responder(recursors=("10.0.0.2",))).flags & dns.flags.RA


def test_before_the_first_table_our_names_are_servfail_and_others_are_not() -> None:
    assert outcome(ask("web.service.consul", server=responder(None))) == "SERVFAIL 0"
    assert outcome(ask("example.com", server=responder(None))) == "REFUSED 0"


def test_transfers_and_other_classes_are_turned_away() -> None:
    assert outcome(ask("consul", "AXFR")) == "NOTIMP 0"
    assert outcome(ask("web.service.consul", rdclass="CH")) == "REFUSED 0"
    assert outcome(ask("web.service.consul", use_edns=1)) == "BADVERS 0"


def test_a_response_is_dropped_and_a_broken_message_refused() -> None:
    server = responder()
    assert server.udp(dns.message.make_response(dns.message.make_query("consul", "A")).to_wire()) is Verdict.DROP
    broken = server.udp(b"ID\0\0\0\x01\0\0\0\0\0\0\x09cut")
    assert isinstance(broken, bytes)
    assert dns.message.from_wire(broken).rcode() == dns.rcode.FORMERR


def test_each_instance_comes_first_equally_often() -> None:
    table = ServiceTable.build([instance(number) for number in range(1, 6)], [], 1)
    server = responder(table)
    asked = dns.message.make_query("web.service.consul", "A").to_wire()
    first: Counter[bytes] = Counter()
    for _ in range(1_000):
        answer = server.udp(asked)
        assert isinstance(answer, bytes)
        first[answer[len(asked) : len(asked) + 16]] += 1
    assert len(first) == 5
    assert max(first.values()) - min(first.values()) <= 60


def test_truncated_answers_show_every_instance_in_time() -> None:
    table = ServiceTable.build([instance(number % 250, id=f"i{number}", port=number) for number in range(500)], [], 1)
    server = responder(table)
    seen: set[str] = set()
    for _ in range(2_000):
        message = ask("web.service.consul", "SRV", server=server, use_edns=False)
        assert message.flags & dns.flags.TC
        seen |= {str(row) for row in message.answer[0]}
    assert len(seen) > 450


def test_a_truncated_answer_has_a_record_however_long_the_names_are() -> None:
    long, tag = ".".join(["x" * 60] * 3), "t" * 63
    rows = [instance(number, address=f"i{number}.{long}", tags=(tag,)) for number in range(1, 9)]
    server = responder(ServiceTable.build(rows, [], 1))
    for _ in range(20):
        message = ask(f"{tag}.web.service.consul", "SRV", server=server, use_edns=False)
        assert len(message.answer[0]) >= 1
        assert message.flags & dns.flags.TC


def test_an_answer_over_tcp_is_whole() -> None:
    table = ServiceTable.build([instance(number % 250, id=f"i{number}", port=number) for number in range(1_000)], [], 1)
    answer = responder(table).tcp(dns.message.make_query("web.service.consul", "SRV").to_wire())
    assert isinstance(answer, bytes)
    message = dns.message.from_wire(answer)
    assert len(message.answer[0]) == 1_000
    assert not message.flags & dns.flags.TC


def test_edns_clients_get_as_much_as_they_take_and_we_allow() -> None:
    table = ServiceTable.build([instance(number % 250, id=f"i{number}", port=number) for number in range(1_000)], [], 1)
    for payload, limit in ((100, 512), (1_232, 1_232), (4_096, 2_000), (65_535, 2_000)):
        asked = dns.message.make_query("web.service.consul", "SRV", use_edns=0, payload=payload).to_wire()
        answer = responder(table, udp_size_max=2_000).udp(asked)
        assert isinstance(answer, bytes)
        assert limit - 60 < len(answer) <= limit


def test_instances_that_share_address_and_port_on_a_node_are_one_srv_record() -> None:
    rows = [instance(1, id="a"), instance(1, id="b"), instance(1, id="c", port=9)]
    table = ServiceTable.build(rows, [], 1)
    assert len(answers("web.service.consul", "SRV", server=responder(table))) == 2
    assert answers("web.service.consul", server=responder(table)) == ["10.0.0.1"]


def test_a_new_table_changes_the_answers_of_what_changed() -> None:
    server = responder()
    assert answers("web.service.consul", server=server) == ["10.0.0.1", "10.0.0.2"]
    assert answers("new.service.consul", server=server) == []
    table = TABLE.with_service("default", "web", [instance(9)], 43)
    fresh = server.renewed(table.with_service("default", "new", [instance(8, service="new")], 44))
    assert answers("web.service.consul", server=fresh) == ["10.0.0.9"]
    assert answers("new.service.consul", server=fresh) == ["10.0.0.8"]
    assert answers("web.service.consul", server=server) == ["10.0.0.1", "10.0.0.2"]


def test_answers_that_still_hold_are_not_made_again() -> None:
    server = responder()
    asked = dns.message.make_query("six.service.consul", "AAAA").to_wire()
    server.udp(asked)
    composed = server.counts["noerror"]
    fresh = server.renewed(TABLE.with_service("default", "web", [], 43))
    fresh.udp(asked)
    assert fresh.counts["noerror"] == composed


def test_a_node_that_moved_changes_the_answers_that_name_it() -> None:
    server = responder()
    assert answers("bare.service.consul", server=server) == ["10.9.0.1"]
    fresh = server.renewed(TABLE.with_nodes([Node(name="n1", address="10.9.0.7", datacenter="dc1")], 43))
    assert answers("bare.service.consul", server=fresh) == ["10.9.0.7"]


def test_the_first_table_replaces_servfail() -> None:
    server = responder(None)
    assert outcome(ask("web.service.consul", server=server)) == "SERVFAIL 0"
    assert answers("web.service.consul", server=server.renewed(TABLE)) == ["10.0.0.1", "10.0.0.2"]


def test_random_names_do_not_fill_the_memory() -> None:
    server = responder()
    for number in range(20_000):
        server.udp(b"ID\0\0\0\x01\0\0\0\0\0\0\x08x%07d\x07service\x06consul\0\0\x01\0\x01" % number)
    assert server.counts["nxdomain"] == 20_000
    assert len(server._replies.entries) <= 8_192
    assert len(server._encoded.entries) <= 8_192
    assert len(server._finished.entries) <= 8_192


def test_servfail_is_an_answer_to_the_question() -> None:
    asked = dns.message.make_query("example.com", "A")
    answer = responder().servfail(asked.to_wire())
    assert isinstance(answer, bytes)
    assert dns.message.from_wire(answer).rcode() == dns.rcode.SERVFAIL
    assert responder().servfail(b"") is Verdict.DROP


def test_places_are_read_from_the_right() -> None:
    place = parse_place(["ops", "ns", "dc1"])
    assert place is not None
    assert (place.namespace, place.any) == ("ops", "dc1")
    assert parse_place(["dc"]) is not None
    assert parse_place(["a", "b"]) is None
    assert parse_place(["a", "dc", "b", "dc"]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2", ("10.0.0.2", 53)),
        ("10.0.0.2:5353", ("10.0.0.2", 5353)),
        ("fd00::2", ("fd00::2", 53)),
        ("[fd00::2]", ("fd00::2", 53)),
        ("[fd00::2]:5353", ("fd00::2", 5353)),
    ],
)
def test_recursors_are_addresses_with_or_without_port(text: str, expected: tuple[str, int]) -> None:
    assert recursor_address(text) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"domains": ()},
        {"domains": (".",)},
        {"domains": ("a..b",)},
        {"domains": (".".join(["a" * 60] * 3),)},
        {"node_ttl_s": -1},
        {"service_ttl_s": {"web": 1 << 31}},
        {"name_server": "ns.example.com"},
        {"udp_size_max": 511},
        {"recursors": ("dns.example.com",)},
        {"recursors": ("10.0.0.2:x",)},
        {"recursors": ("10.0.0.2:0",)},
        {"recursors": ("10.0.0.2:99999",)},
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_sentence(settings: dict[str, object]) -> None:
    with pytest.raises(LepaError, match="dns: ") as caught:
        DnsSettings(**settings)
    assert caught.value.code == "invalid"
