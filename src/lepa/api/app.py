"""The HTTP application: routes, errors, and the server that listens.

`Api` is what the agent starts. Unknown paths are 404 without a body, a wrong verb is 405 `Invalid method`, a LepaError
is its message as plain text, and anything else is 500 with a sentence and the details in the log.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web

from lepa.api import (
    acl,
    agent,
    cluster,
    debug,
    enterprise,
    files,
    jobs,
    keyring,
    kv,
    openapi,
    resources,
    serving,
    streams,
    variables,
    volumes,
)
from lepa.api.doors import door_of
from lepa.api.edge import Edge, Handle, Route
from lepa.api.forward import TLS
from lepa.api.pages import add_pages
from lepa.api.request import BODY_MAX, error_response, text_response
from lepa.kit.doorman import Doorman, Limits, heard, listen
from lepa.model.errors import LepaError

log = logging.getLogger(__name__)

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *resources.ROUTES,
    *serving.ROUTES,
    *kv.ROUTES,
    *volumes.ROUTES,
    *files.ROUTES,
    *streams.ROUTES,
    *agent.ROUTES,
    *cluster.ROUTES,
    *debug.ROUTES,
    *enterprise.ROUTES,
    *acl.ROUTES,
    *variables.ROUTES,
    *keyring.ROUTES,
    openapi.route_of(lambda: ROUTES),
)
SHUTDOWN_S = 2.0
CALLER_LEFT = 499
"""Counted for a request whose connection ended before its answer did."""

Bound = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(edge: Edge, middlewares: Iterable[Any] = ()) -> web.Application:
    """The application with every route of the table. middlewares: what every request passes first."""
    app = web.Application(client_max_size=BODY_MAX, middlewares=tuple(middlewares))
    if edge.settings.tls is not None:
        app[TLS] = edge.settings.tls
    app[streams.FEEDS] = streams.feeds_of(edge)
    by_path: dict[str, list[Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, []).append(route)
    for path, routes in by_path.items():
        _add(app, edge, f"/v1/{path}", routes)
    for route in keyring.WELL_KNOWN:
        _add(app, edge, f"/{route.path}", [route])
    add_pages(app, edge.settings.pages)
    app.router.add_route("*", "/{tail:.*}", _unknown)
    return app


def _add(app: web.Application, edge: Edge, path: str, routes: list[Route]) -> None:
    resource = app.router.add_resource(path)
    for route in routes:
        name = f"{route.verbs.split()[0]} {path}"
        for verb in route.verbs.split():
            resource.add_route(verb, bind(edge, _behind(door_of(verb, route.path), route.handle), name))
    resource.add_route("*", bind(edge, _invalid_method, "invalid"))


def _behind(door: str, handle: Handle) -> Handle:
    """The handler behind its door, where it has one."""
    if not door:
        return handle
    of_allocation, of_node = door.startswith("Allocation."), door.startswith("Node.")

    async def behind(edge: Edge, request: web.Request) -> web.StreamResponse:
        about = {"alloc_id": request.match_info["id"]} if of_allocation else {}
        about |= {"node_id": request.query["node_id"]} if of_node and request.query.get("node_id") else {}
        await edge.admit(request, door, **about)
        return await handle(edge, request)

    return behind


def bind(edge: Edge, handle: Handle, name: str) -> Bound:
    """The handler as aiohttp wants it: with the edge bound, errors mapped and the time it took counted."""
    extra_headers = edge.settings.response_headers

    async def bound(request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        try:
            if request.query_string:
                edge.check_region(request.query.get("region", ""))
            response = await handle(edge, request)
        except LepaError as error:
            response = error_response(error)
        except web.HTTPRequestEntityTooLarge:
            response = text_response(413, f"request body is larger than {BODY_MAX} bytes")
        except web.HTTPException as error:
            response = text_response(error.status, error.reason)
        except ConnectionError:
            response = _hang_up(request)
        except TimeoutError:
            response = text_response(504, "no answer in time")
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            response = text_response(500, "internal error; the agent's log has the details")
        if request.writer.output_size and not response.prepared:
            response = _hang_up(request)
        edge.metrics.sample("nomad.http.request", (time.perf_counter() - started) * 1000, path=name)
        if extra_headers and not response.prepared:
            response.headers.update(extra_headers)
        return response

    return bound


def _hang_up(request: web.Request) -> web.StreamResponse:
    """End the connection: the caller has left, or an answer that has begun cannot go on.

    Nothing of the response that is returned arrives; it tells aiohttp that the request is done.
    """
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=CALLER_LEFT)


async def _invalid_method(edge: Edge, request: web.Request) -> web.StreamResponse:
    return text_response(405, "Invalid method")


async def _unknown(request: web.Request) -> web.StreamResponse:
    if request.path == "/":
        return text_response(200, "lepa answers below /v1/; see `lepa --help` for the command line\n")
    return web.Response(status=404)


class Api:
    """The listening server. As an async context manager it listens while it is entered."""

    def __init__(
        self, edge: Edge, addresses: Iterable[tuple[str, int]], *, ssl: Any = None, limits: Limits | None = None
    ) -> None:
        self._edge = edge
        self._addresses = tuple(addresses)
        self._ssl = ssl
        self._limits = limits or Limits()
        self._runner: web.AppRunner | None = None
        self._listeners: list[asyncio.Server] = []

    async def __aenter__(self) -> "Api":
        runner = web.AppRunner(
            build(self._edge, (heard,)),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
        )
        await runner.setup()
        assert runner.server is not None
        self._runner = runner
        doorman = Doorman(runner.server, self._limits, self._count)
        for host, port in self._addresses:
            try:
                self._listeners.append(await listen(doorman, host, port, self._ssl))
            except OSError as error:
                await self.__aexit__()
                raise _cannot_listen(host, port, error) from error
        return self

    def _count(self, connections: int, refused: bool) -> None:
        self._edge.metrics.gauge("nomad.agent.http.connections", connections)
        if refused:
            self._edge.metrics.count("nomad.agent.http.exceeded")

    async def __aexit__(self, *_: object) -> None:
        while self._listeners:
            self._listeners.pop().close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def ports(self) -> list[int]:
        """Ports that are listened on; useful when 0 was asked for."""
        return [each.getsockname()[1] for listener in self._listeners for each in listener.sockets]


def _cannot_listen(host: str, port: int, error: OSError) -> LepaError:
    if error.errno == errno.EADDRINUSE:
        return LepaError(
            "conflict",
            f"cannot listen on {host}:{port}: another process uses the port; stop it, or set `ports {{ http = … }}`",
        )
    return LepaError("invalid", f"cannot listen on {host}:{port}: {error.strerror or error}")
