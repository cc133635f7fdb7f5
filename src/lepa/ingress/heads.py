"""Pure: the heads of HTTP/1 messages: read, judged, and written anew for the other side (RFC 9110, 9112).

httptools (llhttp) parses; what it lets through and two readers could understand differently is refused here. Headers
that belong to one connection alone are left out, all others pass as they came, in their order.
"""

import re
from typing import Final, TypeVar

import httptools

from lepa.ingress.framing import CHUNKED, UNTIL_CLOSE
from lepa.ingress.request_target import written_target
from lepa.ingress.route_spec import Options
from lepa.ingress.routes import Route, plain_path

HEAD_MAX: Final = 32_768
HEADERS_MAX: Final = 200
REMEMBERED_MAX: Final = 1_024
REMEMBERED_SIZE_MAX: Final = 2_048
HOST = re.compile(rb"[A-Za-z0-9._~%:\[\]-]*")
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE"})
"""Methods that may be sent again when a target ended the connection without a word (RFC 9110, 9.2.2)."""

SPECIAL = frozenset(
    {
        b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"proxy-connection", b"upgrade",
        b"te", b"expect", b"authorization", b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-port",
        b"x-forwarded-host", b"x-forwarded-prefix", b"x-real-ip", b"referer", b"user-agent",
    }
)  # fmt: skip
"""Headers that are looked at."""
OF_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te", b"content-length"}
)
"""Headers that are written anew or left out."""
FORWARDING = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-port", b"x-real-ip", b"forwarded"})
"""Headers that another balancer has set."""
OF_REQUEST = OF_CONNECTION | {b"host", b"x-forwarded-for", b"forwarded"}

USUAL_CONNECTIONS = frozenset({b"keep-alive", b"close", b"upgrade", b"keep-alive, upgrade"})
"""Values that name no header which is not left out anyway."""


class BadHead(Exception):
    """A head that is refused. status: the answer for a client; a target's means 502."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class _Collector:
    """What httptools calls back."""

    __slots__ = ("doubled", "lines", "special", "target", "whole")

    own: frozenset[bytes] = frozenset()

    def __init__(self) -> None:
        self.target = b""
        self.lines: list[bytes] = []
        self.special: dict[bytes, bytes] = {}
        self.doubled: set[bytes] = set()
        self.whole = False

    def on_url(self, part: bytes) -> None:
        """Pieces of the target."""
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header: noted when it is looked at, kept unless it is ours to write."""
        low = name.lower()
        if low in SPECIAL:
            special = self.special
            if low in special:
                self.doubled.add(low)
                special[low] += b", " + value
            else:
                special[low] = value
            if low in self.own:
                return
        self.lines.append(name + b": " + value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.whole = True


class _RequestCollector(_Collector):
    __slots__ = ()
    own = OF_REQUEST


class _ResponseCollector(_Collector):
    __slots__ = ()
    own = OF_CONNECTION


class RequestHead:
    """A request's head. It never changes, so that one object serves all requests that begin with the same bytes.

    target: as it was sent, always with a leading slash or `*`. path: the same without a query, as routes see it.
    body: its length, CHUNKED or 0. upgrade: the protocol that the client asks to change to. forwarded: whether it has
    passed another balancer. may_repeat: whether it may be sent to another target when the first one ended without a
    word.
    """

    __slots__ = (
        "_lines", "_wire", "_wired", "body", "forwarded", "host", "keep_alive", "may_repeat", "method", "minor", "path",
        "route", "routed", "special", "target", "upgrade",
    )  # fmt: skip

    def __init__(self, head: bytes) -> None:
        """Raises BadHead."""
        collector = _RequestCollector()
        parser = httptools.HttpRequestParser(collector)
        _parse(parser, head, collector)
        self.method: bytes = parser.get_method()
        self.minor = _minor(parser.get_http_version())
        self.special = special = collector.special
        self._lines = collector.lines
        self.keep_alive = _keeps(special, self.minor)
        if not collector.doubled.isdisjoint((b"host", b"content-length", b"transfer-encoding")):
            raise BadHead(400, "a header that may stand once stands twice")
        self._place(collector.target)
        self.body = _request_body(special, self.minor)
        self.upgrade = _upgrade(special) if self.method == b"GET" and not self.body else b""
        self.forwarded = not FORWARDING.isdisjoint(special)
        self.may_repeat = self.method in IDEMPOTENT
        self.route: Route | None = None
        self.routed = 0
        """For which table and side `route` was found; 0 for none."""
        self._wired: Options | None = None
        self._wire = b""

    def _place(self, target: bytes) -> None:
        """Find host and path in the target's form (RFC 9112, section 3.2)."""
        host = self.special.get(b"host")
        if self.method == b"CONNECT":
            raise BadHead(405, "this is no forward proxy")
        if target[:1] != b"/" and not (target == b"*" and self.method == b"OPTIONS"):
            scheme, separator, rest = target.partition(b"://")
            if not separator or scheme.lower() not in {b"http", b"https"}:
                raise BadHead(400, "the request target is malformed")
            end = min((place for mark in b"/?" if (place := rest.find(mark)) >= 0), default=len(rest))
            host, target = rest[:end], rest[end:]
            if target[:1] != b"/":
                target = b"/" + target
        if host is None:
            if self.minor:
                raise BadHead(400, "the Host header is missing")
            host = b""
        if not HOST.fullmatch(host) or not TARGET.fullmatch(target):
            raise BadHead(400, "host or target is malformed")
        self.host = host.decode()
        self.target = target
        self.path = plain_path(target.partition(b"?")[0].decode("latin-1"))

    def wire(self, options: Options, key: str) -> bytes:
        """The head for a target whose address is `key`, up to the lines that tell of the client."""
        if self._wired is options:
            return self._wire
        target, stripped = written_target(self.target, options)
        named = key if options.host == "dst" else options.host or self.host or key
        wire = self._written(target, named.encode("latin-1", "replace"), stripped.encode("latin-1"))
        if options.host != "dst" and (self.host or options.host):
            self._wired, self._wire = options, wire
        return wire

    def _written(self, target: bytes, host: bytes, stripped: bytes) -> bytes:
        special, lines = self.special, self._lines
        connection = special.get(b"connection")
        if connection is not None and connection.lower() not in USUAL_CONNECTIONS:
            lines = _without_named(lines, connection)
        parts = [b"%b %b HTTP/1.%d" % (self.method, target, self.minor), b"Host: " + host, *lines]
        if self.body:
            parts.append(b"Transfer-Encoding: chunked" if self.body == CHUNKED else b"Content-Length: %d" % self.body)
        elif b"content-length" in special:
            parts.append(b"Content-Length: 0")
        if self.upgrade:
            parts.append(b"Connection: Upgrade\r\nUpgrade: " + self.upgrade)
        if b"trailers" in special.get(b"te", b"").lower():
            parts.append(b"TE: trailers\r\nConnection: TE")
        if b"x-forwarded-host" not in special:
            parts.append(b"X-Forwarded-Host: " + self.host.encode())
        if stripped and b"x-forwarded-prefix" not in special:
            parts.append(b"X-Forwarded-Prefix: " + stripped)
        parts.append(b"")
        return b"\r\n".join(parts)


class ResponseHead:
    """A response's head. It never changes. body: its length, CHUNKED, UNTIL_CLOSE or 0.

    closing, kept: the head for a client whose connection ends or stays.
    """

    __slots__ = ("_first", "_lines", "body", "closing", "keep_alive", "kept", "status", "upgrade")

    def __init__(self, head: bytes, method: bytes) -> None:
        """method: that of the request. Raises BadHead."""
        collector = _ResponseCollector()
        parser = httptools.HttpResponseParser(collector)
        _parse(parser, head, collector)
        minor = _minor(parser.get_http_version())
        self.status: int = parser.get_status_code()
        self._first = b"HTTP/1.1" + head[8 : head.index(b"\r\n")]
        self._lines = collector.lines
        special = collector.special
        if not collector.doubled.isdisjoint((b"content-length", b"transfer-encoding")):
            raise BadHead(502, "a header that may stand once stands twice")
        connection = special.get(b"connection")
        if connection is not None and connection.lower() not in USUAL_CONNECTIONS:
            self._lines = _without_named(self._lines, connection)
        self.upgrade = special.get(b"upgrade", b"") if self.status == 101 else b""
        self.body = self._body(special, method)
        self.keep_alive = _keeps(special, minor) and self.body != UNTIL_CLOSE
        self.kept = self.written(b"")
        self.closing = self.written(b"Connection: close\r\n")

    def _body(self, special: dict[bytes, bytes], method: bytes) -> int:
        size, encoding = special.get(b"content-length"), special.get(b"transfer-encoding")
        if encoding is not None:
            if encoding.lower() != b"chunked" or size is not None:
                raise BadHead(502, "the transfer encoding is not chunked")
            self._lines.append(b"Transfer-Encoding: chunked")
        elif size is not None:
            self._lines.append(b"Content-Length: %d" % _length(size, 502))
        if method == b"HEAD" or self.status in {204, 304} or self.status < 200:
            return 0
        if encoding is not None:
            return CHUNKED
        return UNTIL_CLOSE if size is None else _length(size, 502)

    def written(self, connection: bytes) -> bytes:
        """The head for the client. connection: whole header lines with their ends, or nothing."""
        return b"".join((self._first, b"\r\n", *(line + b"\r\n" for line in self._lines), connection, b"\r\n"))


class Memo:
    """Heads read before, by their bytes: most clients and servers say the same again and again.

    Short heads only, and all are forgotten when there are too many, so the memory is bounded whatever is sent.
    """

    def __init__(self) -> None:
        self.requests: dict[bytes, RequestHead] = {}
        self._responses: dict[bytes, ResponseHead] = {}
        self._responses_to_head: dict[bytes, ResponseHead] = {}

    def request(self, head: bytes) -> RequestHead:
        """Raises BadHead."""
        found = self.requests.get(head)
        if found is None:
            found = RequestHead(head)
            _remember(self.requests, head, found)
        return found

    def response(self, head: bytes, method: bytes) -> ResponseHead:
        """method: that of the request. Raises BadHead."""
        known = self._responses_to_head if method == b"HEAD" else self._responses
        found = known.get(head)
        if found is None:
            found = ResponseHead(head, method)
            _remember(known, head, found)
        return found


Head = TypeVar("Head")


def _remember(known: dict[bytes, Head], head: bytes, found: Head) -> None:
    if len(head) <= REMEMBERED_SIZE_MAX:
        if len(known) >= REMEMBERED_MAX:
            known.clear()
        known[head] = found


class ClientFacts:
    """What targets are told of a client's connection. secure: it speaks TLS. port: that it came to."""

    __slots__ = ("_plain", "address", "local", "port", "scheme")

    def __init__(self, address: str, local: str, port: int, *, secure: bool) -> None:
        self.address = address
        self.local = local
        self.port = port
        self.scheme = "https" if secure else "http"
        self._plain = b""

    def lines(self, request: RequestHead) -> bytes:
        """The last lines of a head for a target, its end included: lists are continued, others added where missing."""
        if request.forwarded or not request.minor:
            return self._written(request.special, request.minor)
        if not self._plain:
            self._plain = self._written({}, 1)
        return self._plain

    def _written(self, special: dict[bytes, bytes], minor: int) -> bytes:
        facts = (("X-Real-Ip", self.address), ("X-Forwarded-Proto", self.scheme), ("X-Forwarded-Port", str(self.port)))
        quoted = f'"[{self.address}]"' if ":" in self.address else self.address
        by = f'"[{self.local}]"' if ":" in self.local else self.local
        lines = [
            b"X-Forwarded-For: " + _continued(special.get(b"x-forwarded-for"), self.address),
            *(f"{name}: {value}".encode() for name, value in facts if name.lower().encode() not in special),
            # RFC 7239
            b"Forwarded: "
            + _continued(
                special.get(b"forwarded"), f"for={quoted};proto={self.scheme};by={by};httpproto=http/1.{minor}"
            ),
        ]
        return b"\r\n".join((*lines, b"", b""))


def _continued(came: bytes | None, own: str) -> bytes:
    return own.encode() if came is None else came + b", " + own.encode()


def answer(status: int, text: str, headers: tuple[tuple[str, str], ...] = (), *, keep_alive: bool, body: bool) -> bytes:
    """An answer of our own. body: False for HEAD."""
    content = f"{text}\n".encode()
    named = "".join(f"{name}: {CONTROLS.sub('', value)}\r\n" for name, value in headers)
    head = (
        f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\n{named}{'' if keep_alive else 'Connection: close' + chr(13) + chr(10)}\r\n"
    )
    return head.encode("latin-1", "replace") + (content if body else b"")


REASONS = {
    301: "Moved Permanently", 302: "Found", 303: "See Other", 307: "Temporary Redirect", 308: "Permanent Redirect",
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 411: "Length Required", 413: "Content Too Large", 414: "URI Too Long",
    417: "Expectation Failed", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}  # fmt: skip


def _parse(
    parser: httptools.HttpRequestParser | httptools.HttpResponseParser, head: bytes, collector: _Collector
) -> None:
    ends = head.count(b"\n")
    if ends != head.count(b"\r\n") or ends != head.count(b"\r") or b"\n " in head or b"\n\t" in head or b"\0" in head:
        raise BadHead(400, "line ends or folded lines are malformed")
    if ends > HEADERS_MAX:
        raise BadHead(431, "there are too many headers")
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise BadHead(400, str(error) or "malformed") from error
    if not collector.whole:
        raise BadHead(400, "the head is empty")


def _minor(version: str) -> int:
    if version == "1.1":
        return 1
    if version == "1.0":
        return 0
    raise BadHead(505, f"HTTP/{version} is not spoken here")


def _keeps(special: dict[bytes, bytes], minor: int) -> bool:
    """Whether another message may follow on the connection (RFC 9112, section 9.3)."""
    named = special.get(b"connection")
    if named is None:
        return minor == 1
    words = {word.strip() for word in named.lower().split(b",")}
    return b"close" not in words and (minor == 1 or b"keep-alive" in words)


def _request_body(special: dict[bytes, bytes], minor: int) -> int:
    encoding, size = special.get(b"transfer-encoding"), special.get(b"content-length")
    if encoding is None:
        return 0 if size is None else _length(size, 400)
    if size is not None or not minor:
        raise BadHead(400, "length and encoding of the body contradict each other")
    if encoding.lower() != b"chunked":
        raise BadHead(501, "transfer encodings other than chunked are not understood")
    return CHUNKED


def _length(text: bytes, status: int) -> int:
    if not text.isdigit() or len(text) > 18:
        raise BadHead(status, "the content length is malformed")
    return int(text)


def _upgrade(special: dict[bytes, bytes]) -> bytes:
    """The protocol that a client asks to change to; never HTTP/2, which would lead around all that is decided here."""
    wanted = special.get(b"upgrade", b"")
    asked = b"upgrade" in special.get(b"connection", b"").lower()
    return wanted if wanted and asked and not wanted.lower().startswith((b"h2c", b"http")) else b""


def _without_named(lines: list[bytes], connection: bytes) -> list[bytes]:
    """Without the headers that the Connection header names."""
    named = {name.strip().lower() for name in connection.split(b",")}
    return [line for line in lines if line.partition(b":")[0].lower() not in named]
