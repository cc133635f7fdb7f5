"""Pure: the wire format of DNS (RFC 1035, 6891), as much of it as a server of service names needs.

Reading: `read_query` turns a datagram into a `Query`, or says how to refuse it. Writing: a `Reply` is what is known
about a name, as records whose wire form is already made; `encode_sections` joins them into the bytes that follow a
question, and `assemble` puts header and question in front. The first depends on the name, the reply and the room there
is, so its result can be kept; the second on the query.

Names are lower-cased wire names (`bytes`, with the root label) everywhere but in the echoed question, which keeps the
case the client chose (draft-vixie-dnsext-dns0x20).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from struct import error as StructError

import msgspec

Address = IPv4Address | IPv6Address

A, NS, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT = 1, 2, 5, 6, 12, 16, 28, 33, 41
IXFR, AXFR, ANY = 251, 252, 255
CLASS_IN, CLASS_ANY = 1, 255

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

HEADER_SIZE = 12
LABEL_SIZE_MAX = 63
NAME_SIZE_MAX = 255
MESSAGE_SIZE_MAX = 65_535
UDP_SIZE_PLAIN = 512
"""What a client without EDNS takes over UDP (RFC 1035, 4.2.1)."""
UDP_SIZE_OURS = 4_096
"""What we tell EDNS clients that we take."""
POINTER_REACH = 0x4000
"""Compression pointers have 14 bits."""

QR, AA, TC, RD, RA, CD = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0010
EDNS_DO = 0x8000
CLIENT_SUBNET = 8

_HEADER = Struct(">HHHHHH")
_COUNTS = Struct(">HHH")
_TYPE_CLASS = Struct(">HH")
_FIXED = Struct(">HHIH")
_SRV_HEAD = Struct(">HHH")
_SOA_TAIL = Struct(">IIIII")
_U16 = Struct(">H")


class Edns(msgspec.Struct, frozen=True):
    """What the OPT record of a query said. client_subnet: the data of an RFC 7871 option, empty without one."""

    payload_size: int
    version: int = 0
    dnssec_ok: bool = False
    client_subnet: bytes = b""


class Query(msgspec.Struct, frozen=True):
    """One question. question: name, type and class as the client wrote them; name: the same name, lower-cased."""

    ident: bytes
    flags: int
    question: bytes
    name: bytes
    qtype: int
    qclass: int
    edns: Edns | None = None


class Fault(msgspec.Struct, frozen=True):
    """A message that holds no question to answer, and the code it is refused with."""

    ident: bytes
    flags: int
    rcode: int


class Record(msgspec.Struct, frozen=True):
    """One resource record with its wire form.

    body: type, class, ttl, length and data. target: the name that ends the data, if any: later owners may point to it.
    extras: the records that go to the additional section when this one is an answer.
    """

    owner: bytes
    body: bytes
    target: bytes = b""
    extras: tuple["Record", ...] = ()


class Reply(msgspec.Struct, frozen=True):
    """What is to be said about a name and type. Its answers may be cut short, and given in any order unless one leads
    to the next (linked)."""

    rcode: int = NOERROR
    answers: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    authoritative: bool = True
    linked: bool = False


class Sections(msgspec.Struct, frozen=True):
    """The encoded sections of a reply to one name. counts: of answers, authority and additional records."""

    rcode: int
    authoritative: bool
    truncated: bool
    counts: tuple[int, int, int]
    body: bytes


def wire_name(text: str) -> bytes:
    """The lower-cased wire form of a dotted name; ValueError when a label or the whole is too long or empty."""
    labels = [label.encode("latin-1") for label in text.lower().rstrip(".").split(".")] if text.rstrip(".") else []
    if not all(0 < len(label) <= LABEL_SIZE_MAX for label in labels):
        raise ValueError(f"{text!r} has an empty label or one longer than {LABEL_SIZE_MAX} octets")
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    if len(wire) > NAME_SIZE_MAX:
        raise ValueError(f"{text!r} is longer than {NAME_SIZE_MAX} octets as a DNS name")
    return wire


def safe_name(*parts: str) -> bytes | None:
    """The wire name of the parts that are not empty; None when it cannot be one. The first part may not be empty."""
    try:
        return wire_name(".".join(part for part in parts if part)) if parts[0] else None
    except ValueError:
        return None


def address_of(text: str) -> Address | None:
    """The IP address that a text is, else None."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def labels_of(name: bytes) -> list[str]:
    """The labels of a wire name, without the root."""
    labels = []
    at = 0
    while length := name[at]:
        labels.append(name[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    return labels


def is_within(name: bytes, domain: bytes) -> bool:
    """Whether a wire name is `domain` or below it."""
    cut = len(name) - len(domain)
    return cut >= 0 and name.endswith(domain) and cut in label_offsets(name)


def label_offsets(name: bytes) -> list[int]:
    """Where each label of a wire name starts, the root's included."""
    offsets = [0]
    while length := name[offsets[-1]]:
        offsets.append(offsets[-1] + 1 + length)
    return offsets


def read_query(message: bytes) -> Query | Fault | None:
    """The question of a message, how to refuse it, or None when it is to be ignored (a response, or no header).

    Of several questions only the first counts, as in Consul.
    """
    if len(message) < HEADER_SIZE:
        return None
    _, flags, questions, answers, authorities, additionals = _HEADER.unpack_from(message)
    if flags & QR:
        return None
    ident = message[:2]
    if flags & 0x7800:
        return Fault(ident, flags, NOTIMP)
    if not questions:
        return Fault(ident, flags, REFUSED)
    try:
        end = _skip_question_name(message)
        qtype, qclass = _TYPE_CLASS.unpack_from(message, end)
        question = message[HEADER_SIZE : end + 4]
        at = end + 4
        for _ in range(questions - 1):
            at = _skip_name(message, at) + 4
        edns = _read_edns(message, at, answers + authorities, additionals)
    except (IndexError, StructError, ValueError):
        return Fault(ident, flags, FORMERR)
    # Length octets are at most 63, below the letters, so lower-casing the wire form leaves them alone.
    return Query(ident, flags, question, question[:-4].lower(), qtype, qclass, edns)


def _skip_question_name(message: bytes) -> int:
    """Where the first question's name ends. A pointer in it could only lead into the header or to itself."""
    at = HEADER_SIZE
    while length := message[at]:
        if length > LABEL_SIZE_MAX:
            raise ValueError("a pointer or an unknown kind of label in the question")
        at += 1 + length
    if at + 1 - HEADER_SIZE > NAME_SIZE_MAX:
        raise ValueError("the name is too long")
    return at + 1


def _skip_name(message: bytes, at: int) -> int:
    while length := message[at]:
        if length >= 0xC0:
            return at + 2
        if length > LABEL_SIZE_MAX:
            raise ValueError("an unknown kind of label")
        at += 1 + length
    return at + 1


def _read_edns(message: bytes, at: int, skipped: int, additionals: int) -> Edns | None:
    """The OPT record among the additional records, which follow `skipped` others."""
    found: Edns | None = None
    for number in range(skipped + additionals):
        owner_end = _skip_name(message, at)
        rtype, size, extended, length = _FIXED.unpack_from(message, owner_end)
        start = owner_end + _FIXED.size
        at = start + length
        if at > len(message):
            raise ValueError("a record is cut off")
        if rtype == OPT and number >= skipped:
            if found is not None:
                raise ValueError("more than one OPT record")
            subnet = _client_subnet(message[start:at])
            found = Edns(size, extended >> 16 & 0xFF, bool(extended & EDNS_DO), subnet)
    return found


def _client_subnet(options: bytes) -> bytes:
    at = 0
    while at < len(options):
        code, length = _TYPE_CLASS.unpack_from(options, at)
        data = options[at + 4 : at + 4 + length]
        if len(data) < length:
            raise ValueError("an EDNS option is cut off")
        if code == CLIENT_SUBNET and length >= 4:
            return data
        at += 4 + length
    return b""


def address_record(owner: bytes, ttl: int, address: Address) -> Record:
    """An A or AAAA record, as the address demands."""
    return _record(owner, A if address.version == 4 else AAAA, ttl, address.packed)


def name_record(owner: bytes, rtype: int, ttl: int, target: bytes) -> Record:
    """A CNAME, NS or PTR record."""
    return _record(owner, rtype, ttl, target, target)


def data_record(owner: bytes, rtype: int, ttl: int, data: bytes) -> Record:
    """A record whose data is in wire form already and holds no name."""
    return _record(owner, rtype, ttl, data)


def srv_record(
    owner: bytes, ttl: int, weight: int, port: int, target: bytes, extras: tuple[Record, ...] = ()
) -> Record:
    """An SRV record of priority 1; its target is never compressed (RFC 2782)."""
    data = _SRV_HEAD.pack(1, min(max(weight, 0), 0xFFFF), min(max(port, 0), 0xFFFF)) + target
    return _record(owner, SRV, ttl, data, target, extras)


def txt_record(owner: bytes, ttl: int, text: str) -> Record:
    """A TXT record of as many strings of 255 octets as the text needs."""
    data = text.encode()
    strings = [data[at : at + 255] for at in range(0, len(data), 255)] or [b""]
    return _record(owner, TXT, ttl, b"".join(bytes([len(part)]) + part for part in strings))


def soa_record(owner: bytes, ttl: int, mname: bytes, rname: bytes, serial: int, timers: tuple[int, int, int]) -> Record:
    """An SOA record. timers: refresh, retry and expire; the TTL is the minimum as well (RFC 2308)."""
    return _record(owner, SOA, ttl, mname + rname + _SOA_TAIL.pack(serial & 0xFFFFFFFF, *timers, ttl))


def _record(
    owner: bytes, rtype: int, ttl: int, data: bytes, target: bytes = b"", extras: tuple[Record, ...] = ()
) -> Record:
    return Record(owner, _FIXED.pack(rtype, CLASS_IN, ttl, len(data)) + data, target, extras)


class _Composer:
    """Appends records to a message as long as they fit, with owners compressed to names that came before.

    Positions are those in the whole message, of which the header and the question are already counted.
    """

    def __init__(self, question_name: bytes, size_max: int) -> None:
        self.parts: list[bytes] = []
        self._length = HEADER_SIZE + len(question_name) + 4
        self._size_max = size_max
        self._offsets = {question_name[at:]: HEADER_SIZE + at for at in label_offsets(question_name)[:-1]}

    def add(self, record: Record) -> bool:
        """Append one record; False, and nothing done, when it does not fit."""
        known = self._offsets.get(record.owner)
        owner = record.owner if known is None else _U16.pack(0xC000 | known)
        end = self._length + len(owner) + len(record.body)
        if end > self._size_max:
            return False
        if known is None and self._length < POINTER_REACH:
            self._offsets[record.owner] = self._length
        if record.target and end - len(record.target) < POINTER_REACH:
            self._offsets.setdefault(record.target, end - len(record.target))
        self.parts += owner, record.body
        self._length = end
        return True

    def add_all(self, records: list[Record]) -> int:
        """Append records up to the first that does not fit; how many were appended."""
        for number, record in enumerate(records):
            if not self.add(record):
                return number
        return len(records)


def encode_sections(question_name: bytes, reply: Reply, size_max: int) -> Sections:
    """The sections of `reply` in at most `size_max` octets, header and question included.

    Answers come first; each brings its extras, one for each answer that wants it even when they are equal (HAProxy
    pairs them with the answers), different ones before repeated ones. Extras that do not fit are left out silently;
    an answer left out makes the reply truncated.
    """
    composer = _Composer(question_name, size_max)
    answers = composer.add_all(list(reply.answers))
    authority = composer.add_all(list(reply.authority)) if answers == len(reply.answers) else 0
    extras = composer.add_all(_extras(reply.answers[:answers]))
    return Sections(
        rcode=reply.rcode,
        authoritative=reply.authoritative,
        truncated=answers < len(reply.answers),
        counts=(answers, authority, extras),
        body=b"".join(composer.parts),
    )


def _extras(answers: tuple[Record, ...]) -> list[Record]:
    different: dict[bytes, None] = {}
    first: list[Record] = []
    repeated: list[Record] = []
    for answer in answers:
        for extra in answer.extras:
            identity = extra.owner + extra.body
            (repeated if identity in different else first).append(extra)
            different[identity] = None
    return first + repeated


def edns_size(query: Query) -> int:
    """How many octets the OPT record of the answer to `query` takes."""
    return len(_opt(query, NOERROR))


def assemble(query: Query, sections: Sections, *, recursion: bool = False, mark_truncated: bool = True) -> bytes:
    """The whole message that answers `query`. recursion: whether to say that we resolve other domains as well."""
    opt = _opt(query, sections.rcode)
    flags = QR | (query.flags & (RD | CD)) | (RA if recursion else 0) | (sections.rcode & 0xF)
    flags |= (AA if sections.authoritative else 0) | (TC if sections.truncated and mark_truncated else 0)
    answers, authority, extras = sections.counts
    counts = _COUNTS.pack(answers, authority, extras + (1 if opt else 0))
    return b"".join((query.ident, _TYPE_CLASS.pack(flags, 1), counts, query.question, sections.body, opt))


def assemble_fault(fault: Fault) -> bytes:
    """The header-only message that refuses a message without a readable question."""
    flags = QR | (fault.flags & (0x7800 | RD)) | fault.rcode
    return fault.ident + _TYPE_CLASS.pack(flags, 0) + _COUNTS.pack(0, 0, 0)


def _opt(query: Query, rcode: int) -> bytes:
    """The OPT record of an answer; none when the query had none.

    A client subnet comes back with scope 0: the answer holds for every client (RFC 7871, 7.2.1).
    """
    if query.edns is None:
        return b""
    subnet = query.edns.client_subnet
    options = _TYPE_CLASS.pack(CLIENT_SUBNET, len(subnet)) + subnet[:3] + b"\0" + subnet[4:] if subnet else b""
    extended = (rcode >> 4) << 24 | (EDNS_DO if query.edns.dnssec_ok else 0)
    return b"\0" + _FIXED.pack(OPT, UDP_SIZE_OURS, extended, len(options)) + options
