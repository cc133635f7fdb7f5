"""Pure: DNS questions for SRV, A and AAAA records and their answers, as bytes (RFC 1035, RFC 2782); asking only.

A message is decoded within bounds: names of at most 255 bytes, compression pointers that only go back, at most 256
records. Whatever breaks them is a `ValueError`.
"""

from struct import pack, unpack_from
from typing import NamedTuple

A = 1
AAAA = 28
SRV = 33
RCODE_OK = 0
RCODE_NO_SUCH_NAME = 3
RCODE_REFUSED = 5

_IN = 1
_RECURSION_DESIRED = 0x0100
_RESPONSE = 0x8000
_TRUNCATED = 0x0200
_RECORDS_MAX = 256
_NAME_MAX = 255


class SrvRecord(NamedTuple):
    """One SRV record: `target` is a name."""

    priority: int
    weight: int
    port: int
    target: str


class DnsAnswer(NamedTuple):
    """A response. hosts: addresses that the additional section gives for targets. ttl_s: the lowest of the answers."""

    rcode: int
    truncated: bool
    services: list[SrvRecord]
    hosts: dict[str, list[str]]
    ttl_s: int


def encode_question(message_id: int, name: str, kind: int) -> bytes:
    """A question as a datagram. Raises ValueError for what cannot be a DNS name."""
    labels = [label.encode("idna") if not label.isascii() else label.encode() for label in name.strip(".").split(".")]
    if any(not 0 < len(label) < 64 for label in labels) or sum(map(len, labels)) + len(labels) >= _NAME_MAX:
        raise ValueError(f'"{name}" is not a DNS name')
    encoded = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    return pack(">6H", message_id, _RECURSION_DESIRED, 1, 0, 0, 0) + encoded + pack(">HH", kind, _IN)


def decode_answer(message: bytes, message_id: int) -> DnsAnswer:
    """The response to the question with that id. Raises ValueError for anything else."""
    try:
        return _decode(message, message_id)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a DNS message was cut short: {error}") from error
    except Exception as error:
        raise ValueError(f"not a DNS answer: {error}") from error


def _decode(message: bytes, message_id: int) -> DnsAnswer:
    found_id, flags, questions, answers, authorities, additional = unpack_from(">6H", message)
    if found_id != message_id or not flags & _RESPONSE:
        raise ValueError("it answers another question")
    if answers + authorities + additional > _RECORDS_MAX or questions > 1:
        raise ValueError("it holds too many records")
    offset = 12
    for _ in range(questions):
        offset = _name(message, offset)[1] + 4
    services: list[SrvRecord] = []
    hosts: dict[str, list[str]] = {}
    ttls: list[int] = []
    for position in range(answers + authorities + additional):
        owner, offset = _name(message, offset)
        kind, _, ttl, length = unpack_from(">HHIH", message, offset)
        start, offset = offset + 10, offset + 10 + length
        if offset > len(message):
            raise ValueError("a record is longer than the message")
        if kind == SRV:
            priority, weight, port = unpack_from(">HHH", message, start)
            services.append(SrvRecord(priority, weight, port, _name(message, start + 6)[0]))
        elif kind in (A, AAAA):
            found = hosts.setdefault(owner, [])
            if (address := _address(message[start:offset])) not in found:
                found.append(address)
        if position < answers:
            ttls.append(ttl)
    return DnsAnswer(flags & 15, bool(flags & _TRUNCATED), services, hosts, min(ttls, default=0))


def _name(message: bytes, offset: int) -> tuple[str, int]:
    """The name at `offset` in lower case, and where it ends there."""
    labels: list[str] = []
    end, floor, size = -1, offset, 0
    while length := message[offset]:
        if length >= 0xC0:
            target = unpack_from(">H", message, offset)[0] & 0x3FFF
            end = offset + 2 if end < 0 else end
            if target >= floor:
                raise ValueError("a compression pointer does not go back")
            offset = floor = target
            continue
        labels.append(message[offset + 1 : offset + 1 + length].decode("ascii"))
        size += length + 1
        if size > _NAME_MAX:
            raise ValueError("a name is too long")
        offset += length + 1
    return ".".join(labels).lower(), offset + 1 if end < 0 else end


def _address(data: bytes) -> str:
    if len(data) == 4:
        return ".".join(map(str, data))
    if len(data) != 16:
        raise ValueError("an address has neither 4 nor 16 bytes")
    return ":".join(f"{high << 8 | low:x}" for high, low in zip(data[::2], data[1::2], strict=True))
