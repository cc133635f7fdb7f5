from collections import Counter

import dns.flags
import dns.message
import dns.rcode
from tests.dns_answers import TABLE, answers, ask, instance, outcome, responder

from lepa.catalog.table import Node, ServiceTable
from lepa.dns.responder import Verdict


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


def test_servfail_is_an_answer_to_the_question() -> None:
    asked = dns.message.make_query("example.com", "A")
    answer = responder().servfail(asked.to_wire())
    assert isinstance(answer, bytes)
    assert dns.message.from_wire(answer).rcode() == dns.rcode.SERVFAIL
    assert responder().servfail(b"") is Verdict.DROP
