"""One caller's HTTP connection: an `asyncio.Protocol` on httptools, which hands requests to its owner one at a time.

Requests of one connection are answered in order. A caller that pipelines more than a few is not read from until the
first ones are answered; what is not HTTP, or too large, is refused in words before the connection is closed.

A caller's heads are alike, byte for byte, from request to request. What the parser made of a head is remembered, and a
request that comes in one piece, with a head that is known and a body as long as that says, needs no parsing again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import httptools
import msgspec

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 16 << 20
"""Decoding more would keep the other callers waiting for too long."""
URL_BYTES_MAX = 8 << 10
HEADERS_MAX = 100
CONNECTIONS_MAX = 20_000
HEADS_KNOWN_MAX = 1000
"""Heads that are remembered; then all are forgotten, for a caller may never send the same one twice."""
HEAD_KNOWN_BYTES_MAX = 2000
PIPELINED_MAX = 16
"""Requests of one connection that wait for the one before them; then no more is read from it."""
REFUSED_S = 0.5
"""What a peer still sends after its request was refused is thrown away for this long."""
WITH_HEADERS = (b"/v1/", b"/v2")
"""Paths that begin so want to see the headers."""
JSON = b"application/json"

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_HEAD = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b"
_STATUS = {
    200: b"200 OK",
    400: b"400 Bad Request",
    404: b"404 Not Found",
    405: b"405 Method Not Allowed",
    413: b"413 Content Too Large",
    500: b"500 Internal Server Error",
    502: b"502 Bad Gateway",
    503: b"503 Service Unavailable",
}

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, and values."""


class Head(NamedTuple):
    """What the parser made of a head whose connection stays open. body_bytes: that follow it."""

    method: bytes
    url: bytes
    headers: Headers
    body_bytes: int


class Owner(Protocol):
    """Who answers the requests. heads: that are known, by their bytes up to the empty line."""

    connections: "set[HttpConnection]"
    heads: dict[bytes, Head]

    def handle(
        self, connection: "HttpConnection", method: bytes, url: bytes, headers: Headers, body: bytes | bytearray
    ) -> None:
        """Answer a request through `ok`, `reply`, `fail` or `stream` of its connection, now or later, once."""


class HttpConnection(asyncio.Protocol):
    """One caller. Requests of one connection are answered in order, one at a time; further ones wait, a few."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._heads = owner.heads
        self._between = True
        self._completed: Head | None = None
        self._loop = asyncio.get_running_loop()
        self._busy = False
        self._keep_alive = True
        self._refused = False
        self._waiting: deque[tuple[bytes, bytes, Headers, bytes | bytearray, bool]] = deque()
        self._headers: Headers = ()
        self._url = b""
        self._body: bytes | bytearray = b""
        self._active_at = 0.0
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost: Callable[[], object] | None = None

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser: Any = httptools.HttpRequestParser(self)
        self._active_at = self._loop.time()
        connections = self._owner.connections
        if len(connections) >= CONNECTIONS_MAX:
            transport.close()
        else:
            connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connections.discard(self)
        self._waiting.clear()
        self._parser = None
        self._writable.set()
        if self._lost:
            self._lost()

    def data_received(self, data: bytes) -> None:
        between = self._between
        if between and self._keep_alive and not self._busy and not self._refused:
            end = data.find(b"\r\n\r\n") + 4
            head = self._heads.get(data[:end])
            if head is not None and len(data) == end + head.body_bytes:
                self._handle(head.method, head.url, head.headers, data[end:], True)
                return
        self._parse(data, between)

    def _parse(self, data: bytes, between: bool) -> None:
        """Let the parser read on. between: nothing of a request has been read yet."""
        if self._refused:
            return
        self._completed = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "the connection cannot be upgraded")
        except httptools.HttpParserError as error:
            self._refuse(400, f"not an HTTP request: {error}")
        if between and self._between and self._completed:
            self._remember(data, self._completed)

    def _remember(self, data: bytes, head: Head) -> None:
        """Know a head again, if `data` was its one request and nothing else."""
        end = data.find(b"\r\n\r\n") + 4
        if end <= HEAD_KNOWN_BYTES_MAX and len(data) == end + head.body_bytes:
            if len(self._heads) >= HEADS_KNOWN_MAX:
                self._heads.clear()
            self._heads[data[:end]] = head

    def pause_writing(self) -> None:
        self._transport.pause_reading()
        self._writable.clear()

    def resume_writing(self) -> None:
        self._transport.resume_reading()
        self._writable.set()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._between = False
        self._url = self._body = b""
        self._headers = ()

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > URL_BYTES_MAX:
            self._url = b""
            self._refuse(400, f"a URL holds at most {URL_BYTES_MAX} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Headers matter to a few paths only; for the others they are not even kept."""
        if self._url.startswith(WITH_HEADERS):
            if len(self._headers) >= HEADERS_MAX:
                self._refuse(400, f"a request has at most {HEADERS_MAX} headers")
                return
            self._headers = (*self._headers, (name.lower(), value))

    def on_body(self, body: bytes) -> None:
        """Most bodies come in one piece; further ones are gathered in a bytearray, for a sum of bytes is quadratic."""
        if self._refused:
            return
        if not self._body:
            self._body = body
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body
        if len(self._body) > BODY_BYTES_MAX:
            self._body = b""
            self._refuse(413, f"a body holds at most {BODY_BYTES_MAX} bytes")

    def on_message_complete(self) -> None:
        self._between = True
        if self._refused or self._transport.is_closing():
            return
        method, keep_alive = self._parser.get_method(), self._parser.should_keep_alive()
        if keep_alive:
            self._completed = Head(method, self._url, self._headers, len(self._body))
        if not self._busy:
            self._handle(method, self._url, self._headers, self._body, keep_alive)
            return
        self._waiting.append((method, self._url, self._headers, self._body, keep_alive))
        if len(self._waiting) >= PIPELINED_MAX:
            self._transport.pause_reading()

    # Requests and replies

    def _handle(self, method: bytes, url: bytes, headers: Headers, body: bytes | bytearray, keep_alive: bool) -> None:
        self._busy = True
        self._keep_alive = keep_alive
        try:
            self._owner.handle(self, method, url, headers, body)
        except Exception as error:
            log.error("request failed url=%s", url, exc_info=error)
            self.fail(500, "Internal error", "An unexpected error occurred!")

    def ok(self, body: bytes) -> None:
        """Answer with 200: the path that most requests take."""
        if self._keep_alive and not self._waiting:
            self._busy = False
            if not self._transport.is_closing():
                self._active_at = self._loop.time()
                self._transport.write(_OK % (len(body), body))
        else:
            self.reply(200, body)

    async def stream(self, piece: bytes) -> None:
        """Write a piece of an answer that somebody else composes, as fast as the caller takes it."""
        self._active_at = self._loop.time()
        self._transport.write(piece)
        await self._writable.wait()

    def end_stream(self) -> None:
        """The answer that was streamed is whole; its end is the connection's."""
        self._transport.close()

    def on_lost(self, call: Callable[[], object]) -> None:
        """Call this when the connection is gone."""
        self._lost = call

    def fail(self, status: int, name: str, cause: str) -> None:
        """Answer with an error."""
        self.reply(status, msgspec.json.encode({"error": name, "cause": cause}))

    def reply(self, status: int, body: bytes, content_type: bytes = JSON) -> None:
        """Answer the request at hand and go on with the next one; until then no later one may overtake it."""
        self._busy = bool(self._waiting)
        if self._refused or self._transport.is_closing():
            return
        self._active_at = self._loop.time()
        connection = b"" if self._keep_alive else b"Connection: close\r\n"
        self._transport.write(_HEAD % (_STATUS[status], content_type, len(body), connection, body))
        if not self._keep_alive:
            self._transport.close()
        elif self._waiting:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        if self._waiting:
            if len(self._waiting) >= PIPELINED_MAX:
                self._transport.resume_reading()
            self._handle(*self._waiting.popleft())

    def _refuse(self, status: int, cause: str) -> None:
        """Answer what is not a request, and close: not at once, for a peer that still sends would lose the answer."""
        if self._refused:
            return
        self._refused = True
        self._keep_alive = False
        self._waiting.clear()
        body = msgspec.json.encode({"error": "Bad request", "cause": cause})
        self._transport.write(_HEAD % (_STATUS[status], JSON, len(body), b"Connection: close\r\n", body))
        self._loop.call_later(REFUSED_S, self._transport.close)

    def close(self) -> None:
        self._transport.close()

    def close_if_idle_since(self, oldest: float) -> None:
        """Close a connection whose last request was answered before `oldest`."""
        if not self._busy and self._active_at < oldest:
            self._transport.close()
