"""Pure: what arrives in a stream, read as far as it has come.

Whoever connects may send anything, so no byte is worth more than a few looks: a push/pull is read piece by piece, what
is sealed or compressed says its length, and any other message is short.
"""

from typing import Final

from lepa.gossip import messages as w
from lepa.gossip.errors import Malformed
from lepa.gossip.fields import decode_struct
from lepa.gossip.packets import Framing

Incoming = w.PushPull | w.UserMessage | w.Ping | w.Ack | w.ErrorReply
STREAM_MAX: Final = w.STATE_MAX + w.PIECE_MAX
LOOKED_AT_MAX: Final = 1024 * 1024
LOOKS: Final = 16
"""How many bytes are looked at before a stream is given up: so many, and so many times its own."""


class StreamReader:
    """One stream. Its bytes are fed as they come."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._data = bytearray()
        self._push_pull = w.PushPullReader()
        self._looked_at = 0

    @property
    def size(self) -> int:
        """Bytes so far."""
        return len(self._data)

    def feed(self, chunk: bytes) -> Incoming | None:
        """The one message, or None while bytes are missing. Raises Malformed; its text is for the peer."""
        self._data += chunk
        if len(self._data) > STREAM_MAX:
            raise Malformed("size", f"more than {STREAM_MAX} bytes in a stream")
        data = bytes(self._data)
        size = self._framing.stream_size(data)
        if (size is not None and len(data) < size) or self._framing.stream_head_is_short(data):
            return None
        try:
            plain = self._framing.open_stream(data[:size])
        except Malformed as error:
            if error.kind == "short" and size is None:
                return None
            raise
        return self._message(plain, whole=size is not None)

    def _message(self, plain: bytes, *, whole: bool) -> Incoming | None:
        is_push_pull = plain[:1] == bytes([w.PUSH_PULL])
        self._looked_at += self._push_pull.unread(len(plain)) if is_push_pull else len(plain)
        if self._looked_at > LOOKED_AT_MAX + LOOKS * len(plain):
            raise Malformed("size", "comes in pieces that are too small")
        if is_push_pull:
            return self._push_pull.read(plain)
        try:
            return _short_message(plain)
        except Malformed as error:
            if error.kind != "short" or whole or len(plain) > w.PIECE_MAX:
                raise
            return None


def read(data: bytes, framing: Framing) -> Incoming | None:
    """The one message in these bytes, or None when there are too few. Raises Malformed."""
    return StreamReader(framing).feed(data)


def _short_message(plain: bytes) -> Incoming | None:
    if plain[:1] == bytes([w.USER]):
        header, at = decode_struct(_UserSize, w.USER_HEADER, plain, 1)
        body = plain[at : at + header[0]]
        return w.UserMessage(body) if len(body) == header[0] else None
    message = w.decode(plain)
    if isinstance(message, w.Ping | w.Ack | w.ErrorReply):
        return message
    raise Malformed("type", "this message does not belong in a stream")


class _UserSize(tuple[int]):
    """The header of a user message in a stream."""

    def __new__(cls, size: int) -> "_UserSize":
        return super().__new__(cls, (size,))
