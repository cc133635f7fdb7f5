"""Pure: what the state machines of gossip want done, and what they tell."""

from typing import NamedTuple

from lepa.gossip.messages import NodeState

Endpoint = tuple[bytes, int]
"""An IP address, 4 or 16 bytes, and a port."""


class SendPacket(NamedTuple):
    """Send messages in one packet. crc: the peer is known to understand one."""

    to: Endpoint
    parts: tuple[bytes, ...]
    crc: bool


class PingByStream(NamedTuple):
    """Ping over a stream, and report `stream_acked` when it was answered before `deadline`."""

    to: Endpoint
    message: bytes
    seq: int
    deadline: float


class ExchangeStates(NamedTuple):
    """Push and pull the whole state with a member, and merge what it says."""

    to: Endpoint
    name: str


Order = SendPacket | PingByStream | ExchangeStates


class Joined(NamedTuple):
    """A member is there, new or again."""

    node: NodeState


class Changed(NamedTuple):
    """A member says something else of itself."""

    node: NodeState


class Gone(NamedTuple):
    """A member is dead, or has left."""

    node: NodeState


class Conflict(NamedTuple):
    """Two say that they have the same name. known: where it is, as far as this side knows; said: the other one."""

    name: str
    known: Endpoint
    said: Endpoint


class AckPayload(NamedTuple):
    """What an answer to a probe carried, and how long it took."""

    name: str
    rtt_s: float
    payload: bytes


class UserData(NamedTuple):
    """A message of the layer above."""

    data: bytes


Event = Joined | Changed | Gone | Conflict | AckPayload | UserData
