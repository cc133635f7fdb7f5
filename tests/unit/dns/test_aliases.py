import dns.flags
import dns.message
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.dns import aliases
from lepa.dns import message as wire
from lepa.dns.responder import Chase, Responder
from lepa.dns.settings import DnsSettings

NAME = wire.wire_name("db.example.org")


def reply(*records: str, name: str = "db.example.org", rtype: str = "A") -> bytes:
    """A recursor's reply with some records: owner, TTL, type and data of each."""
    made = dns.message.make_response(dns.message.make_query(name, rtype), recursion_available=True)
    for record in records:
        owner, ttl, kind, data = record.split()
        made.answer.append(dns.rrset.from_text(owner, int(ttl), "IN", kind, data))
    return made.to_wire()


def texts(found: tuple[wire.Record, ...]) -> list[str]:
    """The same as `reply` takes, read back by another implementation."""
    composed = wire.encode_sections(NAME, wire.Reply(answers=found), wire.MESSAGE_SIZE_MAX)
    query = wire.read_query(dns.message.make_query("db.example.org", "A").to_wire())
    assert isinstance(query, wire.Query)
    read = dns.message.from_wire(wire.assemble(query, composed))
    return [
        f"{rows.name} {rows.ttl} {dns.rdatatype.to_text(rows.rdtype)} {row}" for rows in read.answer for row in rows
    ]


def test_the_question_is_one_that_others_understand() -> None:
    asked = dns.message.from_wire(aliases.question(b"\x12\x34", NAME, wire.AAAA))
    assert asked.id == 0x1234
    assert str(asked.question[0]) == "db.example.org. IN AAAA"
    assert asked.flags & dns.flags.RD
    assert asked.payload == aliases.PAYLOAD_SIZE


def test_the_chain_is_given_in_the_order_in_which_it_leads() -> None:
    found = aliases.links(
        reply(
            "b.example.org. 20 A 10.1.1.1",
            "DB.example.org. 30 CNAME a.example.org.",
            "a.example.org. 25 CNAME b.example.org.",
            "b.example.org. 20 A 10.1.1.2",
            "other.example.org. 20 A 10.1.1.3",
        ),
        NAME,
        wire.A,
    )
    assert texts(found) == [
        "db.example.org. 30 CNAME a.example.org.",
        "a.example.org. 25 CNAME b.example.org.",
        "b.example.org. 20 A 10.1.1.1",
        "b.example.org. 20 A 10.1.1.2",
    ]


@pytest.mark.parametrize(
    "records",
    [
        (),
        ("other.example.org. 20 A 10.1.1.3",),
        ("db.example.org. 20 AAAA fd00::1",),
        ("db.example.org. 20 CNAME db.example.org.",),
        ("db.example.org. 20 CNAME a.example.org.", "a.example.org. 20 CNAME db.example.org."),
        ("db.example.org. 2 CNAME a.", "a. 2 CNAME b.", "b. 2 CNAME c.", "c. 2 A 10.1.1.1"),
    ],
)
def test_what_leads_nowhere_in_three_steps_is_left_out(records: tuple[str, ...]) -> None:
    assert aliases.links(reply(*records), NAME, wire.A) == ()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_reply_or_none(data: bytes) -> None:
    aliases.links(data, NAME, wire.A)
    aliases.links(reply("db.example.org. 30 CNAME a.example.org.")[:30] + data, NAME, wire.A)


@given(st.integers(0, 200), st.integers(0, 255))
def test_any_damaged_reply_is_read_to_its_end(position: int, octet: int) -> None:
    whole = bytearray(reply("db.example.org. 30 CNAME a.example.org.", "a.example.org. 20 A 10.1.1.1"))
    whole[position % len(whole)] = octet
    aliases.links(bytes(whole), NAME, wire.A)


def responder(**settings: object) -> Responder:
    table = ServiceTable.build(
        [
            Instance(id="1", service="db", datacenter="dc1", address="db.example.org", port=5432),
            Instance(id="3", service="two", datacenter="dc1", address="a.example.org", port=1),
            Instance(id="4", service="two", datacenter="dc1", address="b.example.org", port=2),
            Instance(id="5", service="circle", datacenter="dc1", address="circle.service.consul", port=2),
            Instance(id="2", service="near", datacenter="dc1", address="n1.node.consul", port=1),
        ],
        [Node(name="n1", address="10.9.0.1", datacenter="dc1")],
        7,
    )
    return Responder(table, DnsSettings(**{"recursors": ("10.0.0.2",), **settings}), 1)


def read(answer: object) -> dns.message.Message:
    assert isinstance(answer, bytes)
    return dns.message.from_wire(answer)


def answered(server: Responder, found: Chase, said: bytes | None) -> dns.message.Message:
    return read(server.chased(found, said))


def asked(name: str = "db.service.consul", rtype: str = "A", **options: object) -> bytes:
    return dns.message.make_query(name, rtype, **options).to_wire()


def chase(**options: object) -> tuple[Responder, Chase]:
    server = responder()
    found = server.udp(asked(**options))
    assert isinstance(found, Chase)
    return server, found


def test_a_service_at_a_host_name_is_followed_through_the_recursors() -> None:
    server, found = chase()
    assert str(dns.message.from_wire(found.question).question[0]) == "db.example.org. IN A"
    answer = answered(server, found, reply("db.example.org. 20 A 10.1.1.1"))
    assert [str(rows) for rows in answer.answer] == [
        "db.service.consul. 0 IN CNAME db.example.org.",
        "db.example.org. 20 IN A 10.1.1.1",
    ]
    assert isinstance(server.udp(asked()), Chase), "the addresses of others are not kept"


@pytest.mark.parametrize("said", [None, b"", b"nonsense", reply()], ids=["none", "empty", "nonsense", "nothing known"])
def test_the_alias_alone_is_the_answer_when_the_recursors_know_nothing(said: bytes | None) -> None:
    server, found = chase()
    answer = answered(server, found, said)
    assert [str(rows) for rows in answer.answer] == ["db.service.consul. 0 IN CNAME db.example.org."]


def test_without_edns_five_records_are_enough() -> None:
    many = reply(*(f"db.example.org. 20 A 10.1.1.{number}" for number in range(9)))
    for edns, count in ((False, 5), (0, 10)):
        server, found = chase(use_edns=edns)
        answer = answered(server, found, many)
        assert sum(len(rows) for rows in answer.answer) == count


def test_our_own_names_and_other_types_ask_nobody() -> None:
    server = responder()
    for message in (
        asked(rtype="TXT"),
        asked("near.service.consul"),
        asked("n1.node.consul"),
        asked("near.service.consul", "SRV"),
    ):
        assert isinstance(server.udp(message), bytes)


@pytest.mark.parametrize("recursors", [(), ("10.0.0.2",)])
def test_a_host_name_of_ours_is_answered_with_its_addresses(recursors: tuple[str, ...]) -> None:
    server = responder(recursors=recursors)
    answer = read(server.udp(asked("near.service.consul")))
    assert [str(rows) for rows in answer.answer] == [
        "near.service.consul. 0 IN CNAME n1.node.consul.",
        "n1.node.consul. 0 IN A 10.9.0.1",
    ]
    answer = read(server.udp(asked("near.service.consul", "SRV")))
    assert [str(rows) for rows in answer.answer] == ["near.service.consul. 0 IN SRV 1 1 1 n1.node.consul."]
    assert [str(rows) for rows in answer.additional] == ["n1.node.consul. 0 IN A 10.9.0.1"]


def test_names_of_ours_that_lead_in_a_circle_are_left_alone() -> None:
    answer = read(responder().udp(asked("circle.service.consul")))
    assert [str(rows) for rows in answer.answer] == ["circle.service.consul. 0 IN CNAME circle.service.consul."]


def test_srv_targets_of_other_domains_get_their_addresses_one_after_the_other() -> None:
    server = responder()
    found = server.udp(asked("two.service.consul", "SRV"))
    assert isinstance(found, Chase)
    hosts = {found.name, *found.rest}
    assert hosts == {wire.wire_name("a.example.org"), wire.wire_name("b.example.org")}
    for address in ("10.1.1.1", "10.1.1.2"):
        question = dns.message.from_wire(found.question).question[0]
        host = str(question.name)
        assert question.rdtype == dns.rdatatype.A
        said = server.chased(found, reply(f"{host} 20 A {address}", name=host))
        if isinstance(said, Chase):
            found = said
    answer = read(said)
    assert {row.target.to_text() for rows in answer.answer for row in rows} == {"a.example.org.", "b.example.org."}
    assert {row.address for rows in answer.additional for row in rows} == {"10.1.1.1", "10.1.1.2"}


def test_after_a_silent_recursor_srv_targets_are_given_as_they_are() -> None:
    server = responder()
    found = server.udp(asked("two.service.consul", "SRV"))
    assert isinstance(found, Chase)
    answer = read(server.chased(found, None))
    assert (sum(map(len, answer.answer)), answer.additional) == (2, [])
