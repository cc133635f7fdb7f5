"""Opens connections to targets without ever blocking: names, TCP, TLS, each with the same deadline."""

import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from errno import EINPROGRESS
from functools import lru_cache, partial

from lepa.ingress.event_loop import FAILED, READY_IN, EventLoop
from lepa.ingress.routes import Target
from lepa.ingress.tls_socket import client_context

RESOLVERS = 2
ADDRESSES_KEPT = 4_096
NAMES_MAX = 1_000
"""Host names whose address is remembered."""
NAME_KEPT_S = 30.0
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TRIES = 60, 20, 3

Connected = Callable[[socket.socket | None, str], None]
"""Takes the connected socket and "", or None and what went wrong."""


def tune(sock: socket.socket) -> None:
    """Send small writes at once, and notice a peer that has vanished within two minutes.

    What a listening socket is told holds for every connection that it accepts.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(sock)


def keep_alive(sock: socket.socket) -> None:
    """Notice a peer that has vanished within two minutes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)


class Dial:
    """One attempt to reach a target. It calls `connected` once, unless it is cancelled before.

    spoken: whether the target may have sent something already.
    """

    __slots__ = ("_connected", "_connector", "_sock", "_target", "deadline", "over", "spoken")

    def __init__(self, connector: "Connector", target: Target, deadline: float, connected: Connected) -> None:
        self._connector = connector
        self._target = target
        self._connected = connected
        self._sock: socket.socket | None = None
        self.deadline = deadline
        self.over = False
        self.spoken = True

    def connect(self, address: str) -> None:
        """Begin. The answer never comes before this returns, so that callers need not expect themselves."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            sock = self._sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex((address, self._target.port))
        except OSError as error:
            self._connector.loop.again(partial(self.fail, error.strerror or str(error)))
            return
        if code not in {0, EINPROGRESS}:
            self._connector.loop.again(partial(self.fail, os.strerror(code)))
            return
        self._connector.loop.watch(sock, self)

    def ready(self, events: int) -> None:
        """The connection is made or refused, or the handshake can go on."""
        sock = self._sock
        if self.over or sock is None:
            return
        if isinstance(sock, ssl.SSLSocket):
            self._shake(sock)
        elif events & FAILED and (code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            self.fail(os.strerror(code))
        elif self._target.options.tls:
            self._begin_tls(sock)
        else:
            self.spoken = bool(events & READY_IN)
            self._finish(sock, "")

    def _begin_tls(self, sock: socket.socket) -> None:
        options = self._target.options
        context = client_context(options.tls_verify)
        try:
            secured = context.wrap_socket(
                sock, do_handshake_on_connect=False, server_hostname=options.tls_name or self._target.host
            )
        except (OSError, ValueError) as error:
            self.fail(f"TLS: {error}")
            return
        self._sock = secured
        self._shake(secured)

    def _shake(self, sock: ssl.SSLSocket) -> None:
        try:
            sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self.fail(f"TLS: {error}")
            return
        self._finish(sock, "")

    def abort(self) -> None:
        """A bug."""
        self.fail("internal error")

    def fail(self, reason: str) -> None:
        """Give up."""
        if not self.over:
            self._close()
            self._finish(None, reason)

    def cancel(self) -> None:
        """Give up without telling anybody."""
        if not self.over:
            self.over = True
            self._connector.dials.discard(self)
            self._close()

    def _close(self) -> None:
        if self._sock is not None:
            self._connector.loop.close_socket(self._sock)
            self._sock = None

    def _finish(self, sock: socket.socket | None, reason: str) -> None:
        self.over = True
        self._connector.dials.discard(self)
        if sock is not None:
            self._connector.made(sock)
        self._connected(sock, reason)


class Connector:
    """All attempts under way. connect_s: until an attempt has failed."""

    def __init__(self, loop: EventLoop, connect_s: float) -> None:
        self.loop = loop
        self.dials: set[Dial] = set()
        self._connect_s = connect_s
        self._names: dict[str, tuple[str, float]] = {}
        self._young: list[socket.socket] = []
        """Connected since the last sweep: most are gone by the next one, which spares the kernel four calls each."""
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="ingress-names")
        loop.every_sweep(self._expire)

    def connect(self, target: Target, connected: Connected) -> Dial:
        """Connect to a target; `connected` is called later, on the loop's thread."""
        dial = Dial(self, target, self.loop.now + self._connect_s, connected)
        self.dials.add(dial)
        if is_address(target.host):
            dial.connect(target.host)
        elif (known := self._names.get(target.host)) and known[1] > self.loop.now:
            dial.connect(known[0])
        else:
            future = self._resolvers.submit(_resolve, target.host)
            future.add_done_callback(lambda done: self.loop.call(partial(self._resolved, dial, target.host, done)))
        return dial

    def _resolved(self, dial: Dial, host: str, done: "Future[str]") -> None:
        try:
            address = done.result()
        except OSError as error:
            dial.fail(f"{host}: {error.strerror or error}")
            return
        if len(self._names) >= NAMES_MAX:
            self._names.clear()
        self._names[host] = (address, self.loop.now + NAME_KEPT_S)
        if not dial.over:
            dial.connect(address)

    def made(self, sock: socket.socket) -> None:
        """A connection stands."""
        self._young.append(sock)

    def _expire(self) -> None:
        for sock in self._young:
            if sock.fileno() >= 0:
                keep_alive(sock)
        self._young = []
        for dial in [dial for dial in self.dials if dial.deadline < self.loop.now]:
            dial.fail("timed out")

    def close(self) -> None:
        """Give up everything under way."""
        for dial in list(self.dials):
            dial.cancel()
        self._resolvers.shutdown(wait=False, cancel_futures=True)


@lru_cache(ADDRESSES_KEPT)
def is_address(host: str) -> bool:
    """Whether a host is an IP address; `socket.inet_pton` is many times quicker than `ipaddress`."""
    with suppress(OSError):
        return bool(socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host))
    return False


def _resolve(host: str) -> str:
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
