"""Pure: the messages of the SWIM layer, as memberlist writes them: a type byte and a map.

`encode` and `decode` cover what travels in packets; the push/pull exchange, which travels in streams, has its own two.
"""

from typing import Any, Final, NamedTuple

from lepa.gossip.errors import Malformed
from lepa.gossip.fields import Field, address, decode_struct, flag, raw, struct_bytes, text, u8, u16, u32, unsigned

PING, INDIRECT_PING, ACK, SUSPECT, ALIVE, DEAD, PUSH_PULL = range(7)
COMPOUND, USER, COMPRESS, ENCRYPT, NACK, HAS_CRC, ERROR = range(7, 14)
LABEL: Final = 0xF4

NODES_MAX: Final = 1 << 20
STATE_MAX: Final = 8 * 1024 * 1024
"""Bytes of a push/pull: 16,000 members with the longest tags. Peers allow 20 MiB, which takes seconds to read here."""
USER_STATE_MAX: Final = 1024 * 1024
"""Bytes of what the layer above adds to a push/pull, and of its messages in streams."""
PIECE_MAX: Final = 64 * 1024
"""Bytes of a header or a member in a push/pull, and of any other message."""
META_MAX: Final = 512
VERSIONS_SIZE: Final = 6

ALIVE_STATE, SUSPECT_STATE, DEAD_STATE, LEFT_STATE = range(4)


class Ping(NamedTuple):
    """Are you there? node: the name of who is meant."""

    seq: int
    node: str
    source_addr: bytes = b""
    source_port: int = 0
    source_node: str = ""


class IndirectPing(NamedTuple):
    """Ask somebody else for me. nack: say so when there is no answer in time."""

    seq: int
    target: bytes
    port: int
    node: str
    nack: bool = False
    source_addr: bytes = b""
    source_port: int = 0
    source_node: str = ""


class Ack(NamedTuple):
    """I am there. payload: Serf puts its coordinate here."""

    seq: int
    payload: bytes = b""


class Nack(NamedTuple):
    """Whom you asked me about did not answer in time; but I am there."""

    seq: int


class Suspect(NamedTuple):
    """`source` could not reach `node`."""

    incarnation: int
    node: str
    source: str


class Dead(NamedTuple):
    """`node` is gone; it left by itself when it says so itself."""

    incarnation: int
    node: str
    source: str


class Alive(NamedTuple):
    """`node` is there. versions: six numbers, see `docs/explanation/gossip.md`; empty from very old peers."""

    incarnation: int
    node: str
    addr: bytes
    port: int
    meta: bytes = b""
    versions: bytes = b""


class ErrorReply(NamedTuple):
    """Why a stream was refused."""

    error: str


class NodeState(NamedTuple):
    """A member in a push/pull. state: ALIVE_STATE …"""

    name: str
    addr: bytes
    port: int
    meta: bytes
    incarnation: int
    state: int
    versions: bytes = b""


class PushPull(NamedTuple):
    """All members that one knows, and what the layer above adds. join: the sender is about to join."""

    join: bool
    nodes: tuple[NodeState, ...]
    user_state: bytes = b""


class UserMessage(NamedTuple):
    """A message of the layer above."""

    data: bytes


Message = Ping | IndirectPing | Ack | Nack | Suspect | Dead | Alive | ErrorReply | UserMessage


def versions_field(value: Any) -> bytes:
    """Six bytes or none: real peers have crashed on others."""
    found = raw(value)
    if len(found) not in (0, VERSIONS_SIZE):
        raise Malformed("versions", f"a list of {len(found)} versions")
    return found


_SOURCE = (
    Field("SourceAddr", address, empty="omitted"),
    Field("SourcePort", u16, empty="omitted"),
    Field("SourceNode", text, empty="omitted"),
)
_ACCUSATION = (Field("Incarnation", u32), Field("Node", text), Field("From", text))
FIELDS: Final[dict[int, tuple[Any, tuple[Field, ...]]]] = {
    PING: (Ping, (Field("SeqNo", u32), Field("Node", text), *_SOURCE)),
    INDIRECT_PING: (
        IndirectPing,
        (
            Field("SeqNo", u32),
            Field("Target", address),
            Field("Port", u16),
            Field("Node", text),
            Field("Nack", flag),
            *_SOURCE,
        ),
    ),
    ACK: (Ack, (Field("SeqNo", u32), Field("Payload", raw, empty="nil"))),
    NACK: (Nack, (Field("SeqNo", u32),)),
    SUSPECT: (Suspect, _ACCUSATION),
    DEAD: (Dead, _ACCUSATION),
    ALIVE: (
        Alive,
        (
            Field("Incarnation", u32),
            Field("Node", text),
            Field("Addr", address),
            Field("Port", u16),
            Field("Meta", raw),
            Field("Vsn", versions_field),
        ),
    ),
    ERROR: (ErrorReply, (Field("Error", text),)),
}
_TYPES: Final[dict[type, int]] = {kind: number for number, (kind, _) in FIELDS.items()}
_HEADER: Final = (
    Field("Join", flag),
    Field("Nodes", unsigned(NODES_MAX + 1)),
    Field("UserStateLen", unsigned(USER_STATE_MAX + 1)),
)
_NODE: Final = (
    Field("Name", text),
    Field("Addr", address),
    Field("Port", u16),
    Field("Meta", raw),
    Field("Incarnation", u32),
    Field("State", unsigned(4)),
    Field("Vsn", versions_field),
)
COMPRESSED_FIELDS: Final = (Field("Algo", u8), Field("Buf", raw))
USER_HEADER: Final = (Field("UserMsgLen", unsigned(USER_STATE_MAX + 1)),)


class _Header(NamedTuple):
    join: bool
    nodes: int
    user_state: int


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    if isinstance(message, UserMessage):
        return bytes([USER]) + message.data
    number = _TYPES[type(message)]
    return bytes([number]) + struct_bytes(message, FIELDS[number][1])


def decode(data: bytes) -> Message:
    """The message in these bytes; what follows it is ignored, as peers do. Raises Malformed."""
    if not data:
        raise Malformed("empty")
    if data[0] == USER:
        return UserMessage(data[1:])
    if data[0] not in FIELDS:
        raise Malformed("type", f"unknown message type {data[0]}")
    kind, fields = FIELDS[data[0]]
    message: Message = decode_struct(kind, fields, data, 1)[0]
    return message


def encode_push_pull(state: PushPull) -> bytes:
    """A push/pull as it is written to a stream."""
    header = _Header(state.join, len(state.nodes), len(state.user_state))
    parts = [bytes([PUSH_PULL]), struct_bytes(header, _HEADER)]
    parts += [struct_bytes(node, _NODE) for node in state.nodes]
    return b"".join([*parts, state.user_state])


class PushPullReader:
    """Reads a push/pull as it arrives; what was read is not read again."""

    def __init__(self) -> None:
        self._header: _Header | None = None
        self._nodes: list[NodeState] = []
        self._at = 1

    def unread(self, size: int) -> int:
        """How many of `size` bytes are looked at when it reads on: none when only the last part is waited for."""
        has_nodes = self._header is not None and len(self._nodes) == self._header.nodes
        return 0 if has_nodes else size - self._at

    def read(self, data: bytes) -> PushPull | None:
        """The push/pull, once `data` (all bytes so far, with the type byte) holds it whole. Raises Malformed."""
        if len(data) > STATE_MAX:
            raise Malformed("size", f"a push/pull of more than {STATE_MAX} bytes")
        try:
            if self._header is None:
                self._header, self._at = decode_struct(_Header, _HEADER, data, self._at)
            while len(self._nodes) < self._header.nodes:
                node, self._at = decode_struct(NodeState, _NODE, data, self._at)
                self._nodes.append(node)
        except Malformed as error:
            if error.kind != "short" or len(data) - self._at > PIECE_MAX:
                raise
            return None
        end = self._at + self._header.user_state
        if len(data) < end:
            return None
        return PushPull(self._header.join, tuple(self._nodes), data[self._at : end])


def decode_push_pull(data: bytes) -> PushPull | None:
    """The push/pull that begins with its type byte; None while bytes are missing. Raises Malformed."""
    return PushPullReader().read(data)
