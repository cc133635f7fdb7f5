"""Pure: decides what to answer to a question about services and nodes.

Forms of a name, below each domain (`consul.` and `lepa.` unless set otherwise); labels are scanned from the right for
`service`, `node` or `addr`, what stands to the right of it is a place:

    [TAG.]NAME.service[.PLACE]      healthy instances             _NAME._tcp[.service][.PLACE]   the same, RFC 2782
    _NAME._TAG[.service][.PLACE]    those that carry TAG          NAME.node[.PLACE]              a node's address
    HEX.addr[.PLACE]                the address itself            4.3.2.1.in-addr.arpa           who has an address

A place is any of `DC`, `DC.dc`, `REGION.region` and `NAMESPACE.ns`; without one, all datacenters and the default
namespace are meant. A name that does not exist, or has no healthy instance, is NXDOMAIN; one that exists without
records of the wanted type is NOERROR without answers; both carry the SOA.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

import msgspec

from lepa.catalog.table import Instance, Node, ServiceKey, ServiceTable, service_key
from lepa.dns import aliases
from lepa.dns import message as wire
from lepa.dns.message import Address, Record, Reply
from lepa.dns.settings import DnsSettings

TARGETS_MAX = 16_384
"""Instance addresses whose records are kept."""
TARGETS_ASKED_MAX = 3
"""Host names of other domains, among the targets of one SRV answer, that recursors are asked about, one by one."""
PLACES_MAX = 256
"""Datacenters whose names are kept in wire form."""
ADDRESS_SUFFIX_MAX = wire.NAME_SIZE_MAX - 33
"""Room for the suffix behind the longest hexadecimal label, an IPv6 address."""


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
            target = wire.safe_name(node.name, "node", node.datacenter, text)
        elif instance := self._table.instances_by_address.get(str(address)):
            target = wire.safe_name(instance.service, "service", instance.datacenter, text)
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
        address = wire.address_of(self._settings.name_server)
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
            name = wire.safe_name(instance.node_name, "node", instance.datacenter, self._domain_text)
            if node is None or name is None:
                return None
            return name, self._node_records(name, node, ttl, meta=self._settings.node_meta_txt)
        return _address_target(instance.address, instance.datacenter, self._domain_text, ttl)

    def _node_records(self, owner: bytes, node: Node, ttl: int, meta: bool) -> tuple[Record, ...]:
        found: list[Record] = []
        if address := wire.address_of(node.address):
            found.append(wire.address_record(owner, ttl, address))
        elif target := wire.safe_name(node.address):
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
        addresses = [address for text in different if (address := wire.address_of(text))]
        if addresses:
            return [wire.address_record(self._name, ttl, address) for address in addresses if self._wants(address)]
        names = [name for text in different if (name := wire.safe_name(text))]
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
    address = wire.address_of(text)
    if address is None:
        name = wire.safe_name(text)
        return (name, ()) if name else None
    label = address.packed.hex().encode()
    name = bytes([len(label)]) + label + _address_suffix(datacenter, domain)
    return name, (wire.address_record(name, ttl, address),)


@lru_cache(maxsize=PLACES_MAX)
def _address_suffix(datacenter: str, domain: str) -> bytes:
    """What follows the hexadecimal label; without the datacenter when that is no DNS name."""
    suffix = wire.safe_name("addr", datacenter, domain)
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
        return wire.address_of(".".join(digits))
    if labels[-2:] == ["ip6", "arpa"] and len(digits) == 32:
        return _hexadecimal_address("".join(digits))
    return None


def _meta_text(key: str, value: str) -> str:
    """One pair as RFC 1464 text; keys that start with `rfc1035-` give the bare value."""
    if key.startswith("rfc1035-"):
        return value
    return key.replace("`", "``").replace("=", "`=") + "=" + value


def _distinct(records: Iterable[Record]) -> list[Record]:
    return list({(record.owner, record.body): record for record in records}.values())
