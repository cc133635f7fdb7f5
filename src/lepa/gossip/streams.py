"""Pure: what arrives in a stream, read as far as it has come."""

from lepa.gossip import messages as w
from lepa.gossip.errors import Malformed
from lepa.gossip.fields import decode_struct
from lepa.gossip.packets import Framing

STREAM_MAX = 2 * w.STATE_MAX


class _UserSize(tuple[int]):
    """The header of a user message in a stream."""

    def __new__(cls, size: int) -> "_UserSize":
        return super().__new__(cls, (size,))


def read(data: bytes, framing: Framing) -> w.PushPull | w.UserMessage | w.Ping | w.Ack | w.ErrorReply | None:
    """The one message of a stream, or None while bytes are missing. Raises Malformed; its text is for the peer."""
    if len(data) > STREAM_MAX:
        raise Malformed("size", f"more than {STREAM_MAX} bytes in a stream")
    size = framing.stream_size(data)
    if not data or (size is not None and len(data) < size) or framing.stream_head_is_short(data):
        return None
    try:
        return _message(framing.open_stream(data[:size]))
    except Malformed as error:
        if error.kind == "short" and size is None:
            return None
        raise


def _message(plain: bytes) -> w.PushPull | w.UserMessage | w.Ping | w.Ack | w.ErrorReply | None:
    if plain[:1] == bytes([w.PUSH_PULL]):
        return w.decode_push_pull(plain)
    if plain[:1] == bytes([w.USER]):
        header, at = decode_struct(_UserSize, w.USER_HEADER, plain, 1)
        body = plain[at : at + header[0]]
        return w.UserMessage(body) if len(body) == header[0] else None
    message = w.decode(plain)
    if isinstance(message, w.Ping | w.Ack | w.ErrorReply):
        return message
    raise Malformed("type", "this message does not belong in a stream")
