"""HTTP/1 connections of clients: heads in, answers out, one exchange at a time.

    HttpProxy       all of them
    ClientSession   one client's connection; reads heads, writes what its exchange gives it
    Exchange        one request: its target, what was sent of it, what came back (`exchange`)
    Upstream        one connection to a target (`upstreams`)

Nothing is read faster than it can be passed on, so a connection holds at most a head, one read and CLIENT_OUT_MAX.
"""

import socket
from typing import Final

from lepa.ingress.access import Passwords
from lepa.ingress.event_loop import HUNG_UP, READABLE, READY_IN, READY_OUT
from lepa.ingress.exchange import CLIENT_OUT_MAX, Exchange
from lepa.ingress.heads import HEAD_MAX, BadHead, ClientFacts, RequestHead, answer
from lepa.ingress.proxy_protocol import Source
from lepa.ingress.tcp_proxy import TcpProxy
from lepa.ingress.traffic import Traffic
from lepa.ingress.tunnel import Tunnel

READ: Final = 65_536
FIRST_READ: Final = 4_096
LINGER_S = 2.0
"""How long the rest of a refused body is read and thrown away, so that the client sees the answer."""
LINGER_MAX = 1 << 20
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
        watched = self.traffic.loop.is_watched(client)
        self.traffic.open += 1
        session = ClientSession(self, client, source, secure=secure, server_name=server_name)
        self.sessions.add(session)
        self.traffic.loop.hand_over(client, session)
        if watched:
            # What came together with a handshake or a PROXY header gives no further event, an end included.
            session.unsure = True
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
        "proxy", "readable", "secure", "server_name", "sock", "source", "traffic", "tunnel", "unsure", "writable",
    )  # fmt: skip

    def __init__(
        self, proxy: HttpProxy, sock: socket.socket, source: Source, *, secure: bool, server_name: str
    ) -> None:
        self.proxy = proxy
        self.traffic = proxy.traffic
        self.loop = proxy.traffic.loop
        self.sock = sock
        self.secure = secure
        self.server_name = server_name
        self.plain = type(sock) is socket.socket
        self.source = source
        self.facts = ClientFacts(source.address, source.local_address, source.local_port, secure=secure)
        self.inbound = b""
        self.out = bytearray()
        self.readable = False
        self.writable = True
        self.hung = False
        self.unsure = False
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
            if self.exchange is None and self.lingering < 0 and not self.closing:
                self._read_head()
            else:
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

    def read(self, size: int = READ) -> bytes | None:
        """What was read before or is there now, None when nothing is, b"" at the end. Raises OSError."""
        if self.inbound:
            data, self.inbound = self.inbound, b""
            return data
        if not self.readable:
            return None
        try:
            data = self.sock.recv(size)
        except BlockingIOError:
            self.readable = self.unsure = False
            return None
        if len(data) < size and self.plain and not self.hung and not self.unsure:
            self.readable = False
        return data

    def _read_head(self) -> None:
        """Read until a head is whole, then begin its exchange."""
        head = self.inbound
        if head:
            head = head.lstrip(b"\r\n")
            self.inbound = b""
        end = head.find(b"\r\n\r\n")
        while end < 0:
            if len(head) > HEAD_MAX:
                break
            try:
                data = self.read(FIRST_READ)
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
                if (known := self.traffic.memo.requests.get(data)) is not None:
                    self._begin(known)
                    return
                self.deadline = self.loop.now + self.traffic.settings.head_s
                data = data.lstrip(b"\r\n")
            seen = max(0, len(head) - 3)
            head += data
            end = head.find(b"\r\n\r\n", seen)
        if end < 0 or end > HEAD_MAX:
            self.refuse(BadHead(431, "the head is too long"))
            return
        self.inbound = head[end + 4 :]
        self._parse(head[: end + 4])

    def _parse(self, head: bytes) -> None:
        if head == HTTP2_PREFACE:
            self._hand_over_http2()
            return
        try:
            request = self.traffic.memo.request(head)
        except BadHead as error:
            self.refuse(error)
        else:
            self._begin(request)

    def _begin(self, request: RequestHead) -> None:
        self.exchange = exchange = Exchange(self, request)
        exchange.begin()

    def _hand_over_http2(self) -> None:
        """An HTTP/2 connection goes whole to the target of a gRPC route."""
        route = self.traffic.table.match_grpc(self.server_name)
        self._leave()
        self.proxy.over(self)
        self.proxy.tcp.accept(self.sock, self.source, route, HTTP2_PREFACE + self.inbound)

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
        if len(self.out) < CLIENT_OUT_MAX:
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
        self.deadline = self.loop.now + self.traffic.idle_s
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

    # Leaving

    def drain(self) -> None:
        """Close if nothing is under way."""
        if self.exchange is None and not self.out and not self.inbound:
            self.close()

    def change_protocol(self, upstream: socket.socket, answered: bytes, waiting: bytes) -> Tunnel:
        """From here on client and target only exchange bytes. answered: what goes to the client first; waiting: to the
        target."""
        late = bytes(self.out) + answered
        self.out.clear()
        self._leave()
        assert self.exchange is not None
        ended = self.exchange.tunnel_ended
        early = waiting + self.inbound
        self.tunnel = Tunnel(self.loop, self.traffic.pipes, self.sock, upstream, ended, early, late)
        return self.tunnel

    def _leave(self) -> None:
        """The socket serves something else from now on."""
        self.closed = True
        self.deadline = float("inf")

    def close(self) -> None:
        """Close in order."""
        if not self.closed:
            self.closed = True
            self.loop.close_socket(self.sock)
            self._end_exchange()

    def abort(self) -> None:
        """Close with a reset, so that the client does not take what it got for everything."""
        if self.tunnel is not None:
            self.tunnel.abort()
        elif not self.closed:
            self.closed = True
            self.loop.abort_socket(self.sock)
            self._end_exchange()

    def _end_exchange(self) -> None:
        self.out.clear()
        if self.exchange is not None:
            self.exchange.client_gone()
            self.exchange = None
        self.proxy.over(self)
