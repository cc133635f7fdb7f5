"""Calls of the HTTP API for running parts: many at a time, blocking reads included."""

from collections.abc import AsyncIterator
from copy import copy
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from lepa.kit.tls import client_context
from lepa.model.errors import LepaError, invalid
from lepa.sdk.address import Params, Target, headers, path_with
from lepa.sdk.connection import CODES, Answer

CONNECT_S = 5.0
READ_S = 330.0
STREAM_IDLE_S = 60.0


class AsyncConnection:
    """One agent, over a pool of connections. An async context manager."""

    def __init__(self, to: Target) -> None:
        self.target = to
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=READ_S, sock_connect=CONNECT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=self._connector())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def with_token(self, token: str) -> Self:
        """The same connections for somebody else, whose token is shown instead; "": none."""
        other = copy(self)
        other.target = self.target._replace(token=token)
        return other

    def _connector(self) -> aiohttp.TCPConnector:
        if self.target.scheme != "https":
            return aiohttp.TCPConnector(limit=0)
        try:
            return aiohttp.TCPConnector(limit=0, ssl=client_context(self.target.tls))
        except ValueError as error:
            raise invalid(f"TLS: {error}") from error

    async def lines(self, path: str, params: Params | None = None) -> AsyncIterator[bytes]:
        """Lines of a streamed answer as they come; the agent sends one at least every 30 s."""
        url = self.target.url + path_with(self.target, path, params)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=STREAM_IDLE_S)
        try:
            async with self._entered().get(url, headers=headers(self.target), timeout=timeout) as response:
                if response.status >= 300:
                    raise self._refused(response, await response.read())
                async for line in response.content:
                    yield line
        except TimeoutError as error:
            raise LepaError("timeout", f"{self.target.url} went silent") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise LepaError("no_leader", f"no agent answers at {self.target.url}: {error}") from error

    async def get(self, path: str, params: Params | None = None) -> Answer:
        """A read. Raises LepaError, whose facts have the status and, where it is told, the index of the answer."""
        return await self.send("GET", path, params)

    async def send(self, method: str, path: str, params: Params | None = None, body: Any = None) -> Answer:
        """Any call whose answer is JSON or empty; the body is sent as JSON. Raises LepaError as `get` does."""
        url = self.target.url + path_with(self.target, path, params)
        data = None if body is None else msgspec.json.encode(body)
        extra = headers(self.target) | ({"Content-Type": "application/json"} if body is not None else {})
        try:
            async with self._entered().request(method, url, data=data, headers=extra) as response:
                raw = await response.read()
        except TimeoutError as error:
            raise LepaError("timeout", f"{self.target.url} did not answer in time") from error
        except aiohttp.ClientError as error:
            raise LepaError("no_leader", f"no agent answers at {self.target.url}: {error}") from error
        if response.status >= 300:
            raise self._refused(response, raw)
        value = msgspec.json.decode(raw) if raw.strip() else None
        return Answer(value, _index(response), response.headers.get("X-Nomad-NextToken", ""))

    def _entered(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise LepaError("internal", "the connection has not been entered")
        return self._session

    @staticmethod
    def _refused(response: aiohttp.ClientResponse, raw: bytes) -> LepaError:
        text = raw.decode("utf-8", "replace").strip() or str(response.reason)
        return LepaError(CODES.get(response.status, "internal"), text, status=response.status, index=_index(response))


def _index(response: aiohttp.ClientResponse) -> int:
    text = response.headers.get("X-Nomad-Index", "0")
    return int(text) if text.isdigit() else 0
