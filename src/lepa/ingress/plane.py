"""The part of an ingress that carries traffic: listeners, proxies and one loop, on a thread of its own.

`publish` hands it a new table from any thread; the table is swapped in with one assignment, then listeners are opened
and closed to fit, and connections whose target has left are ended. `stop` lets what is under way come to its end.
"""

import errno
import logging
import socket
import ssl
from functools import partial
from threading import Event, Thread

from lepa.ingress.access import Passwords
from lepa.ingress.access_log import AccessLog
from lepa.ingress.certificates import Certificates
from lepa.ingress.client_hello import HELLO_MAX, server_name
from lepa.ingress.connector import tune
from lepa.ingress.event_loop import READABLE, EventLoop
from lepa.ingress.http_proxy import HttpProxy
from lepa.ingress.proxy_protocol import SIGNATURE, V2_MAX, Source, read_header
from lepa.ingress.route_spec import Notice
from lepa.ingress.routes import Route, RouteTable, Target
from lepa.ingress.settings import IngressSettings, Listener
from lepa.ingress.tcp_proxy import TcpProxy
from lepa.ingress.tls_socket import TlsSocket
from lepa.ingress.traffic import Traffic
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, conflict, invalid

log = logging.getLogger(__name__)

BACKLOG = 1_024
ACCEPTS_MAX = 64
"""Connections that a listener accepts before others get their turn."""
PREFACE_MAX = HELLO_MAX + V2_MAX + len(SIGNATURE) + 4
STOP_MARGIN_S = 5.0
EVERYWHERE = {"0.0.0.0", "::"}
LISTENERS_MAX = 1_000
"""Ports that tags may open."""
NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class _Door:
    """One listening socket."""

    def __init__(self, plane: "Plane", listener: Listener, sock: socket.socket) -> None:
        self.plane = plane
        self.listener = listener
        self.sock = sock
        self.open = False
        own = sock.getsockname()
        self.place = None if own[0] in EVERYWHERE else own
        """Where every client connects to; None when the socket listens on several addresses."""

    def ready(self, events: int) -> None:
        """Clients have connected."""
        traffic = self.plane.traffic
        for _ in range(ACCEPTS_MAX):
            if traffic.open >= traffic.settings.connections_max:
                self.pause()
                return
            try:
                client, address = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    log.warning("ingress is out of descriptors port=%d", self.listener.port)
                    self.pause()
                    return
                continue
            client.setblocking(False)
            traffic.counters.totals["connections_total"] += 1
            try:
                self.plane.welcome(self, client, address)
            except OSError:
                # The client has gone already.
                client.close()

    def abort(self) -> None:
        """A bug in `welcome`: the listener stays."""

    def resume(self) -> None:
        """Accept."""
        if not self.open:
            self.open = True
            self.plane.loop.watch(self.sock, self, READABLE)

    def pause(self) -> None:
        """Leave clients waiting until there is room again."""
        if self.open:
            self.open = False
            self.plane.loop.forget(self.sock)

    def close(self) -> None:
        """Accept no more."""
        self.pause()
        self.sock.close()


class _Preface:
    """A client of which something must be known before it can be served: a PROXY header, a TLS name, a handshake.

    What comes is looked at without taking it out of the socket, until there is enough.
    """

    __slots__ = ("_client", "_door", "_plane", "_proxied", "_shaking", "_source", "deadline")

    def __init__(self, plane: "Plane", door: _Door, client: socket.socket, source: Source) -> None:
        self._plane = plane
        self._door = door
        self._client = client
        self._source = source
        self._proxied = plane.traffic.settings.proxy_protocol
        self._shaking = False
        self.deadline = plane.loop.now + plane.traffic.settings.head_s

    def ready(self, events: int) -> None:
        """More may have come."""
        try:
            self._go_on()
        except ssl.SSLError as error:
            log.debug("handshake failed client=%s error=%s", self._source.address, error)
            self.refuse()
        except (OSError, ValueError):
            self.refuse()

    def _go_on(self) -> None:
        if self._shaking:
            self._shake()
            return
        try:
            data = self._client.recv(PREFACE_MAX, socket.MSG_PEEK)
        except BlockingIOError:
            return
        if not data:
            self.abort()
            return
        if self._proxied:
            found = read_header(data, self._source)
            if found is None:
                return
            self._source, size = found
            self._client.recv(size)
            self._proxied, data = False, data[size:]
        self._choose(data)

    def _choose(self, data: bytes) -> None:
        """The PROXY header is through: what is next depends on the port."""
        plane, kind = self._plane, self._door.listener.kind
        if kind == "http" or kind == "tcp":
            self._leave()
            plane.serve(self._door, self._client, self._source)
            return
        if kind == "tcp+sni" or plane.traffic.table.sni:
            name = server_name(data)
            if name is None:
                return
            route = plane.traffic.table.match_sni(name)
            if route is not None or kind == "tcp+sni":
                self._leave()
                plane.tcp.accept(self._client, self._source, route)
                return
        self._begin_tls()

    def _begin_tls(self) -> None:
        context = self._plane.certificates.context()
        if context is None:
            raise ValueError("no certificate")
        self._client = context.wrap_socket(self._client, server_side=True, do_handshake_on_connect=False)
        self._shaking = True
        self._shake()

    def _shake(self) -> None:
        client = self._client
        assert isinstance(client, TlsSocket)
        try:
            client.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        self._leave()
        self._plane.http.accept(client, self._source, secure=True, server_name=client.asked_for)

    def _leave(self) -> None:
        self._plane.prefaces.discard(self)
        self._plane.traffic.open -= 1

    def refuse(self) -> None:
        """What came is no beginning, or did not come in time."""
        self._plane.traffic.counters.add("bad_requests_total")
        self.abort()

    def abort(self) -> None:
        """Close."""
        if self in self._plane.prefaces:
            self._leave()
            self._plane.loop.close_socket(self._client)


class Plane:
    """One ingress's traffic. passwords: of schemes that tags name. seed: for the random strategy."""

    def __init__(
        self, settings: IngressSettings, clock: Clock, seed: int = 1, passwords: dict[str, Passwords] | None = None
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.loop = EventLoop(clock)
        log_to = settings.access_log
        self._access_log = AccessLog(log_to, settings.access_format, clock) if log_to else None
        self.traffic = Traffic(self.loop, settings, seed, self._access_log)
        self.tcp = TcpProxy(self.traffic)
        self.http = HttpProxy(self.traffic, self.tcp, passwords)
        self.certificates = Certificates(settings.certificates, self._speaks_grpc)
        self.prefaces: set[_Preface] = set()
        self.problems: tuple[str, ...] = ()
        """Ports that tags ask for and that cannot be had."""
        self._doors: dict[Listener, _Door] = {}
        self._thread = Thread(target=self._run, name="ingress", daemon=True)
        self._ended = Event()
        self.loop.every_sweep(self._sweep)

    # Life, from any thread

    def start(self) -> None:
        """Take the ports of the settings and begin. Raises LepaError when a port cannot be had."""
        self.certificates.refresh()
        try:
            for listener in (*self.settings.listeners(), *_static(self.settings)):
                self._open(listener)
        except BaseException:
            self._close_doors()
            self.loop.close()
            raise
        self._thread.start()

    def publish(self, table: RouteTable) -> None:
        """Route by `table` from now on."""
        self.loop.call(partial(self._swap, table))

    def drain(self) -> None:
        """Accept no more, and end connections as soon as nothing is under way on them."""
        self.loop.call(self._drain)

    def stop(self) -> None:
        """Drain for at most `drain_s`, then end everything; the thread has ended when it returns."""
        self.drain()
        if not self._ended.wait(self.settings.drain_s):
            self.loop.call(self._end_all)
        self._ended.wait(STOP_MARGIN_S)
        self._thread.join(STOP_MARGIN_S)

    def ports(self) -> dict[str, int]:
        """The port of each kind of listener; of several the last."""
        return {door.listener.kind: door.sock.getsockname()[1] for door in self._doors.values()}

    def notices(self) -> list[Notice]:
        """What is not followed, or not wholly: tags, ports, certificates."""
        own = (*self.problems, *self.certificates.problems)
        return [*(Notice("", "", problem) for problem in own), *self.traffic.table.notices]

    def gauges(self) -> dict[str, float]:
        """What is so now."""
        traffic = self.traffic
        return {
            "routes": len(traffic.table.routes),
            "notices": len(self.notices()),
            "open_connections": traffic.open,
            "idle_upstreams": traffic.upstreams.idle,
            "targets_out": len(traffic.picker.out),
            "bugs": self.loop.bugs,
        }

    # On the loop's thread

    def _run(self) -> None:
        try:
            for door in self._doors.values():
                door.resume()
            self.loop.run()
        finally:
            self._close_doors()
            self.traffic.close()
            self.loop.close()
            if self._access_log is not None:
                self._access_log.close()
            self._ended.set()

    def welcome(self, door: _Door, client: socket.socket, address: tuple[str, int]) -> None:
        """A client has connected."""
        local = door.place or client.getsockname()
        source = Source(_plain(address[0]), address[1], _plain(local[0]), local[1])
        if self.settings.proxy_protocol or door.listener.kind in {"https", "tcp+sni"}:
            preface = _Preface(self, door, client, source)
            self.prefaces.add(preface)
            self.traffic.open += 1
            self.loop.watch(client, preface)
        else:
            self.serve(door, client, source)

    def serve(self, door: _Door, client: socket.socket, source: Source) -> None:
        """Hand a client to its proxy."""
        listener = door.listener
        if listener.kind == "http":
            self.http.accept(client, source)
        else:
            self.tcp.accept(client, source, self._route(listener))

    def _route(self, listener: Listener) -> Route | None:
        ports = self.traffic.table.ports
        own = "" if listener.address == self.settings.address else listener.address
        return ports.get((own, listener.port))

    def _swap(self, table: RouteTable) -> None:
        self.traffic.swap(table)
        if self.traffic.draining:
            return
        self._fit_listeners(table)
        if self.settings.close_on_leave:
            self.tcp.end_left(partial(_is_registered, table))

    def _fit_listeners(self, table: RouteTable) -> None:
        kept = {*self.settings.listeners(), *_static(self.settings)}
        named = {Listener("tcp", address or self.settings.address, port) for address, port in table.listeners}
        wanted = kept | (named if self.settings.dynamic else set())
        problems: list[str] = []
        for listener in [listener for listener in self._doors if listener not in wanted]:
            self._doors.pop(listener).close()
            log.info("port closed address=%s port=%d", listener.address, listener.port)
        for listener in sorted(wanted - self._doors.keys(), key=lambda each: (each.address, each.port)):
            if len(self._doors) >= LISTENERS_MAX:
                problems.append(f"port {listener.port}: tags ask for more than {LISTENERS_MAX} ports")
                continue
            try:
                self._open(listener).resume()
            except LepaError as error:
                problems.append(error.message)
            else:
                log.info("port opened address=%s port=%d", listener.address, listener.port)
        for problem in problems:
            if problem not in self.problems:
                log.warning("%s", problem)
        self.problems = tuple(problems)

    def _open(self, listener: Listener) -> _Door:
        family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tune(sock)
            sock.bind((listener.address, listener.port))
            sock.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            sock.close()
            raise _refusal(listener, error) from error
        door = self._doors[listener] = _Door(self, listener, sock)
        return door

    def _close_doors(self) -> None:
        for door in self._doors.values():
            door.close()
        self._doors.clear()

    def _sweep(self) -> None:
        now = self.loop.now
        for preface in [preface for preface in self.prefaces if preface.deadline < now]:
            preface.refuse()
        if self.traffic.open < self.settings.connections_max:
            for door in self._doors.values():
                door.resume()
        if self._access_log is not None:
            self._access_log.flush()
        if self.traffic.draining and not self.traffic.open:
            self.loop.stop()

    def _drain(self) -> None:
        self.traffic.draining = True
        self._close_doors()
        for preface in list(self.prefaces):
            preface.abort()
        self.http.drain()

    def _end_all(self) -> None:
        self.http.end_all()
        self.tcp.end_all()
        self.loop.stop()

    def _speaks_grpc(self, name: str) -> bool:
        return bool(self.traffic.table.grpc) and self.traffic.table.match_grpc(name) is not None


def _static(settings: IngressSettings) -> list[Listener]:
    """The ports that the settings give to services."""
    return [Listener("tcp", each.address or settings.address, each.port) for each in settings.rules().static]


def _is_registered(table: RouteTable, route: Route, target: Target) -> bool:
    """Whether a route still has a target, healthy or not."""
    now = table.routes.get(route.key)
    return now is not None and any(other.key == target.key for other in now.registered)


def _plain(address: str) -> str:
    """An IPv4 client of an IPv6 socket in its own form, and addresses without a zone."""
    return address.removeprefix("::ffff:").partition("%")[0] if ":" in address else address


def _refusal(listener: Listener, error: OSError | OverflowError) -> LepaError:
    wanted = f"ingress: cannot listen on {listener.address} port {listener.port} ({listener.kind})"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return conflict(f"{wanted}: another program has it; stop that one or choose another port")
    if number == errno.EACCES:
        return LepaError("denied", f"{wanted}: ports below 1024 need root or CAP_NET_BIND_SERVICE")
    if number == errno.EADDRNOTAVAIL:
        return invalid(f"{wanted}: this host does not have the address")
    return invalid(f"{wanted}: {error}")
