"""The internal port: calls of `lepa.rpc.methods` as msgpack over HTTP, and the same calls inside one process.

    POST /rpc/<Method.Name>   body: the request
      200  application/msgpack          a Reply
      200  application/x-msgpack-seq    a stream: frames of 4 bytes length, big-endian, and an answer
      4xx, 5xx                          a Refusal: the LepaError as it was raised

A node's call goes to any server (`HttpCaller`), which passes it on to the leader where that is needed. A server asks
one certain other (`Peers`): the header `X-Lepa-As: leader` says that whoever gets the call answers as the leader or
refuses it, so that no call goes in circles.

Reads are tried again at the next server when a connection fails. A write is tried again only when it has certainly not
been done: the connection could not be made, or nobody led. A stream that breaks ends with an error and is the caller's
to begin again, because only the caller knows how far it came.
"""

import asyncio
import errno
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, Self, TypeVar, cast

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from lepa.kit.sockets import watched_socket
from lepa.kit.sources import Clock, Random
from lepa.model.errors import Code, LepaError
from lepa.model.wire import Wire, from_msgpack, to_msgpack
from lepa.rpc.methods import METHODS, Caller, Method
from lepa.rpc.requests import ReadRequest, Reply, Request

BODY_MAX: Final = 16 * 1024 * 1024
ATTEMPTS_MAX: Final = 8
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
HOLD_S: Final = 10.0
"""How long a caller goes on asking servers that know no leader; each of them has waited for one already."""
AS: Final = "X-Lepa-As"
LEADER: Final = "leader"

MSGPACK: Final = "application/msgpack"
MSGPACK_SEQUENCE: Final = "application/x-msgpack-seq"

Q = TypeVar("Q", bound=Request)
A = TypeVar("A")
Answer = Callable[[Any], Awaitable[Reply[Any]]]
StreamAnswer = Callable[[Any], AsyncIterator[Any]]

STATUS: Final[dict[Code, int]] = {
    "invalid": 400,
    "denied": 403,
    "not_found": 404,
    "conflict": 409,
    "unsupported": 501,
    "no_leader": 503,
    "timeout": 504,
    "internal": 500,
}

log = logging.getLogger(__name__)


class Refusal(Wire, frozen=True):
    """A LepaError on the wire."""

    code: Code = "internal"
    message: str = ""
    facts: dict[str, str] = {}


class Unreached(LepaError):
    """No connection could be made, so nothing was done. refused: the other machine is there, and nobody listens."""

    def __init__(self, address: str, error: Exception) -> None:
        super().__init__("no_leader", f"no server can be reached: {error}")
        self.address = address
        self.refused = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED


class Lost(LepaError):
    """The connection was lost before the answer came: what was asked may have been done."""

    def __init__(self, method: str, address: str, error: object) -> None:
        super().__init__("timeout", f"{method}: the connection to {address} was lost: {error}")


class Peers(Protocol):
    """Asks one server, which answers as the leader or refuses."""

    async def ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> Reply[A]:
        """Its answer. Raises Unreached, Lost, or the LepaError that it raised."""


class LocalCaller:
    """Calls answered in this process. answers, streams: by method name; together they cover every method."""

    def __init__(self, answers: Mapping[str, Answer], streams: Mapping[str, StreamAnswer]) -> None:
        self._answers = answers
        self._streams = streams

    async def call(self, method: Method[Q, A], request: Q) -> Reply[A]:
        answer = self._answers.get(method.name)
        if answer is None:
            raise LepaError("unsupported", f"no method {method.name} here")
        return await answer(request)

    def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        answer = self._streams.get(method.name)
        if answer is None:
            raise LepaError("unsupported", f"no stream {method.name} here")
        return answer(request)


Admission = Callable[[dict[str, Any], bool], None]
"""Takes the certificate of whoever calls, as `ssl` shows it, and whether it calls as a server. Raises LepaError."""


def channel_app(caller: Caller, as_leader: Caller | None = None, admit: Admission | None = None) -> web.Application:
    """The HTTP application of the internal port.

    caller: answers nodes. as_leader: answers other servers. admit: decides who may call; None for anybody.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        method = METHODS.get(request.match_info["name"])
        if method is None:
            return _refused(LepaError("unsupported", f'unknown method "{request.match_info["name"]}"'))
        try:
            wanted = from_msgpack(await request.read(), method.request)
            if method.kind == "stream":
                return await _answer_stream(request, caller.stream(method, wanted))
            passed_on = request.headers.get(AS) == LEADER
            reply = await (as_leader if passed_on and as_leader is not None else caller).call(method, wanted)
        except LepaError as error:
            return _refused(error)
        except msgspec.DecodeError as error:
            return _refused(LepaError("invalid", f"{method.name}: {error}"))
        except Exception:
            log.exception("call failed method=%s", method.name)
            return _refused(LepaError("internal", f"{method.name} failed; the server's log has the reason"))
        return web.Response(body=to_msgpack(reply), content_type=MSGPACK)

    app = web.Application(client_max_size=BODY_MAX, middlewares=[_door(admit)] if admit is not None else [])
    app.router.add_post("/rpc/{name}", answer)
    return app


def _door(admit: Admission) -> Middleware:
    """Lets nobody in who is not admitted. Whatever is not a node's call is between servers."""

    @web.middleware
    async def door(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
        as_server = not request.path.startswith("/rpc/") or request.headers.get(AS) == LEADER
        try:
            admit(request.get_extra_info("peercert") or {}, as_server)
        except LepaError as error:
            return _refused(error)
        return await handler(request)

    return door


async def _answer_stream(request: web.Request, answers: AsyncIterator[Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": MSGPACK_SEQUENCE})
    await response.prepare(request)
    try:
        async for answer in answers:
            raw = to_msgpack(answer)
            await response.write(struct.pack(">I", len(raw)) + raw)
        await response.write_eof()
    except ConnectionError:
        log.debug("reader of a stream left path=%s", request.path)
    return response


def _refused(error: LepaError) -> web.Response:
    facts = {key: str(value) for key, value in error.facts.items()}
    body = to_msgpack(Refusal(code=error.code, message=error.message, facts=facts))
    return web.Response(status=STATUS[error.code], body=body, content_type=MSGPACK)


class ServerSession:
    """A pool of connections to servers: as many as are waited on, each given up when its server is gone.

    An async context manager, made while a loop runs. tls: how servers are checked; None for plain text.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._scheme = "http" if tls is None else "https"
        connector = aiohttp.TCPConnector(limit=0, socket_factory=watched_socket, ssl=True if tls is None else tls)
        self._http = aiohttp.ClientSession(connector=connector)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    @property
    def closed(self) -> bool:
        """Whether it was left: nothing can be sent any more."""
        return self._http.closed

    def post(
        self,
        address: str,
        path: str,
        body: bytes,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send something to the internal port at `address`."""
        return self._http.post(f"{self._scheme}://{address}{path}", data=body, timeout=timeout, headers=headers)

    def call(
        self,
        address: str,
        method: Method[Any, Any],
        body: bytes,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a call to the internal port at `address`."""
        return self.post(address, f"/rpc/{method.name}", body, timeout, {"Content-Type": MSGPACK, **(headers or {})})


class HttpPeers:
    """Other servers, by their internal ports."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session

    async def ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> Reply[A]:
        """The answer of one server. Raises Unreached, Lost, or the LepaError that it raised."""
        if self._session.closed:
            raise LepaError("no_leader", "this server is stopping")
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        return await _post(self._session, address, method, to_msgpack(request), timeout, {AS: LEADER})


class HttpCaller:
    """Calls answered by one of several servers, over their internal ports. servers: `host:port` texts.

    The list is replaced (`use`) when servers tell a newer one; those that were given first are kept behind it, so that
    a cluster all of whose known servers were replaced is found again by the names in the configuration.
    """

    def __init__(self, session: ServerSession, servers: Sequence[str], clock: Clock, random: Random) -> None:
        self._session = session
        self._given = tuple(servers)
        self._servers = list(servers)
        self._clock = clock
        self._random = random
        self._moved = asyncio.Event()

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers as they are tried: the one that answered last comes first."""
        return tuple(self._servers)

    @property
    def moved(self) -> asyncio.Event:
        """Set when the server that is asked first is another one: what waits at the former may wait in vain."""
        return self._moved

    def use(self, servers: Sequence[str]) -> None:
        """Replace the list of servers, keeping the present one first while it is still in it or was given."""
        present = self._servers[:1]
        kept = [server for server in present if server in servers or server in self._given]
        self._servers = kept + [server for server in servers if server not in kept]
        if self._servers[:1] != present:
            self._announce()

    async def call(self, method: Method[Q, A], request: Q) -> Reply[A]:
        body = to_msgpack(request)
        timeout = aiohttp.ClientTimeout(total=patience_s(request), sock_connect=CONNECT_TIMEOUT_S)
        error = LepaError("no_leader", "no server is known")
        deadline = self._clock.now() + HOLD_S
        for attempt in range(ATTEMPTS_MAX):
            if not self._servers or (attempt and self._clock.now() >= deadline):
                break
            if attempt:
                await self._clock.sleep(self._pause_s(attempt))
            server = self._servers[0]
            try:
                return await _post(self._session, server, method, body, timeout)
            except Lost as lost:
                self._pass_over(server)
                if method.kind != "read":
                    raise
                error = lost
            except LepaError as refusal:
                if refusal.code != "no_leader":
                    raise
                self._pass_over(server)
                error = refusal
            except asyncio.CancelledError:
                if not _waits(request):  # it was given up for its silence
                    self._pass_over(server)
                raise
        raise error

    async def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        if not self._servers:
            raise LepaError("no_leader", "no server is known")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(method.answer)
        server = self._servers[0]
        try:
            async with self._session.call(server, method, to_msgpack(request), timeout) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.read())
                while (size := await _read_exactly(response.content, 4)) is not None:
                    raw = await _read_exactly(response.content, struct.unpack(">I", size)[0])
                    if raw is not None:
                        yield decoder.decode(raw)
        except (TimeoutError, aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as lost:
            self._pass_over(server)
            raise LepaError("timeout", f"{method.name}: the stream from {server} broke: {lost}") from lost

    def _pass_over(self, server: str) -> None:
        """Ask another server first, unless somebody else has come to that before."""
        if self._servers[:1] != [server]:
            return
        self._servers.append(self._servers.pop(0))
        self._servers += [given for given in self._given if given not in self._servers]
        self._announce()

    def _announce(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _pause_s(self, attempt: int) -> float:
        return self._random.uniform(0.5, 1.0) * min(RETRY_MAX_S, RETRY_FIRST_S * 2.0**attempt)


async def _post(
    session: ServerSession,
    address: str,
    method: Method[Q, A],
    body: bytes,
    timeout: aiohttp.ClientTimeout,
    headers: Mapping[str, str] | None = None,
) -> Reply[A]:
    try:
        async with session.call(address, method, body, timeout, headers) as response:
            raw = await response.read()
            if response.status != 200:
                raise _refusal(response.status, raw)
            return cast(Reply[A], from_msgpack(raw, Reply[method.answer]))  # type: ignore[name-defined]
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as unreached:
        raise Unreached(address, unreached) from unreached
    except (TimeoutError, aiohttp.ClientError, ConnectionError) as lost:
        raise Lost(method.name, address, lost) from lost


def _waits(request: Request) -> bool:
    return isinstance(request, ReadRequest) and request.index > 0


def patience_s(request: Request) -> float:
    """How long an answer may take: a blocking read's wait, the jitter that servers add, and a margin."""
    if isinstance(request, ReadRequest) and request.index > 0:
        return request.wait_ns / 1e9 * 17 / 16 + ANSWER_TIMEOUT_S
    return ANSWER_TIMEOUT_S


def _refusal(status: int, raw: bytes) -> LepaError:
    try:
        refusal = from_msgpack(raw, Refusal)
    except msgspec.DecodeError:
        return LepaError("internal", f"the server answered with status {status} and no reason")
    return LepaError(refusal.code, refusal.message, **refusal.facts)


async def _read_exactly(content: aiohttp.StreamReader, size: int) -> bytes | None:
    """`size` bytes, or None at the end of the stream."""
    try:
        return await content.readexactly(size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
