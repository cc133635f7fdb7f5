"""HTTP/1 connections of clients, and the exchanges on them: head in, route, target, both bodies streamed, next.

    ClientSession   one client's connection; reads heads, writes answers, one exchange at a time
    Exchange        one request: its target, what was sent of it, what came back
    Upstream        one connection to a target (`upstreams`)

Nothing is read faster than it can be passed on, so a connection holds at most a head, one read and OUT_MAX. A request
is tried with another target when one takes no connection, and when one ends the connection without a word and the
request may be repeated: a method that changes nothing twice, of whose body everything sent is still at hand. An answer
that breaks off breaks the client's connection off too, for its length has been told already.
"""

import logging
import socket
from typing import Final

from lepa.ingress.access import Passwords, knows, may_pass
from lepa.ingress.access_log import Logged
from lepa.ingress.connector import Dial
from lepa.ingress.event_loop import HUNG_UP, READABLE, READY_IN, READY_OUT
from lepa.ingress.framing import NO_BODY, Chunked, Framing, UntilClose
from lepa.ingress.heads import HEAD_MAX, BadHead, ClientFacts, RequestHead, ResponseHead, answer, written_request
from lepa.ingress.picker import TargetState
from lepa.ingress.proxy_protocol import Source
from lepa.ingress.request_target import written_target
from lepa.ingress.routes import Route, Target, location, plain_path, split_host
from lepa.ingress.tcp_proxy import ATTEMPTS_MAX, TcpProxy
from lepa.ingress.traffic import Traffic
from lepa.ingress.tunnel import Tunnel, abort_socket
from lepa.ingress.upstreams import Upstream

log = logging.getLogger(__name__)

READ: Final = 65_536
OUT_MAX: Final = 262_144
"""Bytes that wait for a slow client before its target is read no further."""
KEPT_MAX: Final = 65_536
"""Bytes of a request's body that are kept, so that another target can be tried."""
LINGER_S = 2.0
"""How long the rest of a refused body is read and thrown away, so that the client sees the answer."""
LINGER_MAX = 1 << 20
CLIENT_GONE = 499
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"


class HttpProxy:
    """All HTTP connections. passwords: those of each scheme that tags may name with auth=."""

    def __init__(self, traffic: Traffic, tcp: TcpProxy, passwords: dict[str, Passwords] | None = None) -> None:
        self.traffic = traffic
        self.tcp = tcp
        self.passwords = passwords or {}
        self.sessions: set[ClientSession] = set()
        traffic.loop.every_sweep(self._expire)

    def accept(self, client: socket.socket, source: Source, *, secure: bool = False, server_name: str = "") -> None:
        """Serve a client whose socket does not block.

        secure: it speaks TLS, and the handshake has been made. server_name: the name that it asked for.
        """
        self.traffic.open += 1
        session = ClientSession(self, client, source, secure=secure, server_name=server_name)
        self.sessions.add(session)
        self.traffic.loop.hand_over(client, session)
        if secure:
            # What came together with the handshake's last message gives no further event.
            session.ready(READABLE)

    def over(self, session: "ClientSession") -> None:
        """A connection has ended."""
        if session in self.sessions:
            self.sessions.discard(session)
            self.traffic.open -= 1

    def _expire(self) -> None:
        now = self.traffic.loop.now
        for session in [session for session in self.sessions if session.deadline < now]:
            session.too_late()

    def drain(self) -> None:
        """End connections as soon as they have no request under way."""
        for session in list(self.sessions):
            session.drain()

    def end_all(self) -> None:
        """End everything."""
        for session in list(self.sessions):
            session.abort()


class ClientSession:
    """One client's connection. deadline: monotonic seconds; what happens then depends on what is waited for."""

    __slots__ = (
        "closed", "closing", "deadline", "exchange", "facts", "hung", "inbound", "lingering", "loop", "out", "plain",
        "proxy", "readable", "secure", "server_name", "sock", "source", "traffic", "tunnel", "writable",
    )  # fmt: skip

    def __init__(
        self, proxy: HttpProxy, sock: socket.socket, source: Source, *, secure: bool, server_name: str
    ) -> None:
        self.proxy = proxy
        self.server_name = server_name
        self.traffic = proxy.traffic
        self.loop = proxy.traffic.loop
        self.sock = sock
        self.secure = secure
        self.plain = type(sock) is socket.socket
        self.source = source
        self.facts = ClientFacts(source.address, source.local_address, source.local_port, secure=secure)
        self.inbound = b""
        self.out = bytearray()
        self.readable = False
        self.writable = True
        self.hung = False
        self.closing = False
        self.closed = False
        self.lingering = -1
        """Bytes thrown away since the answer; -1 before."""
        self.exchange: Exchange | None = None
        self.tunnel: Tunnel | None = None
        self.deadline = self.loop.now + self.traffic.settings.head_s

    # Events

    def ready(self, events: int) -> None:
        """The socket can be read, written, or has been hung up."""
        if events & HUNG_UP:
            self.hung = True
        if events & READY_OUT:
            self.writable = True
            if self.out:
                self._flush()
        if events & READY_IN and not self.closed:
            self.readable = True
            self.advance()

    def advance(self) -> None:
        """Go on with whatever is waited for from the client."""
        if self.closed:
            return
        if self.lingering >= 0:
            self._throw_away()
        elif self.exchange is not None:
            self.exchange.client_readable()
        elif not self.closing:
            self._read_head()

    def read(self) -> bytes | None:
        """What was read before or is there now, None when nothing is, b"" at the end. Raises OSError."""
        if self.inbound:
            data, self.inbound = self.inbound, b""
            return data
        if not self.readable:
            return None
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            self.readable = False
            return None
        if len(data) < READ and self.plain and not self.hung:
            self.readable = False
        return data

    def _read_head(self) -> None:
        """Read until a head is whole, then begin its exchange."""
        head = self.inbound.lstrip(b"\r\n")
        end = head.find(b"\r\n\r\n")
        while end < 0:
            if len(head) > HEAD_MAX:
                self.refuse(BadHead(431, "the head is too long"))
                return
            self.inbound = b""
            try:
                data = self.read()
            except OSError:
                self.abort()
                return
            if data is None:
                self.inbound = head
                return
            if not data:
                self.close()
                return
            if not head:
                self.deadline = self.loop.now + self.traffic.settings.head_s
                data = data.lstrip(b"\r\n")
            seen = max(0, len(head) - 3)
            head += data
            end = head.find(b"\r\n\r\n", seen)
        if end > HEAD_MAX:
            self.refuse(BadHead(431, "the head is too long"))
            return
        self.inbound = head[end + 4 :]
        self._begin(head[: end + 4])

    def _begin(self, head: bytes) -> None:
        if head == HTTP2_PREFACE:
            self._begin_http2(head)
            return
        try:
            request = RequestHead(head)
        except BadHead as error:
            self.refuse(error)
            return
        self.deadline = self.loop.now + self.traffic.settings.idle_s
        self.exchange = exchange = Exchange(self, request)
        exchange.begin()

    def _begin_http2(self, head: bytes) -> None:
        """An HTTP/2 connection goes whole to the target of a gRPC route."""
        route = self.traffic.table.match_grpc(self.server_name)
        self.leave()
        self.proxy.over(self)
        self.proxy.tcp.accept(self.sock, self.source, route, head + self.inbound)

    # Writing

    def write(self, data: bytes) -> None:
        """Send, now or as soon as the client takes it."""
        if self.closed:
            return
        if self.out:
            self.out += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            self.writable = False
            sent = 0
        except OSError:
            self.abort()
            return
        if sent < len(data):
            self.out += memoryview(data)[sent:]

    def _flush(self) -> None:
        try:
            with memoryview(self.out) as waiting:
                sent = self.sock.send(waiting)
            del self.out[:sent]
        except BlockingIOError:
            self.writable = False
            return
        except OSError:
            self.abort()
            return
        if self.exchange is None:
            self.deadline = self.loop.now + self.traffic.settings.idle_s
            if not self.out and self.closing:
                self._finish_writing()
            return
        self.exchange.set_deadline()
        if len(self.out) < OUT_MAX:
            self.exchange.upstream_readable()

    # The end of an exchange

    def exchange_over(self, *, keep: bool) -> None:
        """The exchange has ended; what it wrote may still wait. keep: whether another request may follow."""
        self.exchange = None
        if self.closed:
            return
        if not keep or self.traffic.draining:
            self.closing = True
            if not self.out:
                self._finish_writing()
            return
        self.deadline = self.loop.now + self.traffic.settings.idle_s
        if self.inbound or self.readable:
            self.loop.again(self.advance)

    def _finish_writing(self) -> None:
        """Everything has been sent. A client that still sends would miss it if the connection were closed at once."""
        if not self.inbound and not self.readable and not self.hung and self.lingering < 0:
            self.close()
            return
        self.lingering = max(0, self.lingering)
        self.deadline = self.loop.now + LINGER_S
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._throw_away()

    def _throw_away(self) -> None:
        while True:
            try:
                data = self.read()
            except OSError:
                data = b""
            if data is None:
                return
            self.lingering += len(data)
            if not data or self.lingering > LINGER_MAX:
                self.close()
                return

    def linger(self) -> None:
        """The client has not sent everything: wait for it, in bounds, when the answer has been sent."""
        self.lingering = max(0, self.lingering)

    def refuse(self, error: BadHead) -> None:
        """Answer a head that is no request, and end the connection."""
        self.traffic.counters.add("bad_requests_total")
        self.linger()
        self.closing = True
        self.write(answer(error.status, error.reason, keep_alive=False, body=True))
        if not self.out and not self.closed:
            self._finish_writing()

    def too_late(self) -> None:
        """The deadline has passed."""
        if self.exchange is not None:
            self.exchange.too_late()
        elif self.inbound and not self.closing:
            self.refuse(BadHead(408, "the head did not come in time"))
        else:
            self.close()

    def drain(self) -> None:
        """Close if nothing is under way."""
        if self.exchange is None and not self.out and not self.inbound:
            self.close()

    # Leaving

    def leave(self) -> None:
        """The socket serves something else from now on."""
        self.closed = True
        self.deadline = float("inf")

    def close(self) -> None:
        """Close in order."""
        if not self.closed:
            self.closed = True
            self.loop.forget(self.sock)
            self.sock.close()
            self._end_exchange()
            self.proxy.over(self)

    def abort(self) -> None:
        """Close with a reset, so that the client does not take what it got for everything."""
        if self.tunnel is not None:
            self.tunnel.abort()
        elif not self.closed:
            self.closed = True
            self.loop.forget(self.sock)
            abort_socket(self.sock)
            self._end_exchange()
            self.proxy.over(self)

    def _end_exchange(self) -> None:
        self.out.clear()
        if self.exchange is not None:
            self.exchange.client_gone()


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "attempts",
        "client",
        "dial",
        "kept",
        "over",
        "received",
        "request",
        "request_framing",
        "response",
        "response_framing",
        "response_head",
        "route",
        "sent",
        "started",
        "state",
        "status",
        "target",
        "traffic",
        "tried",
        "upstream",
    )  # fmt: skip

    def __init__(self, client: ClientSession, request: RequestHead) -> None:
        self.client = client
        self.traffic = client.traffic
        self.request = request
        self.request_framing: Framing = request.framing
        self.started = client.loop.now
        self.route: Route | None = None
        self.target: Target | None = None
        self.state: TargetState | None = None
        self.dial: Dial | None = None
        self.upstream: Upstream | None = None
        self.response: ResponseHead | None = None
        self.response_framing: Framing = NO_BODY
        self.response_head = b""
        """The beginning of the answer, while its head is not whole."""
        self.kept: bytes | None = b""
        """What was sent of the request's body; None when that is too much to keep."""
        self.tried: set[str] = set()
        self.attempts = 0
        self.status = 0
        self.received = 0
        self.sent = 0
        self.over = False

    # Where to

    def begin(self) -> None:
        """Find the route, answer what can be answered here, else go to a target."""
        request, client, traffic = self.request, self.client, self.traffic
        settings = traffic.settings
        if settings.redirect_https and not client.secure and settings.https:
            self._redirect_to_tls()
            return
        path = plain_path(request.path)
        route = traffic.table.match(request.host, path, tls=client.secure)
        if route is None:
            traffic.counters.add("no_route_total")
            self.respond(settings.no_route_status, "no route for this host and path")
            return
        self.route = route
        if not route.targets:
            traffic.counters.add("no_target_total")
            self.respond(503, "no instance of the service is healthy")
            return
        self._go(traffic.pick(route, self.tried))

    def _redirect_to_tls(self) -> None:
        port = self.traffic.settings.https
        host = split_host(self.request.host)[0]
        place = host if port == 443 else f"{host}:{port}"
        url = f"https://{place}{self.request.target.decode('latin-1')}"
        self.respond(308, "use TLS", (("Location", url),))

    def _go(self, target: Target | None) -> None:
        """Check what the target's tag demands, then send the request there."""
        if target is None:
            self._nobody_answers()
            return
        self.target = target
        options = target.options
        if not may_pass(self.client.source.address, options):
            self.traffic.counters.add("denied_total")
            self.respond(403, "this address may not pass")
        elif options.auth and not self._is_known(options.auth):
            self.traffic.counters.add("denied_total")
            self.respond(
                401, "a name and a password are needed", (("WWW-Authenticate", f'Basic realm="{options.auth}"'),)
            )
        elif options.redirect is not None:
            path = self.request.target.decode("latin-1")
            for prefix in options.strip:
                path = path.removeprefix(prefix)
            url = location(options.redirect, self.request.host, path)
            self.respond(options.redirect.code, "see there", (("Location", url),))
        else:
            self._attempt(target)

    def _is_known(self, scheme: str) -> bool:
        passwords = self.client.proxy.passwords.get(scheme)
        return passwords is not None and knows(passwords, self.request.special.get(b"authorization", b""))

    def _attempt(self, target: Target) -> None:
        self.attempts += 1
        self.tried.add(target.key)
        self.state = self.traffic.picker.began(target.key)
        upstream = self.traffic.upstreams.take(target, sure=not self.request.may_repeat)
        if upstream is not None:
            self._use(upstream)
            return
        self.dial = self.traffic.connector.connect(target, self._connected)

    def _connected(self, sock: socket.socket | None, reason: str) -> None:
        target = self.target
        assert target is not None
        self.dial = None
        if sock is None:
            self._failed(reason, refused=True, again=True)
            return
        self.traffic.picker.worked(target.key)
        self._use(self.traffic.upstreams.open(sock, target))

    def _failed(self, reason: str, *, refused: bool, again: bool) -> None:
        """This target did not answer; try another, the same one only when it is the last."""
        target = self.target
        assert target is not None
        if refused:
            self.traffic.refused(target, reason)
        self._leave_target()
        if self.over or self.client.closed:
            return
        if not again or self.attempts >= ATTEMPTS_MAX or self.route is None:
            self._nobody_answers()
            return
        self.traffic.counters.add("retries_total")
        if not refused:
            # A connection that had been kept was closed: that says nothing about the target.
            self.tried.discard(target.key)
        self._go(self.traffic.pick(self.route, self.tried))

    def _nobody_answers(self) -> None:
        self.traffic.counters.add("no_target_total")
        self.respond(502, "no instance of the service answers")

    def _leave_target(self) -> None:
        if self.state is not None:
            self.traffic.picker.ended(self.state)
            self.state = None
        if self.upstream is not None:
            self.upstream.close()
            self.upstream = None

    # The request's way

    def _use(self, upstream: Upstream) -> None:
        """Send the head, and what has come of the body."""
        request, target = self.request, self.target
        assert target is not None
        self.upstream = upstream
        upstream.exchange = self
        self.set_deadline()
        path, prefix = written_target(request.target, target.options)
        host = target.options.host
        named = target.key if host == "dst" else host or request.host or target.key
        forwarded = self.client.facts.headers(request, prefix)
        head = written_request(request, path, named.encode("latin-1", "replace"), forwarded)
        upstream.write(head + self.kept if self.kept else head)
        if not self.request_framing.done:
            self.client_readable()
        if upstream.reused and upstream.readable and self.upstream is upstream:
            self.upstream_readable()

    def client_readable(self) -> None:
        """Pass the request's body on, as far as the target takes it."""
        upstream, client = self.upstream, self.client
        while not self.request_framing.done:
            if upstream is None or upstream.out or upstream is not self.upstream:
                return
            try:
                data = client.read()
            except OSError:
                client.abort()
                return
            if data is None:
                return
            if not data:
                # The client ended in the middle of its body.
                client.abort()
                return
            self._pass(data, upstream)
            if self.over:
                return

    def _pass(self, data: bytes, upstream: Upstream) -> None:
        try:
            size = self.request_framing.feed(data)
        except ValueError as error:
            self._refuse_body(str(error))
            return
        part = data[:size]
        self.client.inbound = data[size:]
        self.received += size
        if self.kept is not None:
            self.kept = self.kept + part if len(self.kept) + size <= KEPT_MAX else None
        self.set_deadline()
        upstream.write(part)

    def _refuse_body(self, reason: str) -> None:
        self.traffic.counters.add("bad_requests_total")
        self._leave_target()
        if self.response is None:
            self.respond(400, reason)
        else:
            self.client.abort()

    def set_deadline(self) -> None:
        """Something has moved on: whoever is waited for now has its time again."""
        settings, client = self.traffic.settings, self.client
        waits_for_target = not client.out and (self.request_framing.done or self.response is not None)
        client.deadline = client.loop.now + (settings.response_s if waits_for_target else settings.idle_s)

    # The answer's way

    def upstream_writable(self) -> None:
        """The target has taken everything so far."""
        if not self.request_framing.done:
            self.client_readable()

    def upstream_readable(self) -> None:
        """Pass the answer on, as far as the client takes it."""
        client, upstream = self.client, self.upstream
        while upstream is not None and self.upstream is upstream and len(client.out) < OUT_MAX:
            try:
                data = upstream.read()
            except OSError as error:
                self.upstream_ended(error.strerror or str(error))
                return
            if data is None:
                return
            if not data:
                self.upstream_ended("closed the connection")
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Bytes of the answer."""
        written = b""
        if self.response is None:
            self.response_head += data
            try:
                heads = self._read_heads()
            except BadHead as error:
                self._bad_answer(error)
                return
            if heads is None:
                return
            written, data = heads
        try:
            size = self.response_framing.feed(data)
        except ValueError as error:
            self._broken_off(str(error))
            return
        whole = written + data[:size] if written else data if size == len(data) else data[:size]
        self.sent += len(whole)
        self.client.write(whole)
        if self.response_framing.done and not self.over:
            self._complete(left_over=size < len(data))
        elif not self.over:
            self.set_deadline()

    def _read_heads(self) -> tuple[bytes, bytes] | None:
        """The head for the client, informational ones before it included, and what follows; None while it is not whole.

        Raises BadHead.
        """
        written = b""
        while True:
            data = self.response_head
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > HEAD_MAX:
                if len(data) > HEAD_MAX:
                    raise BadHead(502, "the head of the answer is too long")
                if written:
                    self.client.write(written)
                return None
            response = ResponseHead(data[: end + 4], self.request.method)
            self.response_head = b""
            rest = data[end + 4 :]
            if response.status == 101:
                self._change_protocol(response, written, rest)
                return None
            if response.status >= 200:
                return written + self._begin_answer(response), rest
            if self.request.minor:
                written += response.written(b"")
            self.response_head = rest

    def _begin_answer(self, response: ResponseHead) -> bytes:
        if type(response.framing) is Chunked and not self.request.minor:
            raise BadHead(502, "the instance sent chunks to a client of HTTP/1.0")
        self.response = response
        self.status = response.status
        self.response_framing = response.framing
        if type(response.framing) is UntilClose or self.traffic.draining:
            self.request.keep_alive = False
        if not self.request.keep_alive:
            return response.written(b"Connection: close\r\n")
        return response.written(b"" if self.request.minor else b"Connection: keep-alive\r\n")

    def upstream_ended(self, reason: str) -> None:
        """The target ended the connection."""
        if self.over:
            return
        if self.response is None:
            reused = self.upstream is not None and self.upstream.reused
            silent = not self.response_head
            again = silent and self.kept is not None and self.request.may_repeat
            self._failed(reason, refused=not reused, again=again)
        elif type(self.response_framing) is UntilClose:
            self.request.keep_alive = False
            self._leave_target()
            self._finish()
        else:
            self._broken_off(reason)

    def _broken_off(self, reason: str) -> None:
        """The answer has begun and cannot be completed."""
        assert self.target is not None
        log.info("answer broken off service=%s target=%s reason=%r", self.target.service, self.target.key, reason)
        self.traffic.counters.of(self.target.service).failed += 1
        self._leave_target()
        self.client.abort()

    def _bad_answer(self, error: BadHead) -> None:
        assert self.target is not None
        log.warning(
            "answer malformed service=%s target=%s reason=%r", self.target.service, self.target.key, error.reason
        )
        self._leave_target()
        self.respond(502, f"the answer of the instance is malformed: {error.reason}")

    def _complete(self, *, left_over: bool) -> None:
        """The whole answer has been passed on."""
        upstream, response = self.upstream, self.response
        assert upstream is not None
        assert response is not None
        if self.state is not None:
            self.traffic.picker.ended(self.state)
            self.state = None
        self.upstream = None
        reusable = response.keep_alive and not left_over and self.request_framing.done and self.request.minor
        if reusable and not upstream.out and not upstream.broken:
            self.traffic.upstreams.give(upstream)
        else:
            upstream.close()
        if not self.request_framing.done:
            self.request.keep_alive = False
            self.client.linger()
        self._finish()

    def _change_protocol(self, response: ResponseHead, written: bytes, rest: bytes) -> None:
        """From here on the two only exchange bytes."""
        client, upstream = self.client, self.upstream
        assert upstream is not None
        if not self.request.upgrade:
            raise BadHead(502, "the instance changed the protocol without being asked")
        self.status = 101
        self.traffic.counters.add("websockets_total")
        named = b"Connection: Upgrade\r\nUpgrade: " + (response.upgrade or self.request.upgrade) + b"\r\n"
        late = bytes(client.out) + written + response.written(named) + rest
        early = bytes(upstream.out) + client.inbound
        upstream.exchange, upstream.closed, self.upstream = None, True, None
        client.out.clear()
        client.leave()
        client.tunnel = Tunnel(
            client.loop, self.traffic.pipes, client.sock, upstream.sock, self._tunnel_ended, early, late
        )
        client.tunnel.begin()

    def _tunnel_ended(self, tunnel: Tunnel, aborted: bool) -> None:
        self.received, self.sent = tunnel.client.carried, tunnel.target.carried
        self.client.tunnel = None
        self.client.exchange = None
        self._leave_target()
        self._note()
        self.client.proxy.over(self.client)

    # Ends

    def respond(self, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """An answer of our own."""
        request, client = self.request, self.client
        self.status = status
        keep = request.keep_alive and request.framing.done and not self.traffic.draining and bool(request.minor)
        request.keep_alive = keep
        if not request.framing.done:
            client.linger()
        content = answer(status, text, headers, keep_alive=keep, body=request.method != b"HEAD")
        self.sent = len(content)
        client.write(content)
        self._finish()

    def too_late(self) -> None:
        """Whoever is waited for takes too long."""
        if self.dial is not None:
            self.client.deadline = self.client.loop.now + self.traffic.settings.connect_s
        elif self.response is not None or self.client.out:
            self.client.abort()
        elif self.request_framing.done:
            self._leave_target()
            self.respond(504, "the instance did not answer in time")
        else:
            self._leave_target()
            self.traffic.counters.add("bad_requests_total")
            self.respond(408, "the body did not come in time")

    def client_gone(self) -> None:
        """The client's connection has ended before the answer."""
        if self.over:
            return
        self.status = self.status or CLIENT_GONE
        if self.dial is not None:
            self.dial.cancel()
            self.dial = None
        self._leave_target()
        self.over = True
        self._note()

    def _finish(self) -> None:
        if self.over:
            return
        self.over = True
        self._note()
        self.client.exchange_over(keep=self.request.keep_alive)

    def _note(self) -> None:
        """Count the request, and log it where that is wanted."""
        target = self.target
        seconds = self.client.loop.now - self.started
        if target is not None:
            counters = self.traffic.counters.of(target.service)
            counters.served(self.status, seconds)
            counters.received += self.received
            counters.sent += self.sent
        if (access_log := self.traffic.access_log) is not None:
            access_log.note(self._logged(seconds))

    def _logged(self, seconds: float) -> Logged:
        request, target, client = self.request, self.target, self.client
        return Logged(
            client=client.source,
            scheme=client.facts.scheme,
            method=request.method.decode("latin-1"),
            host=request.host,
            target=request.target.decode("latin-1"),
            minor=request.minor,
            headers=request.special,
            status=self.status,
            size=self.sent,
            seconds=seconds,
            upstream=target.key if target is not None else "",
            service=target.service if target is not None else "",
        )
