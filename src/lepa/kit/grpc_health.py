"""Pure: one call of gRPC's health service over HTTP/2, as bytes out and bytes in.

A check needs one unary call on a fresh connection, so most of HTTP/2 (RFC 9113) is not needed: headers are sent as
plain literals, and headers that come back are skipped unread, because the answer stands in the data. A stream that
ends without data was an error of the called side.

    exchange = Exchange(authority="10.0.0.1:50051", service="")
    send(exchange.opening)
    while exchange.answer is None:
        send(exchange.receive(recv()))        # acknowledgements, often empty
"""

from struct import pack, unpack
from typing import Final, Literal

Answer = Literal["SERVING", "NOT_SERVING", "SERVICE_UNKNOWN", "UNKNOWN", "ERROR"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH: Final = "/grpc.health.v1.Health/Check"
FRAME_MAX: Final = 16_384
"""The largest frame that a peer may send without our leave."""
RECEIVED_MAX: Final = 256 * 1024
"""Octets of an answer after which it is given up."""

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_STREAM: Final = 1
_STATUSES: Final[dict[int, Answer]] = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class Exchange:
    """One call. service "" asks about the server as a whole. answer: None until it is known."""

    def __init__(self, authority: str, service: str = "", scheme: str = "http") -> None:
        self.opening = _opening(authority, service, scheme)
        self.answer: Answer | None = None
        self._buffer = b""
        self._message = b""
        self._received = 0

    def receive(self, data: bytes) -> bytes:
        """Take what came, b"" for the end of the connection; returns what is to be sent."""
        self._received += len(data)
        if not data or self._received > RECEIVED_MAX:
            self.answer = self.answer or "ERROR"
            return b""
        self._buffer += data
        replies = b""
        while self.answer is None and len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], "big")
            if length > FRAME_MAX:
                self.answer = "ERROR"
            if len(self._buffer) < 9 + length:
                break
            kind, flags, stream = self._buffer[3], self._buffer[4], unpack(">I", self._buffer[5:9])[0] & 0x7FFFFFFF
            payload, self._buffer = self._buffer[9 : 9 + length], self._buffer[9 + length :]
            replies += self._frame(kind, flags, stream, payload)
        return replies

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind == _SETTINGS and not flags & _ACK:
            return _frame(_SETTINGS, _ACK, 0)
        if kind == _PING and not flags & _ACK:
            return _frame(_PING, _ACK, 0, payload)
        if kind == _GOAWAY or (kind == _RST_STREAM and stream == _STREAM):
            self.answer = "ERROR"
        elif kind in (_DATA, _HEADERS) and stream == _STREAM:
            self._stream(kind, flags, payload)
        return b""

    def _stream(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _DATA:
            padded = flags & _PADDED and payload
            self._message += payload[1 : len(payload) - payload[0]] if padded else payload
            self.answer = _status(self._message)
        if self.answer is None and flags & _END_STREAM:
            self.answer = "ERROR"


def _status(message: bytes) -> Answer | None:
    """The answer of a message with its prefix of five octets; None while it is not whole."""
    if len(message) < 5 or len(message) < 5 + unpack(">I", message[1:5])[0]:
        return None
    compressed, body = message[0], message[5:]
    if compressed:
        return "ERROR"
    if not body:
        return "UNKNOWN"
    return _STATUSES.get(body[1], "ERROR") if len(body) >= 2 and body[0] == 0x08 else "ERROR"


def _opening(authority: str, service: str, scheme: str) -> bytes:
    name = service.encode()
    request = b"\x0a" + _varint(len(name)) + name if name else b""
    headers = {
        ":method": "POST",
        ":scheme": scheme,
        ":path": PATH,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "lepa-health-check",
    }
    block = b"".join(b"\x00" + _literal(key) + _literal(value) for key, value in headers.items())
    message = b"\x00" + pack(">I", len(request)) + request
    return (
        PREFACE
        + _frame(_SETTINGS, 0, 0)
        + _frame(_HEADERS, _END_HEADERS, _STREAM, block)
        + _frame(_DATA, _END_STREAM, _STREAM, message)
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + pack(">I", stream) + payload


def _literal(text: str) -> bytes:
    """A string of HPACK (RFC 7541 section 5.2), not compressed."""
    raw = text.encode()
    if len(raw) < 127:
        return bytes((len(raw),)) + raw
    return b"\x7f" + _varint(len(raw) - 127) + raw


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))
