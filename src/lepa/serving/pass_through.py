"""Passes a request to an HTTP server that a model names as its endpoint, and its answer back as it comes.

The answer is not read, only moved: status line, headers and body go to the caller as they come, so that streams flow.
The server is asked to close its connection at the end, and that closes the caller's. A server that cannot be reached is
passed over for the next; one that breaks off in the middle of an answer breaks the caller's connection off.
"""

import asyncio
import logging

from lepa.model.errors import LepaError
from lepa.serving.addresses import Address, parse_address
from lepa.serving.addressing import Locator
from lepa.serving.http_connection import Headers, HttpConnection

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
SILENCE_MAX_S = 300.0
"""Between two pieces of an answer: a language model may think for long before it says its first word."""
PIECE_BYTES = 1 << 16
RETRY_S = 0.25
_FORWARDED = (b"accept", b"authorization", b"content-type", b"user-agent")


class PassThrough:
    """Finds endpoints and passes requests to the one with the fewest under way. services: for endpoints that are
    written service:NAME; None where none can be looked up."""

    def __init__(self, services: Locator | None) -> None:
        self._services = services
        self._under_way: dict[Address, int] = {}

    async def relay(
        self,
        connection: HttpConnection,
        endpoint: str,
        path: bytes,
        headers: Headers,
        body: bytes,
        patience_s: float = 0.0,
    ) -> None:
        """Answer a request through one of the addresses of `endpoint`; patience_s: how long they are waited for."""
        give_up = asyncio.get_running_loop().time() + patience_s
        while not await self._tried(connection, endpoint, path, headers, body):
            if asyncio.get_running_loop().time() >= give_up:
                connection.fail(502, "Bad gateway", f"no server of {endpoint} answers")
                return
            await asyncio.sleep(RETRY_S)

    async def _tried(
        self, connection: HttpConnection, endpoint: str, path: bytes, headers: Headers, body: bytes
    ) -> bool:
        """Whether the caller was answered by one of the addresses, or told why there is none."""
        try:
            addresses = await self._addresses(endpoint)
        except LepaError as error:
            connection.fail(502, "Bad gateway", error.message)
            return True
        for address in sorted(addresses, key=lambda one: self._under_way.get(one, 0)):
            self._under_way[address] = self._under_way.get(address, 0) + 1
            try:
                if await self._relay(connection, address, path, headers, body):
                    return True
            finally:
                self._under_way[address] -= 1
                if not self._under_way[address]:
                    del self._under_way[address]
        return False

    async def _addresses(self, endpoint: str) -> list[Address]:
        """The addresses that `service:NAME` or `host:port,host:port` stands for."""
        if not endpoint.startswith("service:"):
            return [parse_address(text) for text in endpoint.split(",")]
        if self._services is None:
            raise LepaError("unsupported", f"{endpoint} cannot be looked up: this frontend has no --discovery")
        return await asyncio.to_thread(self._services.locate, endpoint.removeprefix("service:"))

    async def _relay(
        self, connection: HttpConnection, address: Address, path: bytes, headers: Headers, body: bytes
    ) -> bool:
        """Pass the request on; False when nothing has come back, so that another address may be asked."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*address)
        except OSError as error:
            log.warning("endpoint was not reached address=%s error=%s", address, error)
            return False
        begun = False
        try:
            writer.write(_request(address, path, headers, body))
            while piece := await _next(reader):
                begun = True
                await connection.stream(piece)
        except OSError as error:
            log.warning("endpoint broke off address=%s error=%s", address, error)
        finally:
            writer.close()
        if begun:
            connection.end_stream()
        return begun


async def _next(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SILENCE_MAX_S):
        return await reader.read(PIECE_BYTES)


def _request(address: Address, path: bytes, headers: Headers, body: bytes) -> bytes:
    kept = b"".join(b"%b: %b\r\n" % header for header in headers if header[0] in _FORWARDED)
    head = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\nConnection: close\r\n%b\r\n"
    return head % (path, str(address).encode(), len(body), kept) + body
