"""Pure: the stream under the containers' RPC: ZeroMQ's transport protocol, version 3 (ZMTP, 23/ZMTP), without sockets.

    connection = greeting ready *(message / command)
    greeting   = FF 8 x 00 7F, version 03 00, mechanism "NULL" in 20 bytes, 00 (as-server), 31 x 00
    message    = *(frame with MORE) frame
    frame      = flags (1 MORE, 2 LONG, 4 COMMAND), size in one byte, or in eight with LONG, body
    ready      = a command: 05 "READY", then properties: 1 + name, u32 + value; sizes are big-endian

Both sides say greeting and ready at once; nothing in them depends on what the other one says. Messages wait until the
peer has said that it is ready: libzmq refuses one that overtakes that. The only other commands are heartbeats: `PING`,
two bytes of time to live, a context of at most 16 bytes, answered by `PONG` with the context.

Query frontend and containers exchange a frame or two a batch. libzmq spends a thread on each side of a connection, and
four hand-overs between threads on each message; here the thread that has something to say writes it to the socket.
Clipper's own containers, and everything else on libzmq 4 or its like, cannot tell the difference.
"""

from collections.abc import Sequence
from struct import Struct as Layout

MESSAGE_BYTES_MAX = 1 << 30
"""In all frames of one message."""
FRAMES_MAX = 100_100
"""In one message: the largest batch, one input a frame, and its head."""
COMMAND_BYTES_MAX = 4096
SHORT_MAX = 255
"""Bytes of a frame whose size is one byte."""

MORE, LONG, COMMAND = 1, 2, 4

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_SIGNATURE = 10
_VERSION = 10
_MECHANISM = slice(12, 32)
_U64 = Layout(">Q")
_LONG_SIZE = Layout(">BQ")
_U32 = Layout(">I")
_HEADS = tuple(tuple(bytes((flags, size)) for size in range(SHORT_MAX + 1)) for flags in (0, MORE))
"""The two bytes before each short frame: [has more][size]."""


class ZmtpError(Exception):
    """The peer does not speak ZMTP 3 with us: why."""


def hello(socket_type: str) -> bytes:
    """What a side says first. socket_type: ROUTER for who binds, DEALER for who connects."""
    return _GREETING + _command(b"READY", _property(b"Socket-Type", socket_type.encode()) + _property(b"Identity", b""))


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + _U32.pack(len(value)) + value


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return bytes((COMMAND, len(body))) + body


def encode(frames: Sequence[bytes]) -> bytes:
    """One message."""
    pieces = []
    more = len(frames) - 1
    for frame in frames:
        size = len(frame)
        pieces.append(_HEADS[more > 0][size] if size <= SHORT_MAX else _LONG_SIZE.pack(LONG | (more > 0), size))
        pieces.append(frame)
        more -= 1
    return b"".join(pieces)


class Decoder:
    """What a peer sends, as messages. bytes_max: of one message. ready: messages may be sent to it. to_send: what has
    to be answered at once; the owner takes it."""

    __slots__ = ("_buffer", "_bytes", "_frames", "_greeted", "_need", "bytes_max", "ready", "to_send")

    def __init__(self) -> None:
        self.bytes_max = MESSAGE_BYTES_MAX
        self._buffer = bytearray()
        self._need = 0
        self._greeted = False
        self.ready = False
        self._frames: list[bytes] = []
        self._bytes = 0
        self.to_send = b""

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The messages that are whole now. Raises ZmtpError; the connection is of no use then."""
        buffer = self._buffer
        if buffer or not self._greeted:
            buffer += data
            if len(buffer) < self._need:
                return []
            data = bytes(buffer)
            buffer.clear()
        messages: list[list[bytes]] = []
        start = 0 if self._greeted else self._greet(data)
        if self._greeted:
            start = self._take(data, start, messages)
        if start < len(data):
            buffer += data[start:]
        return messages

    def _greet(self, data: bytes) -> int:
        """Check the greeting; where it ends."""
        known = data[:_SIGNATURE]
        if known[:1] != b"\xff"[: len(known)] or (len(known) == _SIGNATURE and known[9] & 1 == 0):
            raise ZmtpError("it does not greet as ZeroMQ does")
        if len(data) > _VERSION and data[_VERSION] < 3:
            raise ZmtpError(f"it speaks version {data[_VERSION]} of ZeroMQ's protocol, wanted is 3")
        if len(data) < len(_GREETING):
            self._need = len(_GREETING)
            return 0
        if (mechanism := data[_MECHANISM].rstrip(b"\0")) != b"NULL":
            raise ZmtpError(f"it wants the security mechanism {mechanism.decode(errors='replace')}, wanted is NULL")
        self._greeted = True
        self._need = 0
        return len(_GREETING)

    def _take(self, data: bytes, start: int, messages: list[list[bytes]]) -> int:
        """Take the whole frames of `data` from `start` on; where the first one begins that is not whole."""
        end, frames = len(data), self._frames
        while end - start >= 2:
            flags = data[start]
            if flags & LONG:
                if end - start < 9:
                    self._need = 9
                    return start
                body, size = start + 9, _U64.unpack_from(data, start + 1)[0]
            else:
                body, size = start + 2, data[start + 1]
            if size + self._bytes > self.bytes_max or len(frames) >= FRAMES_MAX:
                raise ZmtpError(f"a message holds at most {self.bytes_max} bytes in {FRAMES_MAX} frames")
            if body + size > end:
                self._need = body + size - start
                return start
            start = body + size
            if flags & COMMAND:
                self._command(flags, data[body:start])
                continue
            if not self.ready:
                raise ZmtpError("it sent a message before it was ready")
            frames.append(data[body:start])
            self._bytes += size
            if not flags & MORE:
                messages.append(frames)
                frames = self._frames = []
                self._bytes = 0
        self._need = 0
        return start

    def _command(self, flags: int, body: bytes) -> None:
        if flags & MORE or len(body) > COMMAND_BYTES_MAX or not body or len(body) <= body[0]:
            raise ZmtpError("it sent a malformed command")
        name, data = body[1 : 1 + body[0]], body[1 + body[0] :]
        if name == b"READY":
            self.ready = True
        elif name == b"ERROR":
            raise ZmtpError(f"it refused the connection: {data[1:].decode(errors='replace')}")
        elif name == b"PING" and self.ready:
            self.to_send += _command(b"PONG", data[2:18])
