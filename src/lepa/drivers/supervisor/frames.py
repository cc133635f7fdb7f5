"""Pure: frames between the agent and the supervisor.

A frame is a JSON object with raw bytes behind it, so that output of commands needs no base64:

    4 bytes   length of the JSON, big endian
    4 bytes   length of the bytes
    JSON, bytes

A request is {"id", "do", …}, a reply {"id", "ok"} or {"id", "error": {"code", "message"}}, an event {"event", …}.
"""

import json
import struct
from typing import Any, NamedTuple

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""No frame is larger: a task's environment fits many times over; streams are sent in pieces."""

_encode = json.JSONEncoder(separators=(",", ":")).encode
_LENGTHS = struct.Struct(">II")


class Frame(NamedTuple):
    """One message: `head` says what it is, `body` is raw data."""

    head: dict[str, Any]
    body: bytes = b""


class BrokenFrame(Exception):
    """The peer does not speak this protocol; the connection is of no more use."""


def encode_frame(head: dict[str, Any], body: bytes = b"") -> bytes:
    """The bytes of a frame. Raises ValueError when it is larger than FRAME_BYTES_MAX."""
    text = _encode(head).encode()
    if len(text) + len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"message of {len(text) + len(body)} bytes is larger than {FRAME_BYTES_MAX}")
    return _LENGTHS.pack(len(text), len(body)) + text + body


class FrameReader:
    """Cuts a stream of bytes into frames; holds at most one frame that is not whole yet."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. Raises BrokenFrame."""
        self._pending += data
        frames: list[Frame] = []
        at = 0
        while len(self._pending) - at >= _LENGTHS.size:
            head_length, body_length = _LENGTHS.unpack_from(self._pending, at)
            if head_length + body_length > FRAME_BYTES_MAX:
                raise BrokenFrame(f"frame of {head_length + body_length} bytes announced")
            start = at + _LENGTHS.size
            end = start + head_length + body_length
            if len(self._pending) < end:
                break
            head = _decode_head(bytes(self._pending[start : start + head_length]))
            frames.append(Frame(head, bytes(self._pending[start + head_length : end])))
            at = end
        del self._pending[:at]
        return frames


def _decode_head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame("head is not JSON") from error
    if not isinstance(head, dict):
        raise BrokenFrame("head is not a JSON object")
    return head
