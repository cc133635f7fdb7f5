"""A listener that strangers cannot fill: few connections an address, and none that stays without asking.

aiohttp takes any number of connections and waits an hour for a request. Here an address may hold so many connections
at once, more are answered with 429 and closed; and a connection whose first whole request head has not come in time is
closed, whether it is silent or slow. After a first request a connection may be kept; the number still bounds those, and
one whose machine is gone is found by the kernel (`kit.sockets`).

    runner = web.AppRunner(app)      # app has the middleware `heard`
    doorman = Doorman(runner.server, Limits())
    listener = await listen(doorman, host, port)
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from aiohttp import web

from lepa.kit.sockets import watch

BACKLOG = 1024
_REFUSAL = "Your IP is issuing too many concurrent connections, please rate limit your calls\n"
REFUSAL = (
    f"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    f"Content-Length: {len(_REFUSAL)}\r\n\r\n{_REFUSAL}"
).encode()


class Limits(NamedTuple):
    """connections_max: at once from one address, 0 for any number. first_request_s: for the TLS handshake, and again
    for the first request; 0 for any time."""

    connections_max: int = 100
    first_request_s: float = 5.0


class Doorman:
    """Makes the protocol of each connection: that of the server, behind a guest that is counted."""

    def __init__(
        self, server: Callable[[], asyncio.Protocol], limits: Limits, told: Callable[[int, bool], None] | None = None
    ) -> None:
        """told: hears of each connection that comes, goes or is refused: how many there are, and whether it was."""
        self._server = server
        self._told = told
        self.limits = limits
        self.held: Counter[str] = Counter()
        """Connections by address."""
        self.refused = 0

    def __call__(self) -> "Guest":
        return Guest(self, self._server())

    def admit(self, address: str) -> bool:
        """Count a connection; False when its address holds as many as it may."""
        if 0 < self.limits.connections_max <= self.held[address]:
            self.refused += 1
            self._tell(refused=True)
            return False
        self.held[address] += 1
        self._tell()
        return True

    def let_go(self, address: str) -> None:
        """A counted connection has ended."""
        self.held[address] -= 1
        if self.held[address] <= 0:
            del self.held[address]
        self._tell()

    def _tell(self, *, refused: bool = False) -> None:
        if self._told is not None:
            self._told(self.held.total(), refused)


class Guest(asyncio.Protocol):
    """One connection. What arrives goes to the server's protocol directly, nothing is added to its way."""

    def __init__(self, doorman: Doorman, inner: asyncio.Protocol) -> None:
        self._doorman = doorman
        self._inner = inner
        self._address = ""
        self._admitted = False
        self._timer: asyncio.TimerHandle | None = None
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it in, or send it away."""
        made = cast(asyncio.Transport, transport)
        peer = made.get_extra_info("peername")
        self._address = peer[0] if peer else ""
        self._admitted = self._doorman.admit(self._address)
        if not self._admitted:
            self.data_received = _nothing  # type: ignore[method-assign]
            made.write(REFUSAL)
            made.close()
            return
        self._inner.connection_made(transport)
        if peer:
            watch(made.get_extra_info("socket"))
        if self._doorman.limits.first_request_s:
            self._wait(made, 2)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.heard()
        if self._admitted:
            self._doorman.let_go(self._address)
            self._inner.connection_lost(exc)

    def heard(self) -> None:
        """Its first request is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, transport: asyncio.Transport, parts: int) -> None:
        """Close it after so many parts of the time: a loop that stood still must not cost a punctual peer its turn."""
        if parts == 0:
            transport.abort()
            return
        part_s = self._doorman.limits.first_request_s / 2
        self._timer = asyncio.get_running_loop().call_later(part_s, self._wait, transport, parts - 1)


def _nothing(data: bytes) -> None:
    """What somebody says who was sent away."""


@web.middleware
async def heard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A middleware: whoever sent this request is no silent connection."""
    guest = request.transport.get_protocol() if request.transport is not None else None
    if isinstance(guest, Guest):
        guest.heard()
    return await handler(request)


async def listen(
    doorman: Doorman, host: str, port: int, context: ssl.SSLContext | None = None, *, backlog: int = BACKLOG
) -> asyncio.Server:
    """Listen; raises OSError. The time limit of the handshake is that of the first request."""
    handshake_s = (doorman.limits.first_request_s or None) if context is not None else None
    return await asyncio.get_running_loop().create_server(
        doorman, host, port, ssl=context, backlog=backlog, ssl_handshake_timeout=handshake_s
    )
