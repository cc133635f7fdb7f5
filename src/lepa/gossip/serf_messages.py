"""Pure: the messages of the Serf layer: a type byte and a map, inside what the layer below carries for it."""

from typing import Any, Final, NamedTuple

from lepa.gossip import raw_msgpack
from lepa.gossip.errors import Malformed
from lepa.gossip.fields import (
    Field,
    address,
    decode_struct,
    flag,
    listed,
    mapped,
    raw,
    read_struct,
    struct_bytes,
    struct_map,
    text,
    u8,
    u16,
    u32,
    u64,
)
from lepa.gossip.raw_msgpack import decode as decode_value

LEAVE, JOIN, STATE, USER_EVENT, QUERY, QUERY_RESPONSE, CONFLICT_RESPONSE, KEY_REQUEST, KEY_RESPONSE, RELAY = range(10)

EVENT_MAX: Final = 9 * 1024
"""Bytes of a user event that are taken; 512 are sent at most."""
EVENT_SENT_MAX: Final = 512
QUERY_MAX: Final = 1024
BUFFER: Final = 512
"""How many Lamport times back events and queries are remembered."""

ACK_FLAG: Final = 1
NO_BROADCAST_FLAG: Final = 2

FILTER_NODES, FILTER_TAG = 0, 1


class LeaveIntent(NamedTuple):
    """A member is about to leave, or is sent away. prune: forget it at once."""

    ltime: int
    node: str
    prune: bool = False


class JoinIntent(NamedTuple):
    """A member is there by will."""

    ltime: int
    node: str


class NamedPayload(NamedTuple):
    """An event without its time."""

    name: str
    payload: bytes


class EventsAt(NamedTuple):
    """Events of one Lamport time."""

    ltime: int
    events: tuple[NamedPayload, ...]


class SerfState(NamedTuple):
    """What is added to a push/pull. status_ltimes: by name of member."""

    ltime: int
    status_ltimes: dict[str, int]
    left_members: tuple[str, ...]
    event_ltime: int
    events: tuple[EventsAt, ...]
    query_ltime: int


class UserEvent(NamedTuple):
    """Something told to everybody."""

    ltime: int
    name: str
    payload: bytes = b""
    coalesce: bool = True


class Query(NamedTuple):
    """A question to everybody, or to those whom all filters match; answers go to addr and port."""

    ltime: int
    id: int
    addr: bytes
    port: int
    source_node: str
    filters: tuple[bytes, ...]
    flags: int
    relay_factor: int
    timeout_ns: int
    name: str
    payload: bytes = b""


class QueryResponse(NamedTuple):
    """An answer, or with ACK_FLAG only a word that the question arrived."""

    ltime: int
    id: int
    source: str
    flags: int = 0
    payload: bytes = b""


class KeyRequest(NamedTuple):
    """The key to install, use or remove."""

    key: bytes


class KeyResponse(NamedTuple):
    """How it went on one member; keys are base64 texts."""

    result: bool
    message: str = ""
    keys: tuple[str, ...] = ()
    primary_key: str = ""


class Destination(NamedTuple):
    """For whom a relayed message is."""

    addr: bytes
    port: int
    name: str


Message = LeaveIntent | JoinIntent | SerfState | UserEvent | Query | QueryResponse | KeyRequest | KeyResponse

_NAMED: Final = (Field("Name", text), Field("Payload", raw, empty="nil"))
_EVENTS_AT: Final = (
    Field("LTime", u64),
    Field("Events", listed(lambda value: read_struct(NamedPayload, _NAMED, value))),
)


def _events(value: Any) -> tuple[EventsAt, ...]:
    """Slots of a ring; most are nil."""
    return tuple(each for each in listed(_event_slot)(value) if each is not None)


def _event_slot(value: Any) -> EventsAt | None:
    return None if value is None else read_struct(EventsAt, _EVENTS_AT, value)


FIELDS: Final[dict[int, tuple[Any, tuple[Field, ...]]]] = {
    LEAVE: (LeaveIntent, (Field("LTime", u64), Field("Node", text), Field("Prune", flag))),
    JOIN: (JoinIntent, (Field("LTime", u64), Field("Node", text))),
    STATE: (
        SerfState,
        (
            Field("LTime", u64),
            Field("StatusLTimes", mapped(u64)),
            Field("LeftMembers", listed(text)),
            Field("EventLTime", u64),
            Field("Events", _events, empty="nil"),
            Field("QueryLTime", u64),
        ),
    ),
    USER_EVENT: (
        UserEvent,
        (Field("LTime", u64), Field("Name", text), Field("Payload", raw, empty="nil"), Field("CC", flag)),
    ),
    QUERY: (
        Query,
        (
            Field("LTime", u64),
            Field("ID", u32),
            Field("Addr", address),
            Field("Port", u16),
            Field("SourceNode", text, empty="omitted"),
            Field("Filters", listed(raw), empty="nil"),
            Field("Flags", u32),
            Field("RelayFactor", u8),
            Field("Timeout", u64),
            Field("Name", text),
            Field("Payload", raw, empty="nil"),
        ),
    ),
    QUERY_RESPONSE: (
        QueryResponse,
        (
            Field("LTime", u64),
            Field("ID", u32),
            Field("From", text),
            Field("Flags", u32),
            Field("Payload", raw, empty="nil"),
        ),
    ),
    KEY_REQUEST: (KeyRequest, (Field("Key", raw),)),
    KEY_RESPONSE: (
        KeyResponse,
        (
            Field("Result", flag),
            Field("Message", text),
            Field("Keys", listed(text), empty="nil"),
            Field("PrimaryKey", text),
        ),
    ),
}
_TYPES: Final[dict[type, int]] = {kind: number for number, (kind, _) in FIELDS.items()}


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    number = _TYPES[type(message)]
    if isinstance(message, SerfState):
        return bytes([STATE]) + raw_msgpack.encode(_state_map(message))
    return bytes([number]) + struct_bytes(message, FIELDS[number][1])


def _state_map(state: SerfState) -> dict[str, Any]:
    found = struct_map(state, FIELDS[STATE][1])
    if state.events:
        found["Events"] = [
            {"Events": [struct_map(event, _NAMED) for event in slot.events], "LTime": slot.ltime}
            for slot in state.events
        ]
    return found


def decode(data: bytes) -> Message:
    """The message in these bytes. Raises Malformed."""
    if not data or data[0] not in FIELDS:
        raise Malformed("serf_type", f"unknown Serf message type {data[0] if data else None}")
    kind, fields = FIELDS[data[0]]
    message: Message = decode_struct(kind, fields, data, 1)[0]
    return message


def encode_relay(to: Destination, inner: bytes) -> bytes:
    """A message that another member is to pass on."""
    header = {"DestAddr": {"IP": to.addr, "Port": to.port, "Zone": ""}, "DestName": to.name}
    return bytes([RELAY]) + raw_msgpack.encode(header) + inner


_DESTINATION: Final = (Field("IP", address), Field("Port", u16))


class _Where(NamedTuple):
    addr: bytes
    port: int


def decode_relay(data: bytes) -> tuple[Destination, bytes]:
    """For whom a message is, and the message. Raises Malformed."""
    header, at = decode_value(data, 1)
    if not isinstance(header, dict):
        raise Malformed("field", "a map was expected")
    where = read_struct(_Where, _DESTINATION, header.get(b"DestAddr"))
    return Destination(where.addr, where.port, text(header.get(b"DestName"))), data[at:]


def nodes_filter(names: tuple[str, ...]) -> bytes:
    """A filter by names of members."""
    return bytes([FILTER_NODES]) + raw_msgpack.encode(list(names))


def tag_filter(tag: str, expression: str) -> bytes:
    """A filter by a regular expression over a tag."""
    return bytes([FILTER_TAG]) + raw_msgpack.encode({"Expr": expression, "Tag": tag})


def decode_filter(data: bytes) -> tuple[str, ...] | tuple[bytes, bytes]:
    """Names of members; or a tag and an expression, as bytes. Raises Malformed."""
    value, _ = decode_value(data, 1) if data else (None, 0)
    if data[:1] == bytes([FILTER_NODES]):
        return listed(text)(value)
    if data[:1] == bytes([FILTER_TAG]) and isinstance(value, dict):
        return raw(value.get(b"Tag")), raw(value.get(b"Expr"))
    raise Malformed("filter")
