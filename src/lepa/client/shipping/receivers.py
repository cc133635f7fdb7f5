"""Sends batches of lines to one receiver. A connection is kept while it works, and made anew when it does not."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

import aiohttp

from lepa.client.hooks.artifact_settings import denied
from lepa.client.shipping.formats import Line, Origin, acknowledged, forward, octet_counted, push, syslog
from lepa.client.shipping.settings import ShipSettings
from lepa.kit.sources import Random

ANSWER_BYTES_MAX = 4096
BUSY = (429, 503)


class Unsent(Exception):
    """A batch was not taken. again: whether it may be taken later; else it is the batch that is wrong."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class Doors(NamedTuple):
    """How receivers are reached. denied: networks that no connection of theirs may lead to; the session keeps to it."""

    http: aiohttp.ClientSession
    denied: tuple[str, ...] = ()


class Receiver(Protocol):
    """Where lines of one task go."""

    async def send(self, lines: Sequence[Line], origin: Origin) -> None:
        """Return when the receiver has them. Raises Unsent."""

    async def close(self) -> None:
        """Let go of the connection."""


def receiver(settings: ShipSettings, doors: Doors, random: Random) -> Receiver:
    """A receiver of the settings' type."""
    if settings.type == "loki":
        return Loki(settings, doors.http)
    if settings.type == "fluentd":
        return Fluentd(settings, doors.denied, random)
    if urlsplit(settings.address).scheme == "tcp":
        return SyslogStream(settings, doors.denied)
    return SyslogDatagrams(settings, doors.denied)


async def resolved(address: SplitResult, kind: socket.SocketKind, denied_networks: Sequence[str]) -> tuple[Any, ...]:
    """Family, kind, protocol and socket address to connect to; judged here, so that no second answer leads elsewhere.

    Raises OSError for a name that is not known, or whose address is in a denied network.
    """
    found = await asyncio.get_running_loop().getaddrinfo(address.hostname, address.port, type=kind)
    family, kind, protocol, _, target = found[0]
    if network := denied(str(target[0]), denied_networks):
        raise PermissionError(f"{target[0]} is in {network}, where no job's output is sent")
    return family, kind, protocol, target


class _Connection:
    """A stream to an address; opened when it is first needed."""

    def __init__(self, address: str, denied_networks: Sequence[str]) -> None:
        self._address = urlsplit(address)
        self._denied = denied_networks
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The stream; a connection that the other side closed is not used again."""
        if self._streams is not None and (self._streams[0].at_eof() or self._streams[1].is_closing()):
            self.drop()
        if self._streams is None:
            if self._address.scheme == "unix":
                self._streams = await asyncio.open_unix_connection(self._address.path)
            else:
                *_, target = await resolved(self._address, socket.SOCK_STREAM, self._denied)
                self._streams = await asyncio.open_connection(target[0], target[1])
        return self._streams

    def drop(self) -> None:
        """Begin anew next time."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class SyslogStream:
    """Syslog over TCP. It has no answers: what the kernel took before a connection broke may be lost."""

    def __init__(self, settings: ShipSettings, denied_networks: Sequence[str]) -> None:
        self._settings = settings
        self._connection = _Connection(settings.address, denied_networks)

    async def send(self, lines: Sequence[Line], origin: Origin) -> None:
        """All lines in one write."""
        facility = self._settings.facility
        data = b"".join(octet_counted(syslog(line, origin, facility)) for line in lines)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                _, writer = await self._connection.open()
                writer.write(data)
                await writer.drain()
        except (OSError, TimeoutError) as error:
            self._connection.drop()
            raise Unsent(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Let go of the connection."""
        self._connection.drop()


class SyslogDatagrams:
    """Syslog over UDP or a Unix socket: one datagram a line, which may be lost on its way."""

    def __init__(self, settings: ShipSettings, denied_networks: Sequence[str]) -> None:
        self._settings = settings
        self._address = urlsplit(settings.address)
        self._denied = denied_networks
        self._socket: socket.socket | None = None

    async def send(self, lines: Sequence[Line], origin: Origin) -> None:
        """Each line by itself."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                open_socket = self._socket or await self._open()
                for line in lines:
                    await loop.sock_sendall(open_socket, syslog(line, origin, self._settings.facility))
        except (OSError, TimeoutError) as error:
            await self.close()
            raise Unsent(str(error) or type(error).__name__) from error

    async def _open(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        if self._address.scheme == "unix":
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            target: Any = self._address.path
        else:
            family, kind, protocol, target = await resolved(self._address, socket.SOCK_DGRAM, self._denied)
            made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, target)
        except OSError:
            made.close()
            raise
        self._socket = made
        return made

    async def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Fluentd:
    """Fluentd's forward protocol: a batch counts as sent when it was acknowledged."""

    def __init__(self, settings: ShipSettings, denied_networks: Sequence[str], random: Random) -> None:
        self._settings = settings
        self._random = random
        self._connection = _Connection(settings.address, denied_networks)

    async def send(self, lines: Sequence[Line], origin: Origin) -> None:
        """One batch, one answer."""
        chunk = self._random.uuid()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                reader, writer = await self._connection.open()
                writer.write(forward(lines, origin, self._settings.tag, chunk))
                await writer.drain()
                answer = b""
                while (taken := acknowledged(answer)) is None:
                    piece = await reader.read(ANSWER_BYTES_MAX)
                    answer += piece
                    if not piece or len(answer) > ANSWER_BYTES_MAX:
                        raise Unsent("the connection was closed before the batch was acknowledged")
                if taken != chunk:
                    raise Unsent("another batch was acknowledged")
        except (OSError, TimeoutError) as error:
            self._connection.drop()
            raise Unsent(str(error) or type(error).__name__) from error
        except BaseException:
            self._connection.drop()
            raise

    async def close(self) -> None:
        """Let go of the connection."""
        self._connection.drop()


class Loki:
    """Loki's push API, and whatever else takes it."""

    def __init__(self, settings: ShipSettings, http: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._http = http

    async def send(self, lines: Sequence[Line], origin: Origin) -> None:
        """One request. A batch that is refused for good (400 and the like) will not be tried again."""
        headers = {"Content-Type": "application/json", **self._settings.headers}
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout_s)
        try:
            async with self._http.post(
                self._settings.address,
                data=push(lines, origin),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status >= 300:
                    said = (await answer.content.read(200)).decode(errors="replace").strip()
                    again = answer.status in BUSY or answer.status >= 500
                    raise Unsent(f"{answer.status} {said}", again=again)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unsent(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """The session is the client's."""
