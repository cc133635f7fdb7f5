"""DNS messages survive a round trip with dnspython, and no datagram makes us fail or say too much."""

import random

import dns.edns
import dns.message
import dns.name
import dns.rdatatype
from hypothesis import given, settings
from hypothesis import strategies as st

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.dns import message as wire
from lepa.dns.responder import Responder, Verdict
from lepa.dns.settings import DnsSettings

LABELS = st.binary(min_size=1, max_size=63)
NAMES = st.lists(LABELS, max_size=3).map(lambda labels: dns.name.Name([*labels, b""]))
SERVICES = ["web", "db", "big", "none"]
PARTS = st.sampled_from(
    ["web", "db", "big", "none", "_web", "_tcp", "service", "node", "n1", "dc1", "dc", "addr", "0a000001"]
)
QUESTIONS = st.lists(PARTS, max_size=5).map(lambda parts: ".".join([*parts, "consul"]))
TYPES = st.sampled_from(["A", "AAAA", "SRV", "ANY", "TXT", "SOA", "NS", "PTR", "CNAME", "MX"])


def instances(count: int, service: str) -> list[Instance]:
    return [
        Instance(
            id=f"{service}-{n}",
            service=service,
            node_name="n1",
            datacenter="dc1",
            address=f"10.0.{n >> 8}.{n & 255}",
            port=n,
        )
        for n in range(count)
    ]


TABLE = ServiceTable.build(
    [*instances(3, "web"), *instances(1, "db"), *instances(300, "big")],
    [Node(name="n1", address="10.9.0.1", datacenter="dc1", meta=(("a", "b" * 300),))],
    1,
)


def allowed_size(asked: wire.Query) -> int:
    return max(512, asked.edns.payload_size) if asked.edns else 512


@settings(deadline=None)
@given(name=NAMES, rtype=st.integers(1, 255), edns=st.none() | st.integers(0, 65_535), ident=st.integers(0, 65_535))
def test_any_query_that_dnspython_writes_is_read_alike(
    name: dns.name.Name, rtype: int, edns: int | None, ident: int
) -> None:
    asked = dns.message.make_query(name, rtype, id=ident, use_edns=edns is not None and 0, payload=edns or 0)
    found = wire.read_query(asked.to_wire())
    assert isinstance(found, wire.Query)
    assert int.from_bytes(found.ident, "big") == ident
    assert found.name == name.canonicalize().to_wire()
    assert found.qtype == rtype
    assert (found.edns.payload_size if found.edns else None) == edns
    assert [label.encode("latin-1") for label in wire.labels_of(found.name)] == list(name.canonicalize().labels[:-1])


@given(question=QUESTIONS, rtype=TYPES, payload=st.none() | st.integers(0, 65_535), tcp=st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_answer_reads_back_and_is_no_longer_than_allowed(
    question: str, rtype: str, payload: int | None, tcp: bool
) -> None:
    asked = dns.message.make_query(question, rtype, use_edns=payload is not None and 0, payload=payload or 0)
    responder = Responder(TABLE, DnsSettings(), seed=1)
    for _ in range(3):
        answer = responder.tcp(asked.to_wire()) if tcp else responder.udp(asked.to_wire())
        assert isinstance(answer, bytes)
        read = dns.message.from_wire(answer, raise_on_truncation=False)
        assert asked.is_response(read)
        limit = 65_535 if tcp else max(512, payload or 0)
        assert len(answer) <= limit
        assert bool(read.answer) or any(rrset.rdtype == dns.rdatatype.SOA for rrset in read.authority)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 255), st.integers(0, 65_535)), min_size=1, max_size=60))
def test_the_answers_over_tcp_are_exactly_the_healthy_instances(rows: list[tuple[int, int]]) -> None:
    table = ServiceTable.build(
        [
            Instance(
                id=str(at), service="web", datacenter="dc1", address=f"10.0.0.{low}", port=port, healthy=at % 3 > 0
            )
            for at, (low, port) in enumerate(rows)
        ],
        [],
        1,
    )
    answer = Responder(table, DnsSettings(), seed=len(rows)).tcp(
        dns.message.make_query("web.service.lepa", "SRV").to_wire()
    )
    assert isinstance(answer, bytes)
    found = {(str(row.target), row.port) for rrset in dns.message.from_wire(answer).answer for row in rrset}
    assert found == {(f"0a0000{low:02x}.addr.dc1.lepa.", port) for at, (low, port) in enumerate(rows) if at % 3 > 0}


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(SERVICES), st.integers(0, 4)), max_size=12))
def test_a_renewed_responder_says_what_a_new_one_would(steps: list[tuple[str, int]]) -> None:
    table = ServiceTable.build(instances(3, "web"), [], 1)
    responder = Responder(table, DnsSettings(), seed=1)
    questions = [dns.message.make_query(f"{name}.service.consul", "SRV").to_wire() for name in SERVICES]
    for number, (service, count) in enumerate(steps):
        table = table.with_service("default", service, instances(count, service), number + 2)
        responder = responder.renewed(table)
        for question in questions:
            kept, made = responder.tcp(question), Responder(table, DnsSettings(), seed=2).tcp(question)
            assert isinstance(kept, bytes)
            assert isinstance(made, bytes)
            old, new = dns.message.from_wire(kept), dns.message.from_wire(made)
            assert old.rcode() == new.rcode()
            assert [set(rrset) for rrset in old.answer] == [set(rrset) for rrset in new.answer]


def mutilated(chance: random.Random) -> bytes:
    """A datagram that began as a query, or as nothing at all."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(80))
    name = ".".join(
        chance.choice(["web", "big", "service", "consul", "lepa", "_tcp", "n1", "node", "x" * 63]) for _ in range(3)
    )
    options = (
        [dns.edns.GenericOption(chance.randrange(20), chance.randbytes(chance.randrange(12)))]
        if chance.random() < 0.5
        else []
    )
    options = [option for option in options if int(option.otype) not in (8, 15)]
    asked = dns.message.make_query(
        f"{name}.consul",
        chance.choice(["SRV", "A", "ANY", "TXT"]),
        use_edns=chance.choice([False, 0]),
        options=options,
        payload=chance.randrange(65_536),
    )
    message = bytearray(asked.to_wire())
    for _ in range(chance.randrange(4)):
        message[chance.randrange(len(message))] = chance.randrange(256)
    cut = chance.randrange(len(message) + 1) if chance.random() < 0.3 else len(message)
    return bytes(message[:cut]) + (chance.randbytes(chance.randrange(20)) if chance.random() < 0.2 else b"")


def test_ten_thousand_mutilated_datagrams_never_raise_and_never_get_too_much() -> None:
    chance = random.Random(2_782)
    responder = Responder(TABLE, DnsSettings(), seed=1)
    forwarding = Responder(TABLE, DnsSettings(recursors=("10.0.0.1",)), seed=1)
    for _ in range(10_000):
        message = mutilated(chance)
        assert forwarding.udp(message) is not None
        answer = responder.udp(message)
        if answer is Verdict.DROP:
            continue
        assert isinstance(answer, bytes)
        asked = wire.read_query(message)
        assert answer[:2] == message[:2]
        assert len(answer) <= (allowed_size(asked) if isinstance(asked, wire.Query) else 12)
        dns.message.from_wire(answer, raise_on_truncation=False)
