"""The query frontend: predictions over HTTP (port 1337) and the RPC port of the model containers (7000).

    POST /{app}/predict   POST /{app}/update   GET /metrics   GET /metrics?format=prometheus   GET /top   GET /health
    /v1/...   /v2/...   see `open_doors`

A prediction is a fraction of what a web framework spends on a request, so there is none here: an `asyncio.Protocol` on
httptools, one dict of routes, answers written as bytes. Everything that decides is in `query.Predictions`; this module
reads requests, hands it events and `now`, and carries its orders to `replicas`. All queries that arrive in one turn of
the loop can leave in one batch: orders are asked for once, at the end of the turn.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote_to_bytes

import msgspec
import uvloop
from msgspec import Struct

from lepa.kit.sources import Clock, Random, SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.serving import compat, reports
from lepa.serving.addresses import Address, parse_address
from lepa.serving.addressing import Locator, dns_provider
from lepa.serving.fine_timer import FineTimer
from lepa.serving.http_connection import JSON, WITH_HEADERS, Head, Headers, HttpConnection
from lepa.serving.metrics import report
from lepa.serving.open_doors import OpenDoors
from lepa.serving.pass_through import PassThrough
from lepa.serving.query import Predictions
from lepa.serving.ready_file import write_ready_file
from lepa.serving.records import Registry
from lepa.serving.registry_follower import REPORT_EVERY_S, RegistryFollower
from lepa.serving.replicas import ReplicaServer
from lepa.serving.selection_memory import SelectionUpdate
from lepa.serving.served import Answer, Reply, ServedApplication

if TYPE_CHECKING:
    from lepa.serving.grpc_door import GrpcDoor

log = logging.getLogger(__name__)

IDLE_S = 75.0
"""A connection without a request, or without the rest of one, is closed after this."""
SWEEP_S = 5.0
BACKLOG = 4096
REGISTRY_WAIT_S = 5.0
"""For the first registry, before requests are taken without one."""
GARBAGE_AFTER = 20_000
"""Objects more than before, until Python looks for cycles: those of some hundred queries at once are none."""
TELL_EVERY_S = 0.05
"""Feedback is gathered for this long before it is told."""

_TEXT = b"text/plain; version=0.0.4"
_PROMETHEUS = b"/metrics?format=prometheus"

ManagementFinder = Callable[[], Awaitable[Address]]


class FrontendSettings(Struct, frozen=True):
    """host, port: where predictions are asked. rpc_port: where model containers connect. 0 is any free port.
    cache_bytes: room for predictions already made; 0 caches nothing and joins no equal queries. compat: speak of errors
    as Clipper did. discovery: where services are looked up, a URL of `addressing`; "" for nowhere. grpc_port: where the
    Open Inference Protocol is spoken over gRPC; None for nowhere."""

    host: str = "127.0.0.1"
    port: int = 1337
    rpc_port: int = 7000
    cache_bytes: int = 32 << 20
    compat: bool = False
    discovery: str = ""
    grpc_port: int | None = None


class QueryFrontend:
    """One query frontend, as an async context manager. `management`: where the registry is, asked before each call;
    None for a frontend that is configured by hand."""

    def __init__(
        self, settings: FrontendSettings, management: ManagementFinder | None, clock: Clock, random: Random
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._id = random.uuid()
        self._tasks = Tasks("query-frontend")
        self.predictions = Predictions(settings.cache_bytes, clock.now(), partial(random.uniform, 0.0, 1.0))
        self.replicas = ReplicaServer(self.predictions, settings.host, settings.rpc_port, clock, self.wake)
        self._follower = (
            RegistryFollower(management, self.configure, self.learned, clock, random) if management else None
        )
        self._observed = asyncio.Event()
        self._configured = asyncio.Event()
        self._flush_due = False
        self._batch_timer_at = 0.0
        self._deadline_timer: asyncio.Handle | None = None
        self._deadline_timer_at = 0.0  # uvloop's handles of timers that are nearly due do not tell when they are
        self.routes: dict[bytes, tuple[ServedApplication, bool]] = {}
        self.connections: set[HttpConnection] = set()
        self.heads: dict[bytes, Head] = {}
        self.compat = settings.compat
        services = Locator(dns_provider(settings.discovery)) if settings.discovery else None
        self._doors = OpenDoors(self, PassThrough(services), self._tasks)
        self.views = self._views()
        self.port = settings.port
        self.grpc_port = settings.grpc_port
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._batch_timer = FineTimer(self.wake)
        await self.replicas.__aenter__()
        self._tasks.start("sweep", self._sweep())
        if self._follower:
            self._tasks.start("follow", self._follower.run())
            self._tasks.start("follow-selection", self._follower.run_selection())
            self._tasks.start("report", self._report(self._follower))
            self._tasks.start("tell", self._tell(self._follower))
        try:
            await self._listen()
            if self.grpc_port is not None:
                door = _grpc_door()(self, self._settings.host, self.grpc_port)
                self.grpc_port = (await self._open.enter_async_context(door)).port
        except BaseException:
            await self._tasks.close()
            await self.replicas.__aexit__(None, None, None)
            self._batch_timer.close()
            raise
        return self

    async def _listen(self) -> None:
        """Take requests once it is known what is served; when nobody can tell, take them all the same and say so."""
        if self._follower:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REGISTRY_WAIT_S):
                    await self._configured.wait()
        self._server = await self._loop.create_server(
            lambda: HttpConnection(self), self._settings.host, self._settings.port, backlog=BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._open.aclose()
        await self._tasks.close()
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._server.wait_closed()
        if self._deadline_timer:
            self._deadline_timer.cancel()
        await self.replicas.__aexit__(None, None, None)
        self._batch_timer.close()

    def configure(self, registry: Registry) -> None:
        """Serve what the registry says."""
        self.predictions.configure(registry, self._clock.now())
        self.routes = {
            f"/{name}/{verb}{slash}".encode(): (served, verb == "predict")
            for name, served in self.predictions.applications.items()
            for verb in ("predict", "update")
            for slash in ("", "/")
        }
        self._configured.set()
        log.info("registry read revision=%d applications=%d", registry.revision, len(registry.applications))
        self.wake()

    @property
    def configured(self) -> bool:
        """Whether it is known what is served."""
        return self._configured.is_set()

    def learned(self, update: SelectionUpdate) -> None:
        """Choose by what has been learned."""
        if update.whole:
            self.predictions.arms.forget()
        self.predictions.arms.follow(update.states)

    # One turn: whatever happened since the last one is carried out together

    def wake(self) -> None:
        """Something happened: ask `predictions` for orders at the end of this turn of the loop."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        now = self._clock.now()
        predictions = self.predictions
        for order in predictions.dispatch(now):
            self.replicas.send(order)
        predictions.reply(now)
        now = self._clock.now()
        predictions.replied(now)
        if predictions.arms.observations:
            self._observed.set()
        self._arm(now)

    def _arm(self, now: float) -> None:
        batch_at = self.predictions.next_batch()
        if batch_at is not None and not now < self._batch_timer_at <= batch_at:
            self._batch_timer_at = batch_at
            self._batch_timer.set(batch_at - now)
        deadline = self.predictions.next_deadline()
        if deadline is None:
            return
        due = self._loop.time() + max(0.0, deadline - now)
        timer = self._deadline_timer
        if timer is None or due < self._deadline_timer_at - 0.001:
            if timer is not None:
                timer.cancel()
            self._deadline_timer_at = due
            self._deadline_timer = self._loop.call_at(due + 0.0005, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._deadline_timer = None
        self.wake()

    # Beside the traffic

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            self.predictions.tick(self._clock.now())
            oldest = self._loop.time() - IDLE_S
            for connection in list(self.connections):
                connection.close_if_idle_since(oldest)

    async def _report(self, follower: RegistryFollower) -> None:
        changed = self.replicas.changed
        while True:
            changed.clear()
            await follower.report(self._id, self.predictions.containers())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_EVERY_S):
                    await changed.wait()

    async def _tell(self, follower: RegistryFollower) -> None:
        predictions = self.predictions
        while True:
            await self._observed.wait()
            await self._clock.sleep(TELL_EVERY_S)
            self._observed.clear()
            arms = predictions.arms
            told, arms.observations = arms.observations, []
            await follower.tell(told)

    # Requests

    def handle(
        self, connection: HttpConnection, method: bytes, url: bytes, headers: Headers, body: bytes | bytearray
    ) -> None:
        """Answer one request of a connection."""
        route = self.routes.get(url) or self.routes.get(unquote_to_bytes(url.partition(b"?")[0]))
        try:
            if route is None and url.startswith(WITH_HEADERS):
                self._doors.handle(connection, method, url.partition(b"?")[0], headers, bytes(body))
            elif route is None:
                self._handle_view(connection, method, url)
            elif method != b"POST":
                connection.fail(405, "Method not allowed", "predict and update take POST")
            elif route[1]:
                self.predict(connection, route[0], body)
            else:
                self.feedback(connection, route[0], body)
        except LepaError as error:
            self._handle_mistake(connection, error.message, is_predict=bool(route and route[1]))

    def _handle_mistake(self, connection: HttpConnection, cause: str, is_predict: bool) -> None:
        name = "Json error" if cause.startswith(compat.PARSING) else "Query processing error"
        if not self.compat:
            connection.fail(400, name, cause)
        elif is_predict:
            connection.fail(400, name, compat.cause(cause, compat.PREDICT_SCHEMA))
        else:
            connection.reply(400, compat.cause(cause, compat.UPDATE_SCHEMA).encode())

    def _handle_view(self, connection: HttpConnection, method: bytes, url: bytes) -> None:
        path = url.partition(b"?")[0]
        view = self.views.get(url) or self.views.get(path)
        if view is None and not self.configured:
            connection.fail(503, "Not ready", "the management frontend has not told yet what is served; try again")
        elif view is None:
            text = path.decode(errors="replace")
            connection.fail(
                404, "Not found", f"nothing is served at {text}; an application answers at /{{app}}/predict"
            )
        elif method != b"GET":
            connection.fail(405, "Method not allowed", f"{path.decode()} takes GET")
        elif path == b"/health" and not self.configured:
            connection.reply(503, b'{"healthy":false}')
        else:
            connection.reply(200, view(), _TEXT if url == _PROMETHEUS else JSON)

    def predict(self, connection: HttpConnection, served: ServedApplication, body: bytes | bytearray) -> None:
        """Open the queries of one predict request."""
        data, version, user = served.input_type.decode_predict(body)
        now = self._clock.now()
        if isinstance(data, bytes):
            self.predictions.predict(served, data, version, partial(_answer, connection), now, user)
        elif not data:
            connection.reply(200, b'{"batch_predictions":[]}')
        else:
            together = _Together(connection, len(data))
            for position, item in enumerate(data):
                self.predictions.predict(served, item, version, partial(together.answer, position), now, user)
        self.wake()

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.now()

    def ask(self, served: ServedApplication, data: bytes, version: str, reply: Reply) -> None:
        """Open one query for somebody else than `predict`."""
        self.predictions.predict(served, data, version, reply, self._clock.now())
        self.wake()

    def feedback(self, connection: HttpConnection, served: ServedApplication, body: bytes | bytearray) -> None:
        """Learn from one update request."""
        user, data, label = served.input_type.decode_update(body)
        self.predictions.feedback(served, data, label, partial(_acknowledge, connection), self._clock.now(), user)
        self.wake()

    def _views(self) -> dict[bytes, Callable[[], bytes]]:
        """What GET answers with 200, by path and query."""
        predictions = self.predictions
        return {
            b"/metrics": lambda: msgspec.json.encode(report(predictions.metrics(), self._clock.now())),
            _PROMETHEUS: lambda: reports.prometheus(predictions).encode(),
            b"/top": lambda: msgspec.json.encode(reports.top(predictions, self._clock.now())),
            b"/health": lambda: b'{"healthy":true}',
        }


def _grpc_door() -> "type[GrpcDoor]":
    """gRPC is an extra, and takes a while to import: only who wants it needs it."""
    try:
        from lepa.serving.grpc_door import GrpcDoor
    except ImportError as error:
        raise LepaError(
            "unsupported", f'a port for gRPC needs the extra "grpc": pip install "lepa[grpc]" ({error})'
        ) from error
    return GrpcDoor


class _Together:
    """The answers to one `input_batch`, in the order of its inputs."""

    __slots__ = ("_bodies", "_connection", "_missing")

    def __init__(self, connection: HttpConnection, count: int) -> None:
        self._connection = connection
        self._bodies: list[bytes] = [b""] * count
        self._missing = count

    def answer(self, position: int, answer: Answer) -> None:
        self._bodies[position] = answer_body(answer)
        self._missing -= 1
        if not self._missing:
            one = len(self._bodies) == 1
            body = self._bodies[0] if one else b'{"batch_predictions":[%b]}' % b",".join(self._bodies)
            self._connection.reply(200, body)


def _answer(connection: HttpConnection, answer: Answer) -> None:
    connection.ok(answer_body(answer))


def _acknowledge(connection: HttpConnection, answer: Answer) -> None:
    connection.ok(b"Feedback received? " + answer.output)


def answer_body(answer: Answer) -> bytes:
    """An answer as the JSON of a predict response."""
    query_id, output, explanation, confidence = answer
    sure = b"" if confidence is None else b',"confidence":%.4f' % confidence
    if not explanation:
        return b'{"query_id":%d,"output":%b,"default":false%b}' % (query_id, output, sure)
    reason = msgspec.json.encode(explanation)
    return b'{"query_id":%d,"output":%b,"default":true,"default_explanation":%b%b}' % (query_id, output, reason, sure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a query frontend until SIGTERM or SIGINT."""
    options = _parser().parse_args(arguments)
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    settings = FrontendSettings(
        options.host,
        options.port,
        options.rpc_port,
        options.cache_bytes,
        options.compat == "clipper",
        options.discovery,
        options.grpc_port,
    )
    try:
        uvloop.run(_serve(settings, management_finder(options.management, options.discovery), options.ready_file))
    except (LepaError, OSError) as error:
        print(f"the query frontend could not start: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lepa.serving.frontend", description="Answer predictions over HTTP.")
    defaults = FrontendSettings()
    parser.add_argument("--host", default=defaults.host, help="address to listen on")
    parser.add_argument("--port", type=int, default=defaults.port, help="HTTP port, 0 for a free one")
    parser.add_argument("--rpc-port", type=int, default=defaults.rpc_port, help="port for model containers")
    parser.add_argument(
        "--grpc-port", type=int, help="port for the Open Inference Protocol over gRPC, 0 for a free one"
    )
    parser.add_argument("--cache-bytes", type=int, default=defaults.cache_bytes, help="bytes of the prediction cache")
    parser.add_argument("--compat", choices=("clipper",), help="speak of errors as Clipper did")
    parser.add_argument("--management", required=True, help="the management frontend: host:port, or service:NAME")
    parser.add_argument("--discovery", default="", help="where services are found, such as dns://127.0.0.1:8600/consul")
    parser.add_argument("--ready-file", type=Path, help="where to write the ports once everything listens")
    return parser


def management_finder(text: str, discovery: str) -> ManagementFinder:
    """How to find the management frontend that `text` names: at host:port, or by a look-up of service:NAME."""
    if not text.startswith("service:"):
        return partial(_fixed, parse_address(text))
    locator = Locator(dns_provider(discovery))
    return partial(asyncio.to_thread, locator.first, text.removeprefix("service:"))


async def _fixed(address: Address) -> Address:
    return address


async def _serve(settings: FrontendSettings, management: ManagementFinder, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with QueryFrontend(settings, management, SystemClock(), SystemRandom()) as frontend:
        log.info("query frontend listens port=%d rpc_port=%d", frontend.port, frontend.replicas.port)
        if ready_file:
            ports = {"port": frontend.port, "rpc_port": frontend.replicas.port}
            write_ready_file(ready_file, ports | ({"grpc_port": frontend.grpc_port} if frontend.grpc_port else {}))
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
