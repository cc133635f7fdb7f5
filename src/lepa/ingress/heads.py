"""Pure: the heads of HTTP/1 messages: read, judged, and written anew for the other side (RFC 9110, 9112).

httptools (llhttp) parses; what it lets through and two readers could understand differently is refused here. Headers
that belong to one connection alone are left out, all others pass as they came, in their order.
"""

import re
from typing import Final

import httptools

from lepa.ingress.framing import NO_BODY, Chunked, Framing, Length, UntilClose

HEAD_MAX: Final = 32_768
HEADERS_MAX: Final = 200
HOST = re.compile(rb"[A-Za-z0-9._~%:\[\]-]*")
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

    __slots__ = ("doubled", "lines", "names", "special", "target")

    own: frozenset[bytes] = frozenset()

    def __init__(self) -> None:
        self.target = b""
        self.lines: list[bytes] = []
        self.names = 0
        self.special: dict[bytes, bytes] = {}
        self.doubled: set[bytes] = set()

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


class _RequestCollector(_Collector):
    __slots__ = ()
    own = OF_REQUEST


class _ResponseCollector(_Collector):
    __slots__ = ()
    own = OF_CONNECTION


class RequestHead:
    """A request's head. target: as it was sent, always with a leading slash or `*`. path: the same without a query."""

    __slots__ = (
        "framing", "host", "keep_alive", "lines", "method", "minor", "path", "special", "target", "upgrade",
    )  # fmt: skip

    def __init__(self, head: bytes) -> None:
        """Raises BadHead."""
        collector = _RequestCollector()
        parser = httptools.HttpRequestParser(collector)
        _parse(parser, head)
        self.method: bytes = parser.get_method()
        self.minor = _minor(parser.get_http_version())
        self.special = special = collector.special
        self.lines = collector.lines
        self.keep_alive: bool = parser.should_keep_alive()
        if not collector.doubled.isdisjoint((b"host", b"content-length", b"transfer-encoding")):
            raise BadHead(400, "a header that may stand once stands twice")
        self._place(collector.target)
        self.framing = _request_framing(special, self.minor)
        self.upgrade = _upgrade(special) if self.method == b"GET" and self.framing is NO_BODY else b""

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
        path, _, _ = target.partition(b"?")
        self.path = path.decode("latin-1")

    @property
    def line(self) -> str:
        """The request line, for the access log."""
        return f"{self.method.decode('latin-1')} {self.target.decode('latin-1')} HTTP/1.{self.minor}"

    @property
    def may_repeat(self) -> bool:
        """Whether it may be sent to another target when the first one ended without a word."""
        return self.method in IDEMPOTENT


class ResponseHead:
    """A response's head."""

    __slots__ = ("first", "framing", "keep_alive", "lines", "status", "upgrade")

    def __init__(self, head: bytes, method: bytes) -> None:
        """method: that of the request. Raises BadHead."""
        collector = _ResponseCollector()
        parser = httptools.HttpResponseParser(collector)
        _parse(parser, head)
        _minor(parser.get_http_version())
        self.status: int = parser.get_status_code()
        self.first = b"HTTP/1.1" + head[8 : head.index(b"\r\n")]
        self.lines = collector.lines
        special = collector.special
        if not collector.doubled.isdisjoint((b"content-length", b"transfer-encoding")):
            raise BadHead(502, "a header that may stand once stands twice")
        self.upgrade = special.get(b"upgrade", b"") if self.status == 101 else b""
        size = special.get(b"content-length")
        if size is not None:
            self.lines.append(b"Content-Length: " + size)
        self.framing = self._framing(special, method, size)
        self.keep_alive: bool = parser.should_keep_alive() and type(self.framing) is not UntilClose

    def _framing(self, special: dict[bytes, bytes], method: bytes, size: bytes | None) -> Framing:
        encoding = special.get(b"transfer-encoding")
        if encoding is not None:
            if encoding.lower() != b"chunked" or size is not None:
                raise BadHead(502, "the transfer encoding is not chunked")
            self.lines.append(b"Transfer-Encoding: chunked")
        if method == b"HEAD" or self.status in {204, 304} or self.status < 200:
            return NO_BODY
        if encoding is not None:
            return Chunked()
        return UntilClose() if size is None else _length(size, 502)

    def written(self, connection: bytes) -> bytes:
        """The head for the client. connection: a whole header line with its end, or nothing."""
        return b"%b\r\n%b\r\n%b\r\n" % (self.first, b"\r\n".join(self.lines), connection) if self.lines else (
            b"%b\r\n%b\r\n" % (self.first, connection)
        )  # fmt: skip


class ClientFacts:
    """What targets are told of a client's connection. scheme: http or https. port: that it came to."""

    __slots__ = ("_plain", "address", "local", "port", "scheme")

    def __init__(self, address: str, local: str, port: int, *, secure: bool) -> None:
        self.address = address
        self.local = local
        self.port = port
        self.scheme = "https" if secure else "http"
        self._plain = self._facts({})

    def headers(self, request: RequestHead, prefix: str) -> bytes:
        """The forwarding headers of a request: lists are continued, the others added where they are missing.

        prefix: what was stripped from the path.
        """
        special = request.special
        came = special.get(b"x-forwarded-for")
        address = self.address.encode()
        line = b"X-Forwarded-For: " + (came + b", " + address if came else address) + b"\r\n"
        known = b"x-real-ip" in special or b"x-forwarded-proto" in special or b"x-forwarded-port" in special
        line += self._facts(special) if known else self._plain
        if b"x-forwarded-host" not in special:
            line += b"X-Forwarded-Host: " + request.host.encode() + b"\r\n"
        if prefix and b"x-forwarded-prefix" not in special:
            line += b"X-Forwarded-Prefix: " + prefix.encode("latin-1") + b"\r\n"
        return line + self._forwarded(special, request.minor)

    def _facts(self, special: dict[bytes, bytes]) -> bytes:
        facts = (("X-Real-Ip", self.address), ("X-Forwarded-Proto", self.scheme), ("X-Forwarded-Port", str(self.port)))
        return b"".join(f"{name}: {v}\r\n".encode() for name, v in facts if name.lower().encode() not in special)

    def _forwarded(self, special: dict[bytes, bytes], minor: int) -> bytes:
        """RFC 7239."""
        came = special.get(b"forwarded")
        quoted = f'"[{self.address}]"' if ":" in self.address else self.address
        by = f'"[{self.local}]"' if ":" in self.local else self.local
        own = f"for={quoted};proto={self.scheme};by={by};httpproto=http/1.{minor}".encode()
        return b"Forwarded: " + (came + b", " + own if came else own) + b"\r\n"


def written_request(request: RequestHead, target: bytes, host: bytes, forwarded: bytes) -> bytes:
    """The head for a target. target: path and query. host: the Host header. forwarded: header lines with their ends."""
    special = request.special
    lines = request.lines
    connection = special.get(b"connection")
    if connection is not None and connection.lower() not in USUAL_CONNECTIONS:
        lines = _without_named(lines, connection)
    parts = [request.method, b" ", target, b" HTTP/1.%d\r\nHost: " % request.minor, host, b"\r\n"]
    for line in lines:
        parts += (line, b"\r\n")
    parts.append(forwarded)
    size = special.get(b"content-length")
    if size is not None:
        parts.append(b"Content-Length: " + size + b"\r\n")
    elif b"transfer-encoding" in special:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    if request.upgrade:
        parts.append(b"Connection: Upgrade\r\nUpgrade: " + request.upgrade + b"\r\n")
    if b"te" in special and b"trailers" in special[b"te"].lower():
        parts.append(b"TE: trailers\r\nConnection: TE\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def answer(status: int, text: str, headers: tuple[tuple[str, str], ...] = (), *, keep_alive: bool, body: bool) -> bytes:
    """An answer of our own. body: False for HEAD."""
    content = f"{text}\n".encode()
    named = "".join(f"{name}: {value}\r\n" for name, value in headers)
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


def _parse(parser: httptools.HttpRequestParser | httptools.HttpResponseParser, head: bytes) -> None:
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


def _minor(version: str) -> int:
    if version == "1.1":
        return 1
    if version == "1.0":
        return 0
    raise BadHead(505, f"HTTP/{version} is not spoken here")


def _request_framing(special: dict[bytes, bytes], minor: int) -> Framing:
    encoding, size = special.get(b"transfer-encoding"), special.get(b"content-length")
    if encoding is None:
        return NO_BODY if size is None else _length(size, 400)
    if size is not None or not minor:
        raise BadHead(400, "length and encoding of the body contradict each other")
    if encoding.lower() != b"chunked":
        raise BadHead(501, "transfer encodings other than chunked are not understood")
    return Chunked()


def _length(text: bytes, status: int) -> Framing:
    if not text.isdigit() or len(text) > 18:
        raise BadHead(status, "the content length is malformed")
    return Length(int(text)) if int(text) else NO_BODY


def _upgrade(special: dict[bytes, bytes]) -> bytes:
    """The protocol that a client asks to change to; never HTTP/2, which would lead around all that is decided here."""
    wanted = special.get(b"upgrade", b"")
    asked = b"upgrade" in special.get(b"connection", b"").lower()
    return wanted if wanted and asked and not wanted.lower().startswith((b"h2c", b"http")) else b""


def _without_named(lines: list[bytes], connection: bytes) -> list[bytes]:
    """Without the headers that the Connection header names."""
    named = {name.strip().lower() for name in connection.split(b",")}
    return [line for line in lines if line.partition(b":")[0].lower() not in named]
