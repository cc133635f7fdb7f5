"""Pure: what stands behind a CNAME, in the words of another resolver (RFC 1034, 3.6.2).

A service whose address is a host name of another domain is a CNAME to it. Stub resolvers, libc's and dnsmasq's among
them, expect the addresses beside it; `question` asks a recursor for them, and `links` takes them out of its reply.
"""

from struct import Struct
from struct import error as StructError

from lepa.dns import message as wire
from lepa.dns.message import Record

DEPTH_MAX = 3
"""CNAMEs followed, the first of ours included."""
RECORDS_MAX_PLAIN = 5
"""Records of an answer to a client without EDNS."""
RECORDS_MAX = 64
"""Records taken from a recursor's reply at most."""
PAYLOAD_SIZE = 1_232
"""What we let a recursor send in one datagram: fits every path unfragmented."""

_HEADER = Struct(">2sHHHHH")
_FIXED = Struct(">HHIH")
_TYPE_CLASS = Struct(">HH")


def question(ident: bytes, name: bytes, qtype: int) -> bytes:
    """The message that asks a recursor about wire name `name`."""
    opt = b"\0" + _FIXED.pack(wire.OPT, PAYLOAD_SIZE, 0, 0)
    return _HEADER.pack(ident, wire.RD, 1, 0, 0, 1) + name + _TYPE_CLASS.pack(qtype, wire.CLASS_IN) + opt


def links(reply: bytes, name: bytes, qtype: int) -> tuple[Record, ...]:
    """The records of a recursor's reply that lead from `name` to records of type `qtype`, in that order.

    Empty when the reply leads nowhere, cannot be read, or the chain is longer than `DEPTH_MAX`.
    """
    try:
        records = _answers(reply)
    except (IndexError, StructError, ValueError):
        return ()
    found: list[Record] = []
    for _ in range(DEPTH_MAX):
        ends = [record for rtype, record in records if rtype == qtype and record.owner == name]
        if ends:
            return tuple(found + ends)
        step = next((record for rtype, record in records if rtype == wire.CNAME and record.owner == name), None)
        if step is None:
            return ()
        found.append(step)
        name = step.target.lower()
    return ()


def _answers(reply: bytes) -> list[tuple[int, Record]]:
    """The types and records of the answer section, as far as they are of class IN and of a type that we pass on."""
    _, flags, questions, count, _, _ = _HEADER.unpack_from(reply)
    if not flags & wire.QR or flags & 0xF:
        return []
    at = wire.HEADER_SIZE
    for _ in range(questions):
        at = _name(reply, at)[1] + _TYPE_CLASS.size
    found: list[tuple[int, Record]] = []
    for _ in range(min(count, RECORDS_MAX)):
        owner, at = _name(reply, at)
        rtype, rclass, ttl, size = _FIXED.unpack_from(reply, at)
        at += _FIXED.size
        data = reply[at : at + size]
        if len(data) < size:
            raise ValueError("a record is cut off")
        if rclass == wire.CLASS_IN and rtype == wire.CNAME:
            found.append((rtype, wire.name_record(owner, rtype, ttl, _name(reply, at)[0])))
        elif rclass == wire.CLASS_IN and rtype in (wire.A, wire.AAAA):
            found.append((rtype, wire.data_record(owner, rtype, ttl, data)))
        at += size
    return found


def _name(message: bytes, at: int) -> tuple[bytes, int]:
    """The lower-cased name that starts at `at`, uncompressed, and where it ends; ValueError for one without end."""
    labels: list[bytes] = []
    end = 0
    size = 1
    while length := message[at]:
        if length >= 0xC0:
            end = end or at + 2
            target = (length & 0x3F) << 8 | message[at + 1]
            if target >= at:
                raise ValueError("a pointer that leads forward")
            at = target
        elif length > wire.LABEL_SIZE_MAX:
            raise ValueError("an unknown kind of label")
        else:
            labels.append(message[at : at + 1 + length])
            at += 1 + length
            size += 1 + length
            if size > wire.NAME_SIZE_MAX or at >= len(message):
                raise ValueError("a name that is too long or cut off")
    return b"".join(labels).lower() + b"\0", end or at + 1
