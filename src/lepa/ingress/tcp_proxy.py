"""TCP connections: each is looked up, connected and carried on its own, so targets may come and go under a fixed port.

The target is dialled as soon as the client has connected, before it has said anything: in many protocols the server
speaks first. Without a route, or with no instance that answers, the client is closed at once. When an instance leaves
the catalog its connections are ended, so that clients connect again and reach its successor; being critical for a while
is no leaving.
"""

import logging
import socket
from collections.abc import Callable

from lepa.ingress.access import may_pass
from lepa.ingress.connector import Dial
from lepa.ingress.picker import TargetState
from lepa.ingress.proxy_protocol import Source, header
from lepa.ingress.routes import Route, Target
from lepa.ingress.traffic import Traffic
from lepa.ingress.tunnel import Tunnel

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Targets that are tried for one connection or request."""


class TcpConnection:
    """One client from accepting to the end of its tunnel. early: what was read from it already."""

    __slots__ = ("_client", "_dial", "_early", "_proxy", "_source", "_state", "_tried", "route", "target", "tunnel")

    def __init__(self, proxy: "TcpProxy", client: socket.socket, source: Source, route: Route, early: bytes) -> None:
        self._proxy = proxy
        self._client = client
        self._source = source
        self._early = early
        self._tried: set[str] = set()
        self._dial: Dial | None = None
        self.tunnel: Tunnel | None = None
        self._state: TargetState | None = None
        self.route = route
        self.target: Target | None = None

    def begin(self) -> None:
        """Try a target."""
        traffic = self._proxy.traffic
        tried = self._tried
        target = traffic.picker.pick(self.route, traffic.loop.now, tried) if len(tried) < ATTEMPTS_MAX else None
        if target is None:
            traffic.counters.add("no_target_total")
            self._refuse()
            return
        if self._tried:
            traffic.counters.add("retries_total")
        self.target = target
        self._tried.add(target.key)
        self._state = traffic.picker.began(target.key)
        self._dial = traffic.connector.connect(target, self._connected)

    def _connected(self, sock: socket.socket | None, reason: str) -> None:
        traffic, target, dial = self._proxy.traffic, self.target, self._dial
        assert target is not None
        assert dial is not None
        self._dial = None
        if sock is None:
            self._leave()
            traffic.refused(target, reason)
            self.begin()
            return
        traffic.picker.worked(target.key)
        version = target.options.proxy_protocol
        early = (header(self._source, version) if version else b"") + self._early
        tunnel = self.tunnel = Tunnel(
            traffic.loop, traffic.pipes, self._client, sock, self._ended, early, spoken=dial.spoken
        )
        traffic.counters.totals["tcp_connections_total"] += 1
        tunnel.begin()

    def _ended(self, tunnel: Tunnel, aborted: bool) -> None:
        totals = self._proxy.traffic.counters.totals
        totals["tcp_bytes_total"] += tunnel.client.carried + tunnel.target.carried
        totals["tcp_aborted_total"] += aborted
        self._leave()
        self._proxy.over(self)

    def _leave(self) -> None:
        if self._state is not None:
            self._proxy.traffic.picker.ended(self._state)
            self._state = None

    def _refuse(self) -> None:
        self._proxy.traffic.loop.close_socket(self._client)
        self._proxy.over(self)

    def end(self) -> None:
        """End it now: by a reset, so that neither side takes what it has for everything."""
        if self.tunnel is not None:
            self.tunnel.abort()
            return
        if self._dial is not None:
            self._dial.cancel()
        self._leave()
        self._proxy.traffic.loop.abort_socket(self._client)
        self._proxy.over(self)


class TcpProxy:
    """All TCP connections."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.connections: set[TcpConnection] = set()

    def accept(self, client: socket.socket, source: Source, route: Route | None, early: bytes = b"") -> None:
        """Serve a client whose socket does not block."""
        counters = self.traffic.counters
        if route is None or not route.targets:
            counters.add("no_route_total" if route is None else "no_target_total")
            self._refuse(client)
        elif not may_pass(source.address, route.targets[0].options):
            counters.add("denied_total")
            self._refuse(client)
        else:
            connection = TcpConnection(self, client, source, route, early)
            self.connections.add(connection)
            self.traffic.open += 1
            connection.begin()

    def _refuse(self, client: socket.socket) -> None:
        self.traffic.loop.close_socket(client)

    def over(self, connection: TcpConnection) -> None:
        """A connection has ended."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.traffic.open -= 1

    def end_left(self, is_registered: Callable[[Route, Target], bool]) -> None:
        """End the connections whose target has left the catalog."""
        for connection in list(self.connections):
            target = connection.target
            if target is not None and not target.options.keep and not is_registered(connection.route, target):
                self.traffic.counters.add("left_total")
                connection.end()

    def end_all(self) -> None:
        """End everything."""
        for connection in list(self.connections):
            connection.end()
