"""Connections that end by themselves when the other machine is gone without a word.

A machine that loses its power or its cable says nothing, and whoever only waits for it waits for as long as it is
allowed to: the kernel's own limits are hours. A watched socket asks a silent peer after IDLE_S, then every INTERVAL_S,
and is an error once nothing was answered for SILENCE_S; one that was made here also once what it sent was not received
for as long.
"""

import contextlib
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

IDLE_S: Final = 10
INTERVAL_S: Final = 3
SILENCE_S: Final = 20

_ASKED: Final = {
    "TCP_KEEPIDLE": IDLE_S,
    "TCP_KEEPINTVL": INTERVAL_S,
    "TCP_KEEPCNT": (SILENCE_S - IDLE_S) // INTERVAL_S,
}
_UNRECEIVED: Final = {"TCP_USER_TIMEOUT": SILENCE_S * 1000}
"""Linux has all of them; another system may lack some, and then its own limits hold."""


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """A TCP socket for an entry of `getaddrinfo`, not connected, not blocking: what aiohttp's connector asks for."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    watch(made, {**_ASKED, **_UNRECEIVED})
    return made


def watch(sock: socket.socket, options: Mapping[str, int] = MappingProxyType(_ASKED)) -> None:
    """Let a connection end when its peer is silent. One that was accepted may have a peer that reads nothing for a
    while, a person who looks at a log: what is not received does not end it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        with contextlib.suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
