"""One HTTP request on its way to a target, and the answer on its way back, both streamed.

A request is tried with another target when one takes no connection, and when one ends the connection without a word and
the request may be repeated: a method that changes nothing twice, of whose body everything sent is still at hand. An
answer that breaks off breaks the client's connection off too, for its length has been told already.
"""

import logging
import socket
from typing import TYPE_CHECKING, Final

from lepa.ingress.access import knows, may_pass
from lepa.ingress.access_log import Logged
from lepa.ingress.connector import Dial
from lepa.ingress.framing import CHUNKED, NO_BODY, UNTIL_CLOSE, Framing, framing_of
from lepa.ingress.heads import HEAD_MAX, BadHead, RequestHead, ResponseHead, answer
from lepa.ingress.picker import TargetState
from lepa.ingress.request_target import written_target
from lepa.ingress.routes import Route, Target, location, split_host
from lepa.ingress.tcp_proxy import ATTEMPTS_MAX
from lepa.ingress.tunnel import Tunnel
from lepa.ingress.upstreams import Upstream

if TYPE_CHECKING:
    from lepa.ingress.http_proxy import ClientSession

log = logging.getLogger(__name__)

CLIENT_OUT_MAX: Final = 262_144
"""Bytes that wait for a slow client before its target is read no further."""
KEPT_MAX: Final = 65_536
"""Bytes of a request's body that are kept, so that another target can be tried."""
CLIENT_GONE = 499


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "attempts", "client", "dial", "keep", "kept", "over", "received", "request", "request_framing", "response",
        "response_framing", "response_head", "route", "sent", "started", "state", "status", "target", "traffic",
        "tried", "upstream",
    )  # fmt: skip

    def __init__(self, client: "ClientSession", request: RequestHead) -> None:
        self.client = client
        self.traffic = client.traffic
        self.request = request
        self.request_framing: Framing = framing_of(request.body) if request.body else NO_BODY
        self.keep = request.keep_alive
        """Whether the client's connection stays for another request."""
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
        self.tried: tuple[str, ...] = ()
        self.attempts = 0
        self.status = 0
        self.received = 0
        self.sent = 0
        self.over = False

    # Where to

    def begin(self) -> None:
        """Find the route, answer what can be answered here, else go to a target."""
        request, client, traffic = self.request, self.client, self.traffic
        if traffic.redirects and not client.secure:
            self._redirect_to_tls()
            return
        route = traffic.route_of(request, tls=client.secure)
        if route is None:
            self._no_route()
            return
        self.route = route
        target = traffic.picker.pick(route, self.started)
        if target is None:
            traffic.counters.add("no_target_total")
            self.respond(503, "no instance of the service is healthy")
        elif route.guarded:
            self._go(target, route)
        else:
            self.target = target
            self._attempt(target)

    def _no_route(self) -> None:
        traffic = self.traffic
        traffic.counters.add("no_route_total")
        if traffic.knows_routes:
            self.respond(traffic.settings.no_route_status, "no route for this host and path")
        else:
            self.respond(503, "the routes are not known yet")

    def _redirect_to_tls(self) -> None:
        port = self.traffic.settings.https
        host = split_host(self.request.host)[0]
        place = host if port == 443 else f"{host}:{port}"
        url = f"https://{place}{self.request.target.decode('latin-1')}"
        self.respond(308, "use TLS", (("Location", url),))

    def _go(self, target: Target, route: Route) -> None:
        """Check what the target's tag demands, then send the request there."""
        self.target = target
        if not route.guarded:
            self._attempt(target)
            return
        options = target.options
        if not may_pass(self.client.source.address, options):
            self.traffic.counters.add("denied_total")
            self.respond(403, "this address may not pass")
        elif options.auth and not self._is_known(options.auth):
            self.traffic.counters.add("denied_total")
            challenge = ("WWW-Authenticate", f'Basic realm="{options.auth}"')
            self.respond(401, "a name and a password are needed", (challenge,))
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
        traffic = self.traffic
        self.attempts += 1
        self.state = traffic.picker.began(target.key)
        upstream = traffic.upstreams.take(target, sure=not self.request.may_repeat)
        if upstream is not None:
            self._use(upstream, target)
        else:
            self.dial = traffic.connector.connect(target, self._connected)
            self.set_deadline()

    def _connected(self, sock: socket.socket | None, reason: str) -> None:
        target = self.target
        assert target is not None
        self.dial = None
        if sock is None:
            self._failed(reason, refused=True, again=True)
        else:
            self.traffic.picker.worked(target.key)
            self._use(self.traffic.upstreams.open(sock, target), target)

    def _failed(self, reason: str, *, refused: bool, again: bool) -> None:
        """This target did not answer; try another. refused: it is to blame, not the age of a connection."""
        target, route = self.target, self.route
        assert target is not None
        assert route is not None
        if refused:
            self.tried += (target.key,)
            self.traffic.refused(target, reason)
        else:
            self.traffic.upstreams.close_idle(target)
        self._leave_target()
        if self.over or self.client.closed:
            return
        tries = again and self.attempts < ATTEMPTS_MAX
        other = self.traffic.picker.pick(route, self.client.loop.now, self.tried) if tries else None
        if other is None:
            self.traffic.counters.add("no_target_total")
            self.respond(502, "no instance of the service answers")
        else:
            self.traffic.counters.add("retries_total")
            self._go(other, route)

    def _leave_target(self) -> None:
        if self.state is not None:
            self.traffic.picker.ended(self.state)
            self.state = None
        if self.upstream is not None:
            self.upstream.close()
            self.upstream = None

    # The request's way

    def _use(self, upstream: Upstream, target: Target) -> None:
        """Send the head, and what has come of the body."""
        request = self.request
        self.upstream = upstream
        upstream.exchange = self
        self.response_head = b""
        head = request.wire(target.options, target.key) + self.client.facts.lines(request)
        upstream.write(head + self.kept if self.kept else head)
        self.set_deadline()
        if not self.request_framing.done:
            self.client_readable()
        if upstream.readable and self.upstream is upstream:
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
        part = data
        if size < len(data):
            part, self.client.inbound = data[:size], data[size:]
        self.received += size
        if self.kept is not None:
            self.kept = self.kept + part if len(self.kept) + size <= KEPT_MAX else None
        upstream.write(part)
        self.set_deadline()

    def _refuse_body(self, reason: str) -> None:
        self.traffic.counters.add("bad_requests_total")
        self._leave_target()
        if self.response is None:
            self.respond(400, reason)
        else:
            self.client.abort()

    def set_deadline(self) -> None:
        """Something has moved on: whoever is waited for now has its time again."""
        traffic, client = self.traffic, self.client
        waits_for_target = not client.out and (self.request_framing.done or self.response is not None)
        client.deadline = traffic.loop.now + (traffic.response_s if waits_for_target else traffic.idle_s)

    # The answer's way

    def upstream_writable(self) -> None:
        """The target has taken everything so far."""
        if not self.request_framing.done:
            self.client_readable()

    def upstream_readable(self) -> None:
        """Pass the answer on, as far as the client takes it."""
        client, upstream = self.client, self.upstream
        while upstream is not None and self.upstream is upstream and len(client.out) < CLIENT_OUT_MAX:
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
            if self.response is not None:
                self._pass_back(b"", data)
            else:
                self._take_head(data)

    def _take_head(self, data: bytes) -> None:
        """The answer begins, with informational heads before the last one where a target sends some."""
        written = b""
        if self.response_head:
            data = self.response_head + data
        while (end := data.find(b"\r\n\r\n") + 4) > 3 and end <= HEAD_MAX:
            try:
                response = self.traffic.memo.response(data[:end], self.request.method)
                if response.status >= 200:
                    head = self._begin_answer(response)
                    if response.body == len(data) - end:
                        self._pass_back_whole(written + head + data[end:])
                        return
                    if response.body:
                        self.response_framing = framing_of(response.body)
                    self._pass_back(written + head if written else head, data[end:])
                    return
                if response.status == 101:
                    self._change_protocol(response, written, data[end:])
                    return
            except BadHead as error:
                self._bad_answer(error)
                return
            if self.request.minor:
                written += response.kept
            data = data[end:]
        if len(data) > HEAD_MAX:
            self._bad_answer(BadHead(502, "its head is too long"))
            return
        self.response_head = data
        if written:
            self.client.write(written)
        self.set_deadline()

    def _begin_answer(self, response: ResponseHead) -> bytes:
        """The head for the client. Raises BadHead."""
        body, minor = response.body, self.request.minor
        if body == CHUNKED and not minor:
            raise BadHead(502, "it sent chunks to a client of HTTP/1.0")
        self.response = response
        self.status = response.status
        if not self.keep or body == UNTIL_CLOSE or self.traffic.draining:
            self.keep = False
            return response.closing
        return response.kept if minor else response.written(b"Connection: keep-alive\r\n")

    def _pass_back_whole(self, answer: bytes) -> None:
        """An answer that came in one piece, as most do."""
        self.sent = len(answer)
        self.client.write(answer)
        if not self.over:
            self._complete(left_over=False)

    def _pass_back(self, head: bytes, data: bytes) -> None:
        """The head, if it has not been sent yet, and some of the body."""
        try:
            size = self.response_framing.feed(data)
        except ValueError as error:
            self._broken_off(str(error))
            return
        part = data if size == len(data) else data[:size]
        if head:
            part = head + part
        self.sent += len(part)
        self.client.write(part)
        if self.over:
            return
        if self.response_framing.done:
            self._complete(left_over=size < len(data))
        else:
            self.set_deadline()

    def upstream_ended(self, reason: str) -> None:
        """The target ended the connection."""
        if self.over:
            return
        if self.response is None:
            reused = self.upstream is not None and self.upstream.reused
            again = not self.response_head and self.kept is not None and self.request.may_repeat
            self._failed(reason, refused=not reused, again=again)
        elif self.response.body == UNTIL_CLOSE:
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
        target = self.target
        assert target is not None
        log.warning("answer malformed service=%s target=%s reason=%r", target.service, target.key, error.reason)
        self._leave_target()
        self.response = None
        self.respond(502, f"the answer of the instance is malformed: {error.reason}")

    def _complete(self, *, left_over: bool) -> None:
        """The whole answer has been passed on."""
        upstream, response, state = self.upstream, self.response, self.state
        assert upstream is not None
        assert response is not None
        if state is not None:
            state.open -= 1
            self.state = None
        self.upstream = None
        sent = self.request_framing.done
        if not sent:
            self.keep = False
            self.client.linger()
        usable = sent and response.keep_alive and not left_over and self.request.minor
        if usable and not upstream.out and not upstream.broken:
            self.traffic.upstreams.give(upstream)
        else:
            upstream.close()
        self._finish()

    def _change_protocol(self, response: ResponseHead, written: bytes, rest: bytes) -> None:
        """From here on the two only exchange bytes. Raises BadHead."""
        upstream = self.upstream
        assert upstream is not None
        if not self.request.upgrade:
            raise BadHead(502, "it changed the protocol without being asked")
        self.status = 101
        self.traffic.counters.add("websockets_total")
        named = b"Connection: Upgrade\r\nUpgrade: " + (response.upgrade or self.request.upgrade) + b"\r\n"
        waiting = bytes(upstream.out)
        self.upstream = None
        sock = upstream.leave()
        self.client.change_protocol(sock, written + response.written(named) + rest, waiting).begin()

    def tunnel_ended(self, tunnel: Tunnel, aborted: bool) -> None:
        """The two have said their last to each other."""
        self.received, self.sent = tunnel.client.carried, tunnel.target.carried
        self.client.tunnel = None
        self._leave_target()
        self.over = True
        self._note()
        self.client.exchange = None
        self.client.proxy.over(self.client)

    # Ends

    def respond(self, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """An answer of our own."""
        request, client = self.request, self.client
        self.status = status
        self.keep = self.keep and not request.body and not self.traffic.draining and bool(request.minor)
        if not self.request_framing.done:
            client.linger()
        content = answer(status, text, headers, keep_alive=self.keep, body=request.method != b"HEAD")
        self.sent = len(content)
        client.write(content)
        self._finish()

    def too_late(self) -> None:
        """Whoever is waited for takes too long."""
        if self.dial is not None:
            # The dial has its own, shorter time.
            self.set_deadline()
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
        self.over = True
        self.status = self.status or CLIENT_GONE
        if self.dial is not None:
            self.dial.cancel()
            self.dial = None
        self._leave_target()
        self._note()

    def _finish(self) -> None:
        if not self.over:
            self.over = True
            self._note()
            self.client.exchange_over(keep=self.keep)

    def _note(self) -> None:
        """Count the request, and log it where that is wanted."""
        target, traffic = self.target, self.traffic
        seconds = traffic.loop.now - self.started
        if target is not None:
            counters = traffic.counters.services.get(target.service) or traffic.counters.of(target.service)
            counters.served(self.status, seconds, self.received, self.sent)
        if (access_log := traffic.access_log) is not None:
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
            upstream_scheme="https" if target is not None and target.options.tls else "http",
            upstream_target=written_target(request.target, target.options)[0].decode("latin-1") if target else "",
            service=target.service if target is not None else "",
        )
