"""Pure: decides what to answer to a question about services and nodes.

Forms of a name, below each domain (`consul.` and `lepa.` unless set otherwise); labels are scanned from the right for
`service`, `node` or `addr`, what stands to the right of it is a place:

    [TAG.]NAME.service[.PLACE]      healthy instances             _NAME._tcp[.service][.PLACE]   the same, RFC 2782
    _NAME._TAG[.service][.PLACE]    those that carry TAG          NAME.node[.PLACE]              a node's address
    HEX.addr[.PLACE]                the address itself            4.3.2.1.in-addr.arpa           who has an address

A place is any of `DC`, `DC.dc`, `REGION.region` and `NAMESPACE.ns`; without one, all datacenters and the default
namespace are meant. A name that does not exist, or has no healthy instance, is NXDOMAIN; one that exists without
records of the wanted type is NOERROR without answers; both carry the SOA.

`Responder` answers whole messages from one table. It makes the records of a name once, encodes them in a few orders
(`ROTATIONS_MAX`), and finds finished answers by the bytes of the query, so that the usual query costs one look-up.
All its caches are bounded by emptying them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import chain, repeat
from typing import Generic, TypeVar

import msgspec

from lepa.catalog.table import EMPTY, Instance, Node, ServiceKey, ServiceTable, service_key
from lepa.dns import aliases
from lepa.dns import message as wire
from lepa.dns.message import Query, Record, Reply, Sections
from lepa.model.errors import invalid

Address = IPv4Address | IPv6Address
K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

REPLIES_MAX = 8_192
"""Names whose records are kept."""
ENCODED_BYTES_MAX = 16 << 20
"""Size of the encoded sections that are kept, and of the finished answers that are kept, each."""
ENCODED_MAX = 8_192
"""Names, types and sizes whose encoded sections are kept."""
FINISHED_MAX = 8_192
"""Different queries whose finished answers are kept."""
ROTATIONS_MAX = 16
"""Orders in which a set is encoded: as many as it has members, so that each is first equally often, up to this."""
ROTATED_RECORDS_MAX = 2_048
"""Records in all orders of a set together: large sets get fewer orders (but at least two)."""
ROUNDS = 16
"""How often the orders of a set are given before new ones are drawn."""
KEPT_OVERHEAD = 1_024
"""Octets that a kept answer is taken to cost beside its own."""
TARGETS_MAX = 16_384
"""Instance addresses whose records are kept."""
TARGETS_ASKED_MAX = 3
"""Host names of other domains, among the targets of one SRV answer, that recursors are asked about, one by one."""
PLACES_MAX = 256
"""Datacenters whose names are kept in wire form."""
ADDRESS_SUFFIX_MAX = wire.NAME_SIZE_MAX - 33
"""Room for the suffix behind the longest hexadecimal label, an IPv6 address."""
DOMAIN_SIZE_MAX = 128
"""Longest domain of ours in wire form: leaves room for the names below it."""
TTL_MAX_S = 0x7FFFFFFF
UDP_SIZE_LARGEST = 65_467
"""Room for an IPv6 and a UDP header below 65,535."""
DNS_PORT = 53


class DnsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may choose about DNS. Times are seconds.

    domains: where our names live; the first is used in answers to reverse questions. namespace: whose services are
    meant when a name does not say. node_ttl_s, service_ttl_s: how long resolvers may keep answers; keys of the latter
    are names, or prefixes that end in `*`, and the longest that fits wins; 0 because a moved task must be found at
    once. negative_ttl_s: the same for "there is none". soa_*: for secondaries, of which there are none, so the
    customary values. name_server: the address that `ns.DOMAIN` has, empty for none. mark_truncated: set TC when
    answers did not fit, so that clients ask again over TCP. udp_size_max: the longest UDP answer even when a client
    takes more. node_meta_txt: add a node's metadata as TXT beside SRV answers that name it. recursors: `HOST` or
    `HOST:PORT` of resolvers for all other domains, asked in turn, recursor_timeout_s for each; without any, other
    domains are refused. tcp_connections_max, tcp_idle_s: the longest-idle connection makes room for a new one.
    """

    domains: tuple[str, ...] = ("consul.", "lepa.")
    namespace: str = "default"
    node_ttl_s: int = 0
    service_ttl_s: dict[str, int] = {}
    negative_ttl_s: int = 0
    soa_refresh_s: int = 3_600
    soa_retry_s: int = 600
    soa_expire_s: int = 86_400
    name_server: str = ""
    mark_truncated: bool = True
    udp_size_max: int = 65_467
    node_meta_txt: bool = True
    recursors: tuple[str, ...] = ()
    recursor_timeout_s: float = 2.0
    tcp_connections_max: int = 256
    tcp_idle_s: float = 10.0

    def __post_init__(self) -> None:
        times = {"node_ttl_s": self.node_ttl_s, "negative_ttl_s": self.negative_ttl_s, **self.service_ttl_s}
        times |= {"soa_refresh_s": self.soa_refresh_s, "soa_retry_s": self.soa_retry_s}
        for name, value in (times | {"soa_expire_s": self.soa_expire_s}).items():
            if not 0 <= value <= TTL_MAX_S:
                raise invalid(f"dns: {name} must be 0 to {TTL_MAX_S} seconds, not {value}")
        wires = [_safe_name(domain.strip(".")) for domain in self.domains]
        if not wires or any(name is None or len(name) > DOMAIN_SIZE_MAX for name in wires):
            raise invalid(f"dns: domains must be at least one DNS name such as 'consul.', not {list(self.domains)}")
        if self.name_server and not _address(self.name_server):
            raise invalid(f"dns: name_server must be an IP address, not {self.name_server!r}")
        if not wire.UDP_SIZE_PLAIN <= self.udp_size_max <= UDP_SIZE_LARGEST:
            raise invalid(f"dns: udp_size_max must be {wire.UDP_SIZE_PLAIN} to {UDP_SIZE_LARGEST} octets")
        for recursor in self.recursors:
            recursor_address(recursor)


def recursor_address(text: str) -> tuple[str, int]:
    """The IP address and port of one of `recursors`: `10.0.0.2`, `10.0.0.2:5353`, `fd00::2`, `[fd00::2]:5353`."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
    elif text.count(":") == 1:
        host, port = text.split(":")
    address, number = _address(host), port.removeprefix(":") or str(DNS_PORT)
    if address is None or not number.isdecimal() or not 0 < int(number) <= 0xFFFF:
        raise invalid(f"dns: recursors must be IP addresses with or without a port, not {text!r}")
    return str(address), int(number)


class Verdict(Enum):
    """What to do with a message that gets no answer from us."""

    DROP = "drop"
    FORWARD = "forward"


class Chase(msgspec.Struct, frozen=True):
    """An answer that leads to a name of another domain: `question` is to be put to the recursors.

    query: the client's. size_max: what its answer may take. answers: our records: CNAMEs, or SRV records of which some
    have a host name as target. name: what the question is about. rest: other names to ask about after it.
    """

    query: Query
    size_max: int
    answers: tuple[Record, ...]
    question: bytes
    name: bytes
    rest: tuple[bytes, ...] = ()


Answer = bytes | Verdict | Chase
"""What to send, what to do with a message that gets no answer from us, or what to ask first."""


class Known(msgspec.Struct, frozen=True):
    """A reply and what it was made from. subject: the service, or NODES when nodes alone decide, else None. beyond:
    names of other domains that it leads to."""

    reply: Reply
    subject: ServiceKey | None = None
    beyond: tuple[bytes, ...] = ()

    def still_holds(self, old: ServiceTable, new: ServiceTable) -> bool:
        """Whether the reply is the same from a newer table. Those that carry the table's index (the SOA) never are."""
        if self.subject is None or old.nodes is not new.nodes:
            return False
        return self.subject == NODES or old.services.get(self.subject) is new.services.get(self.subject)


NODES: ServiceKey = ("", "")


class Place(msgspec.Struct, frozen=True):
    """Where a name says to look. Empty fields allow anything; `any` is a datacenter or a region."""

    any: str = ""
    datacenter: str = ""
    region: str = ""
    namespace: str = ""

    def holds(self, row: Instance | Node) -> bool:
        """Whether an instance or node is there."""
        datacenter, region = row.datacenter.lower(), row.region.lower()
        return (
            (not self.any or self.any in (datacenter, region))
            and self.datacenter in ("", datacenter)
            and self.region in ("", region)
        )


EVERYWHERE = Place()
_PLACE_FIELDS = {"dc": "datacenter", "region": "region", "ns": "namespace"}


def parse_place(labels: Sequence[str]) -> Place | None:
    """The place that the labels right of a keyword name; None when they name none."""
    fields: dict[str, str] = {}
    rest = list(labels)
    while rest:
        last = rest.pop()
        field = _PLACE_FIELDS.get(last) if rest else None
        name, value = (field, rest.pop()) if field else ("any", last)
        if name in fields:
            return None
        fields[name] = value
    return Place(**fields)


class Resolver:
    """Answers questions from one table."""

    def __init__(self, table: ServiceTable, settings: DnsSettings) -> None:
        self._table = table
        self._settings = settings
        self._domains = [(wire.wire_name(domain), domain.strip(".").lower()) for domain in settings.domains]

    def is_ours(self, name: bytes) -> bool:
        """Whether a wire name is in one of our domains."""
        return any(wire.is_within(name, domain) for domain, _ in self._domains)

    def resolve(self, name: bytes, qtype: int) -> Known | None:
        """What is known about a lower-cased wire name, and about names of ours that it leads to; None when it is not
        for us to answer."""
        known = self._resolve(name, qtype)
        if known is None or not any(record.target and not record.extras for record in known.reply.answers):
            return known
        if qtype in (wire.A, wire.AAAA):
            return self._with_links(known, qtype)
        return self._with_targets(known) if qtype == wire.SRV else known

    def _with_links(self, known: Known, qtype: int) -> Known:
        """A CNAME with what stands behind it."""
        answers = known.reply.answers
        records, beyond = self._links(answers[-1].target, qtype)
        names = (beyond,) if beyond else ()
        if not records:
            return msgspec.structs.replace(known, beyond=names)
        return Known(Reply(answers=(*answers, *records), linked=True), beyond=names)

    def _with_targets(self, known: Known) -> Known:
        """SRV records whose targets are host names with the addresses of those that are ours beside them."""
        bare = dict.fromkeys(record.target for record in known.reply.answers if not record.extras)
        links = {name: self._links(name, wire.A) for name in bare}
        answers = tuple(
            msgspec.structs.replace(record, extras=links[record.target][0]) if not record.extras else record
            for record in known.reply.answers
        )
        beyond = tuple(dict.fromkeys(name for _, name in links.values() if name))[:TARGETS_ASKED_MAX]
        subject = known.subject if all(not records for records, _ in links.values()) else None
        return Known(msgspec.structs.replace(known.reply, answers=answers), subject, beyond)

    def _links(self, name: bytes, qtype: int) -> tuple[tuple[Record, ...], bytes | None]:
        """What we know behind a name, CNAME by CNAME, and the name of another domain that it leads to. Empty when that
        is more than `aliases.DEPTH_MAX` CNAMEs away, the one that led to `name` included."""
        found: list[Record] = []
        for _ in range(aliases.DEPTH_MAX):
            if not self.is_ours(name):
                return tuple(found), name
            known = self._resolve(name, qtype)
            answers = known.reply.answers if known is not None else ()
            found += answers
            if not answers or not answers[-1].target:
                return tuple(found), None
            name = answers[-1].target
        return (), None

    def _resolve(self, name: bytes, qtype: int) -> Known | None:
        for domain, text in self._domains:
            if wire.is_within(name, domain):
                labels = wire.labels_of(name[: len(name) - len(domain)] + b"\0")
                return _Lookup(self._table, self._settings, name, qtype, domain, text).answer(labels)
        return self._reverse(name, qtype)

    def _reverse(self, name: bytes, qtype: int) -> Known | None:
        """The name of a node, else of a service, that has the address."""
        if qtype not in (wire.PTR, wire.ANY) or (address := _reversed_address(wire.labels_of(name))) is None:
            return None
        text = self._domains[0][1]
        target: bytes | None = None
        if node := self._table.nodes_by_address.get(str(address)):
            target = _safe_name(node.name, "node", node.datacenter, text)
        elif instance := self._table.instances_by_address.get(str(address)):
            target = _safe_name(instance.service, "service", instance.datacenter, text)
        return Known(Reply(answers=(wire.name_record(name, wire.PTR, 0, target),))) if target else None


class _Lookup:
    """One question below one domain."""

    def __init__(
        self, table: ServiceTable, settings: DnsSettings, name: bytes, qtype: int, domain: bytes, domain_text: str
    ) -> None:
        self._table = table
        self._settings = settings
        self._name = name
        self._qtype = qtype
        self._domain = domain
        self._domain_text = domain_text

    def answer(self, labels: list[str]) -> Known:
        if not labels:
            return self._apex()
        if labels == ["ns"]:
            return self._positive(self._name_server(), NODES)
        at = next((at for at in reversed(range(len(labels))) if labels[at] in ("service", "node", "addr")), None)
        if at is None:
            return self._without_keyword(labels)
        place = parse_place(labels[at + 1 :])
        if place is None:
            return self._negative(wire.NXDOMAIN)
        left, keyword = labels[:at], labels[at]
        if not left:
            return self._negative(wire.NOERROR)
        if keyword == "service":
            return self._service(left, place)
        return self._node(".".join(left), place) if keyword == "node" else self._address(left)

    def _without_keyword(self, labels: list[str]) -> Known:
        """`_NAME._TAG[.PLACE]`, or a place alone: that has no records but names below it, so it exists (RFC 8020)."""
        if len(labels) >= 2 and labels[0][:1] == labels[1][:1] == "_":
            place = parse_place(labels[2:])
            return self._service(labels[:2], place) if place else self._negative(wire.NXDOMAIN)
        place = parse_place(labels)
        named = {place.any, place.datacenter, place.region} - {""} if place else set()
        exists = bool(named) and named <= self._table.places
        return self._negative(wire.NOERROR if exists else wire.NXDOMAIN)

    def _apex(self) -> Known:
        if self._qtype == wire.SOA:
            return Known(Reply(answers=(self._soa(),)))
        if self._qtype in (wire.NS, wire.ANY):
            ns = wire.wire_name("ns." + self._domain_text)
            extras = tuple(self._name_server(ns))
            answer = wire.name_record(self._domain, wire.NS, self._settings.node_ttl_s, ns)
            return Known(Reply(answers=(msgspec.structs.replace(answer, extras=extras),)), NODES)
        return self._negative(wire.NOERROR)

    def _name_server(self, owner: bytes | None = None) -> list[Record]:
        address = _address(self._settings.name_server)
        wanted = owner is not None or self._wants(address)
        return (
            [wire.address_record(owner or self._name, self._settings.node_ttl_s, address)] if address and wanted else []
        )

    def _service(self, left: list[str], place: Place) -> Known:
        name, tag = _service_and_tag(left)
        if not name:
            return self._negative(wire.NOERROR)
        namespace = place.namespace or self._settings.namespace
        subject = service_key(namespace, name)
        rows = self._table.service(namespace, name)
        instances = [row for row in (rows.tagged(tag) if tag else rows.healthy) if place.holds(row)]
        if not instances:
            return self._negative(wire.NXDOMAIN)
        ttl = _ttl_of(name, self._settings.service_ttl_s)
        if self._qtype == wire.SRV:
            return self._positive(_distinct(self._srv_records(instances, ttl)), subject)
        return self._positive(self._addresses([self._address_of(row) for row in instances], ttl), subject)

    def _srv_records(self, instances: Iterable[Instance], ttl: int) -> Iterator[Record]:
        for instance in instances:
            found = self._target(instance, ttl)
            if found:
                target, extras = found
                yield wire.srv_record(self._name, ttl, instance.share, instance.port, target, extras)

    def _target(self, instance: Instance, ttl: int) -> tuple[bytes, tuple[Record, ...]] | None:
        """The name an SRV record gives for an instance, and what is worth adding about it.

        The node's when the instance has no address of its own, the `addr` name of an IP, or the host name as it is.
        """
        if not instance.address:
            node = self._table.node_of(instance)
            name = _safe_name(instance.node_name, "node", instance.datacenter, self._domain_text)
            if node is None or name is None:
                return None
            return name, self._node_records(name, node, ttl, meta=self._settings.node_meta_txt)
        return _address_target(instance.address, instance.datacenter, self._domain_text, ttl)

    def _node_records(self, owner: bytes, node: Node, ttl: int, meta: bool) -> tuple[Record, ...]:
        found: list[Record] = []
        if address := _address(node.address):
            found.append(wire.address_record(owner, ttl, address))
        elif target := _safe_name(node.address):
            found.append(wire.name_record(owner, wire.CNAME, ttl, target))
        if meta:
            found += [wire.txt_record(owner, ttl, _meta_text(key, value)) for key, value in node.meta]
        return tuple(found)

    def _address_of(self, instance: Instance) -> str:
        if instance.address:
            return instance.address
        node = self._table.node_of(instance)
        return node.address if node else ""

    def _addresses(self, texts: Iterable[str], ttl: int) -> list[Record]:
        """The wanted ones among addresses; a host name only when there is no IP, and only one (RFC 2181, 10.1)."""
        different = list(dict.fromkeys(texts))
        addresses = [address for text in different if (address := _address(text))]
        if addresses:
            return [wire.address_record(self._name, ttl, address) for address in addresses if self._wants(address)]
        names = [name for text in different if (name := _safe_name(text))]
        return [wire.name_record(self._name, wire.CNAME, ttl, names[0])] if names else []

    def _node(self, name: str, place: Place) -> Known:
        nodes = [node for node in self._table.node(name) if place.holds(node)]
        if not nodes:
            return self._negative(wire.NXDOMAIN)
        ttl = self._settings.node_ttl_s
        records = self._addresses((node.address for node in nodes), ttl) if self._qtype != wire.TXT else []
        if self._qtype in (wire.TXT, wire.ANY):
            texts = dict.fromkeys(_meta_text(key, value) for node in nodes for key, value in node.meta)
            records += [wire.txt_record(self._name, ttl, text) for text in texts]
        return self._positive(records, NODES)

    def _address(self, left: list[str]) -> Known:
        address = _hexadecimal_address(left[0]) if len(left) == 1 else None
        if address is None:
            return self._negative(wire.NXDOMAIN)
        wanted = [wire.address_record(self._name, self._settings.node_ttl_s, address)] if self._wants(address) else []
        return self._positive(wanted, NODES)

    def _wants(self, address: Address | None) -> bool:
        return address is not None and self._qtype in (wire.ANY, wire.A if address.version == 4 else wire.AAAA)

    def _positive(self, records: Sequence[Record], subject: ServiceKey) -> Known:
        return Known(Reply(answers=tuple(records)), subject) if records else self._negative(wire.NOERROR)

    def _negative(self, rcode: int) -> Known:
        return Known(Reply(rcode=rcode, authority=(self._soa(),)))

    def _soa(self) -> Record:
        settings = self._settings
        return wire.soa_record(
            self._domain,
            settings.negative_ttl_s,
            wire.wire_name("ns." + self._domain_text),
            wire.wire_name("hostmaster." + self._domain_text),
            self._table.index,
            (settings.soa_refresh_s, settings.soa_retry_s, settings.soa_expire_s),
        )


@lru_cache(maxsize=TARGETS_MAX)
def _address_target(text: str, datacenter: str, domain: str, ttl: int) -> tuple[bytes, tuple[Record, ...]] | None:
    """The name an SRV record gives for an instance with an address of its own, and the record of that name.

    Kept from one table to the next: of a large set most instances stay.
    """
    address = _address(text)
    if address is None:
        name = _safe_name(text)
        return (name, ()) if name else None
    label = address.packed.hex().encode()
    name = bytes([len(label)]) + label + _address_suffix(datacenter, domain)
    return name, (wire.address_record(name, ttl, address),)


@lru_cache(maxsize=PLACES_MAX)
def _address_suffix(datacenter: str, domain: str) -> bytes:
    """What follows the hexadecimal label; without the datacenter when that is no DNS name."""
    suffix = _safe_name("addr", datacenter, domain)
    return suffix if suffix and len(suffix) <= ADDRESS_SUFFIX_MAX else wire.wire_name("addr." + domain)


def _service_and_tag(left: list[str]) -> tuple[str, str]:
    """Service name and tag of the labels left of `service`; the name is empty for `_tcp` alone, which only parts names.

    Tags may have dots. `tcp` and `udp` in the place of an RFC 2782 tag ask for nothing.
    """
    if len(left) == 2 and left[0][:1] == left[1][:1] == "_":
        tag = left[1][1:]
        return left[0][1:], "" if tag in ("tcp", "udp") else tag
    name = left[-1]
    return ("", "") if name.startswith("_") else (name, ".".join(left[:-1]))


def _ttl_of(name: str, ttls: Mapping[str, int]) -> int:
    """The TTL of a service: of its own name, else of the longest prefix that fits, else 0."""
    lowered = {key.lower(): ttl for key, ttl in ttls.items()}
    fitting = [key for key in lowered if key.endswith("*") and name.startswith(key[:-1])]
    return lowered.get(name, lowered[max(fitting, key=len)] if fitting else 0)


def _address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _hexadecimal_address(text: str) -> Address | None:
    try:
        packed = bytes.fromhex(text)
        return ip_address(packed) if len(text) in (8, 32) else None
    except ValueError:
        return None


def _reversed_address(labels: list[str]) -> Address | None:
    """The address that a name below `in-addr.arpa` or `ip6.arpa` stands for."""
    digits = labels[-3::-1]
    if labels[-2:] == ["in-addr", "arpa"] and len(digits) == 4:
        return _address(".".join(digits))
    if labels[-2:] == ["ip6", "arpa"] and len(digits) == 32:
        return _hexadecimal_address("".join(digits))
    return None


def _safe_name(*parts: str) -> bytes | None:
    """The wire name of the parts that are not empty; None when it cannot be one. The first part may not be empty."""
    try:
        return wire.wire_name(".".join(part for part in parts if part)) if parts[0] else None
    except ValueError:
        return None


def _meta_text(key: str, value: str) -> str:
    """One pair as RFC 1464 text; keys that start with `rfc1035-` give the bare value."""
    if key.startswith("rfc1035-"):
        return value
    return key.replace("`", "``").replace("=", "`=") + "=" + value


def _led_on(record: Record, name: bytes, behind: tuple[Record, ...]) -> Record:
    """The same, with the addresses behind the name beside it where it leads there."""
    leads = record.target == name and not record.extras
    leads = leads or bool(record.extras and record.extras[-1].target == name)
    return msgspec.structs.replace(record, extras=(*record.extras, *behind)) if leads else record


def _distinct(records: Iterable[Record]) -> list[Record]:
    return list({(record.owner, record.body): record for record in records}.values())


EncodedKey = tuple[bytes, int, int]
"""Name, type, and the room there is for the message without its OPT record."""


class _Cache(Generic[K, V]):
    """A dict that empties itself before it outgrows its bounds. Readers take `entries` as it is."""

    def __init__(self, entries_max: int, bytes_max: int = ENCODED_BYTES_MAX) -> None:
        self.entries: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._bytes = 0
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    def put(self, key: K, value: V, size: int = 0) -> None:
        self.drop(key)
        if len(self.entries) >= self._entries_max or self._bytes + size > self._bytes_max:
            self.entries.clear()
            self._sizes.clear()
            self._bytes = 0
        self.entries[key] = value
        self._sizes[key] = size
        self._bytes += size

    def drop(self, key: K) -> None:
        self.entries.pop(key, None)
        self._bytes -= self._sizes.pop(key, 0)

    def only(self, holds: Callable[[K, V], bool]) -> "_Cache[K, V]":
        """Another cache with the entries that `holds` accepts; another thread may add to this one meanwhile."""
        chosen: _Cache[K, V] = _Cache(self._entries_max, self._bytes_max)
        sizes = self._sizes.copy()
        for key, value in self.entries.copy().items():
            if holds(key, value):
                chosen.put(key, value, sizes.get(key, 0))
        return chosen


class Responder:
    """Answers messages from one table, UDP datagrams and TCP messages alike; safe to share between two threads.

    `udp` and `tcp` give the answer, or say that the message is to be dropped or forwarded. `counts` tells how often
    each kind of answer was composed; answers found finished are not counted here. Without a table every name of ours
    is SERVFAIL: nothing is known yet.
    """

    def __init__(self, table: ServiceTable | None, settings: DnsSettings, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._table = table
        self._settings = settings
        self._resolver = Resolver(table or EMPTY, settings)
        self._chance = seed & _MASK
        self._replies: _Cache[tuple[bytes, int], Known] = _Cache(REPLIES_MAX)
        self._encoded: _Cache[EncodedKey, tuple[tuple[Sections, ...], Iterator[Sections]]] = _Cache(ENCODED_MAX)
        self._finished: _Cache[bytes, tuple[Iterator[bytes], EncodedKey]] = _Cache(FINISHED_MAX)

    def renewed(self, table: ServiceTable) -> "Responder":
        """A responder for a newer table that keeps every answer which still holds."""
        fresh = Responder(table, self._settings, self._chance)
        fresh.counts = self.counts
        if self._table is not None:
            old = self._table
            replies = self._replies.only(lambda _, known: known.still_holds(old, table))
            fresh._replies = replies
            fresh._encoded = self._encoded.only(lambda key, _: key[:2] in replies.entries)
            fresh._finished = self._finished.only(lambda _, held: held[1][:2] in replies.entries)
        return fresh

    def udp(self, message: bytes) -> Answer:
        """The answer to a datagram, no longer than its sender takes."""
        finished = self._finished.entries.get(message[2:])
        if finished is not None:
            rest = next(finished[0], None)
            if rest is not None:
                return message[:2] + rest
            self._finished.drop(message[2:])
            self._encoded.drop(finished[1])
        return self._compose(message, None)

    def tcp(self, message: bytes) -> Answer:
        """The answer to a message that came over TCP."""
        return self._compose(message, wire.MESSAGE_SIZE_MAX)

    def servfail(self, message: bytes) -> bytes | Verdict:
        """The answer to a message that nobody could answer."""
        query = wire.read_query(message)
        if not isinstance(query, Query):
            return Verdict.DROP
        return self._error(query, wire.SERVFAIL)

    def chased(self, chase: Chase, reply: bytes | None) -> bytes | Chase:
        """The answer once the recursors have spoken, or what to ask next; our records alone when they gave nothing of
        use."""
        query = chase.query
        qtype = wire.A if query.qtype == wire.SRV else query.qtype
        behind = aliases.links(reply, chase.name, qtype) if reply is not None else ()
        most = len(behind) if query.edns is not None else aliases.RECORDS_MAX_PLAIN
        if query.qtype == wire.SRV:
            answers = tuple(_led_on(record, chase.name, behind[:most]) for record in chase.answers)
            if chase.rest and reply is not None:
                return self._chase(query, chase.size_max, answers, chase.rest)
        else:
            answers = (*chase.answers, *behind)
            answers = answers if query.edns is not None else answers[:most]
        sections = wire.encode_sections(query.name, Reply(answers=answers), chase.size_max - wire.edns_size(query))
        self.counts[_outcome(sections)] += 1
        return self._assemble(query, sections)

    def _chase(self, query: Query, room: int, answers: tuple[Record, ...], names: tuple[bytes, ...]) -> Chase:
        qtype = wire.A if query.qtype == wire.SRV else query.qtype
        name, *rest = names
        return Chase(query, room, answers, aliases.question(query.ident, name, qtype), name, tuple(rest))

    def _compose(self, message: bytes, size_max: int | None) -> Answer:
        """size_max: None when the query's own limit counts and a finished answer may be kept."""
        query = wire.read_query(message)
        if query is None:
            self.counts["dropped"] += 1
            return Verdict.DROP
        if isinstance(query, wire.Fault):
            self.counts[_OUTCOMES[query.rcode]] += 1
            return wire.assemble_fault(query)
        if query.edns is not None and query.edns.version:
            return self._error(query, wire.BADVERS)
        if query.qtype in (wire.AXFR, wire.IXFR):
            return self._error(query, wire.NOTIMP)
        if query.qclass not in (wire.CLASS_IN, wire.CLASS_ANY):
            return self._error(query, wire.REFUSED)
        if self._table is None and self._resolver.is_ours(query.name):
            return self._error(query, wire.SERVFAIL)
        known = self._known(query)
        if known is None:
            return self._not_ours(query)
        room = self._udp_size(query) if size_max is None else size_max
        if known.beyond and self._settings.recursors:
            self.counts["chased"] += 1
            answers = known.reply.answers if query.qtype != wire.SRV else self._shuffled(known.reply.answers)
            return self._chase(query, room, answers, known.beyond)
        key = query.name, query.qtype, room - wire.edns_size(query)
        rotations, sections = self._sections(key, known.reply)
        self.counts[_outcome(sections)] += 1
        if size_max is None:
            self._keep_finished(message, query, rotations, key)
        return self._assemble(query, sections)

    def _known(self, query: Query) -> Known | None:
        key = query.name, query.qtype
        known = self._replies.entries.get(key)
        if known is None and (known := self._resolver.resolve(*key)) is not None:
            self._replies.put(key, known)
        return known

    def _not_ours(self, query: Query) -> bytes | Verdict:
        if not self._settings.recursors:
            return self._error(query, wire.REFUSED)
        self.counts["forwarded"] += 1
        return Verdict.FORWARD

    def _udp_size(self, query: Query) -> int:
        if query.edns is None:
            return wire.UDP_SIZE_PLAIN
        return max(wire.UDP_SIZE_PLAIN, min(query.edns.payload_size, self._settings.udp_size_max))

    def _sections(self, key: EncodedKey, reply: Reply) -> tuple[tuple[Sections, ...], Sections]:
        """The reply in a few orders, encoded, and the one whose turn it is; new orders when all had their rounds."""
        held = self._encoded.entries.get(key)
        if held is not None and (sections := next(held[1], None)) is not None:
            return held[0], sections
        rotations = self._rotations(key, reply)
        size = sum(len(sections.body) + KEPT_OVERHEAD for sections in rotations)
        turns = _dealt(rotations)
        self._encoded.put(key, (rotations, turns), size)
        return rotations, next(turns)

    def _rotations(self, key: EncodedKey, reply: Reply) -> tuple[Sections, ...]:
        name, _, room = key
        if reply.linked:
            return (wire.encode_sections(name, reply, room),)
        answers = self._shuffled(reply.answers)
        count = len(answers)
        turns = min(count, ROTATIONS_MAX, max(2, ROTATED_RECORDS_MAX // count)) if count else 1
        starts = [turn * count // turns for turn in range(turns)]
        return tuple(
            wire.encode_sections(name, msgspec.structs.replace(reply, answers=answers[at:] + answers[:at]), room)
            for at in starts
        )

    def _shuffled(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        self._chance = _mixed(self._chance)
        chance = self._chance
        keys = [_mixed(chance ^ number) for number in range(len(records))]
        return tuple(records[number] for number in sorted(range(len(records)), key=keys.__getitem__))

    def _keep_finished(self, message: bytes, query: Query, rotations: tuple[Sections, ...], key: EncodedKey) -> None:
        rests = tuple(self._assemble(query, sections)[2:] for sections in rotations)
        size = sum(len(rest) + KEPT_OVERHEAD for rest in rests)
        self._finished.put(message[2:], (_dealt(rests), key), size)

    def _error(self, query: Query, rcode: int) -> bytes:
        self.counts[_OUTCOMES[rcode]] += 1
        return self._assemble(query, Sections(rcode, False, False, (0, 0, 0), b""))

    def _assemble(self, query: Query, sections: Sections) -> bytes:
        recursion = bool(self._settings.recursors)
        return wire.assemble(query, sections, recursion=recursion, mark_truncated=self._settings.mark_truncated)


def _dealt(items: tuple[T, ...]) -> Iterator[T]:
    """`items` in turn, `ROUNDS` times; a single one for ever."""
    return repeat(items[0]) if len(items) == 1 else chain.from_iterable(repeat(items, ROUNDS))


_OUTCOMES = {
    wire.NOERROR: "noerror",
    wire.FORMERR: "formerr",
    wire.SERVFAIL: "servfail",
    wire.NXDOMAIN: "nxdomain",
    wire.NOTIMP: "notimp",
    wire.REFUSED: "refused",
    wire.BADVERS: "badvers",
}


def _outcome(sections: Sections) -> str:
    if sections.truncated:
        return "truncated"
    empty = sections.rcode == wire.NOERROR and not sections.counts[0]
    return "nodata" if empty else _OUTCOMES[sections.rcode]


_MASK = (1 << 64) - 1


def _mixed(number: int) -> int:
    """The next of a sequence of 64 well mixed bits (splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
