"""Packets and streams of gossip, on one port number of UDP and TCP. It decides nothing: it tells what arrives."""

import asyncio
import contextlib
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from lepa.gossip.errors import Malformed
from lepa.gossip.keyring import NONCE_SIZE
from lepa.gossip.messages import ErrorReply, Message, PushPull, encode
from lepa.gossip.orders import Endpoint
from lepa.gossip.packets import DATAGRAM_MAX, Framing
from lepa.gossip.streams import StreamReader

STREAMS_MAX: Final = 128
PACKETS_AT_ONCE: Final = 128
"""Packets read before others in the process get their turn."""
RECEIVE_BUFFER: Final = 2 * 1024 * 1024
CHUNK: Final = 64 * 1024
READ_AT_ONCE: Final = 32 * 1024
"""Bytes of a stream that are read on the event loop, some 10 ms; longer ones are read in a thread."""
PORT_TRIES: Final = 16

StreamMessage = PushPull | Message
OnPacket = Callable[[bytes, Endpoint], None]
OnStream = Callable[[StreamMessage], "tuple[bytes, Callable[[], None] | None]"]
"""Takes the message of a stream; gives the answer, and what to do once that is written. May raise Malformed."""


class Transport:
    """The sockets, as an async context manager. counts: what was dropped and failed."""

    def __init__(
        self, host: str, port: int, framing: Framing, on_packet: OnPacket, on_stream: OnStream, timeout_s: float
    ) -> None:
        self.host, self.port = host, port
        self.counts: Counter[str] = Counter()
        self._framing = framing
        self._on_packet = on_packet
        self._on_stream = on_stream
        self._timeout_s = timeout_s
        self._packets: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._open_streams = 0

    async def __aenter__(self) -> "Transport":
        """Raises OSError when the port cannot be had."""
        for attempt in range(PORT_TRIES):
            self._server = await asyncio.start_server(self._serve, self.host, self.port)
            port = int(self._server.sockets[0].getsockname()[1])
            try:
                self._packets = _packet_socket(self.host, port)
                break
            except OSError as error:
                self._server.close()
                if self.port or error.errno != errno.EADDRINUSE or attempt == PORT_TRIES - 1:
                    raise
        self.port = port
        assert self._packets is not None
        asyncio.get_running_loop().add_reader(self._packets, self.drain)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._packets is not None:
            asyncio.get_running_loop().remove_reader(self._packets)
            self._packets.close()
            self._packets = None
        if self._server is not None:
            self._server.close()

    # Packets

    def drain(self) -> None:
        """Read what has arrived: also called before time is looked at, so that nobody is accused of our own delay."""
        for _ in range(PACKETS_AT_ONCE):
            if self._packets is None:
                return
            try:
                data, source = self._packets.recvfrom(DATAGRAM_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.counts["receive_errors"] += 1
                continue
            self._on_packet(data, (packed(source[0]), source[1]))

    def send(self, to: Endpoint, parts: tuple[bytes, ...], *, crc: bool) -> None:
        """Send a packet; nobody learns whether it arrives."""
        if self._packets is None:
            return
        try:
            self._packets.sendto(self._framing.packet(parts, self._nonce(), crc=crc), (unpacked(to[0]), to[1]))
        except OSError:
            self.counts["send_errors"] += 1

    def _nonce(self) -> bytes:
        return os.urandom(NONCE_SIZE) if self._framing.keyring is not None else b""

    # Streams

    async def ask(self, to: Endpoint, message: bytes, timeout_s: float = 0.0) -> StreamMessage:
        """The answer to a message over a stream. Raises OSError, TimeoutError, Malformed; EOFError for no answer."""
        async with asyncio.timeout(timeout_s or self._timeout_s):
            reader, writer = await asyncio.open_connection(unpacked(to[0]), to[1])
            try:
                writer.write(self._framing.stream(message, self._nonce()))
                await writer.drain()
                return await self._read(reader)
            finally:
                writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> StreamMessage:
        stream = StreamReader(self._framing)
        while chunk := await reader.read(CHUNK):
            if stream.size + len(chunk) <= READ_AT_ONCE:
                message = stream.feed(chunk)
            else:
                message = await asyncio.to_thread(stream.feed, chunk)
            if message is not None:
                return message
        raise EOFError("the connection was closed without an answer")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open_streams >= STREAMS_MAX:
            self.counts["streams_refused"] += 1
            writer.close()
            return
        self._open_streams += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._answer(reader, writer)
        except (TimeoutError, OSError, EOFError):
            self.counts["streams_broken"] += 1
        finally:
            self._open_streams -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        then = None
        try:
            answer, then = self._on_stream(await self._read(reader))
        except Malformed as error:
            self.counts[f"dropped_{error.kind}"] += 1
            answer = bytes_of_error(error)
        if answer:
            writer.write(self._framing.stream(answer, self._nonce()))
            await writer.drain()
        if then is not None:
            then()


def bytes_of_error(error: Malformed) -> bytes:
    """What a peer is told whose stream is refused."""
    return encode(ErrorReply(str(error)))


def packed(host: str) -> bytes:
    """An address as bytes: IPv4 always as four. Raises ValueError."""
    address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed


def unpacked(address: bytes) -> str:
    """An address as text."""
    return str(ip_address(address))


def _packet_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made
