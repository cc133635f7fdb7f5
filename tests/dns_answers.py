"""Asks a responder as clients do, and reads its answers with dnspython."""

import dns.message
import dns.rcode
import dns.rdatatype

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.dns.responder import Responder
from lepa.dns.settings import DnsSettings


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
