"""The part of Consul's HTTP API that clients of discovery call, on a port of its own.

It is a guest of the cluster: what it shows comes from the catalog's table, what it stores goes through the agent's HTTP
API like anyone else's. Unknown paths are 404, a wrong verb is 405 with the right ones in `Allow`, a LepaError is its
message as plain text.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from aiohttp import web

from lepa.consul import access, agent_routes, catalog_routes, kv_routes, registration_routes
from lepa.consul.edge import Guest, Route, text_response
from lepa.model.errors import Code, LepaError

log = logging.getLogger(__name__)

ROUTES: tuple[Route, ...] = (
    *catalog_routes.ROUTES,
    *registration_routes.ROUTES,
    *agent_routes.ROUTES,
    *kv_routes.ROUTES,
)
BODY_MAX = 2 * 1024 * 1024
SHUTDOWN_S = 1.0
BACKLOG = 1024

STATUS: dict[Code, int] = {
    "invalid": 400,
    "not_found": 404,
    "conflict": 409,
    "denied": 403,
    "no_leader": 500,
    "timeout": 500,
    "unsupported": 400,
    "internal": 500,
}

Bound = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(guest: Guest) -> web.Application:
    """The application with every route."""
    app = web.Application(client_max_size=BODY_MAX)
    by_path: dict[str, list[Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, []).append(route)
    doorkeeper = access.Doorkeeper()
    for path, routes in by_path.items():
        _add(app, guest, path, routes, doorkeeper)
    app.router.add_get("/", _front)
    app.router.add_route("*", "/{tail:.*}", _unknown)
    return app


def _add(app: web.Application, guest: Guest, path: str, routes: list[Route], doorkeeper: access.Doorkeeper) -> None:
    resource = app.router.add_resource(f"/v1/{path}")
    verbs = [verb for route in routes for verb in route.verbs.split()]
    for route in routes:
        for verb in route.verbs.split():
            resource.add_route(verb, _bound(guest, route, doorkeeper))
    resource.add_route("*", _other_verb(verbs))


def _bound(guest: Guest, route: Route, doorkeeper: access.Doorkeeper) -> Bound:
    async def bound(request: web.Request) -> web.StreamResponse:
        try:
            served = await doorkeeper.admit(guest, route, request) if guest.acl else guest
            return await route.handle(served, request)
        except LepaError as error:
            return text_response(int(error.facts.get("http_status", STATUS[error.code])), error.message)
        except web.HTTPRequestEntityTooLarge:
            return text_response(413, f"Request body too large, max size: {BODY_MAX} bytes")
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            return text_response(500, "internal error; the agent's log has the details")

    return bound


def _other_verb(verbs: list[str]) -> Bound:
    allow = {"Allow": ",".join(["OPTIONS", *verbs])}

    async def other(request: web.Request) -> web.StreamResponse:
        if request.method == "OPTIONS":
            return web.Response(headers=allow)
        return text_response(405, f"method {request.method} not allowed", allow)

    return other


async def _front(request: web.Request) -> web.StreamResponse:
    return text_response(200, "Consul Agent: the part of its API that lepa answers is below /v1/\n")


async def _unknown(request: web.Request) -> web.StreamResponse:
    return text_response(404, f"Invalid URL path: not a recognized HTTP API endpoint: {request.path}")


class ConsulApi:
    """The listening server. As an async context manager it listens while it is entered."""

    def __init__(self, guest: Guest, host: str, port: int) -> None:
        self._guest = guest
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = build(self._guest)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        self._runner = runner
        try:
            await web.TCPSite(runner, self._host, self._port, backlog=BACKLOG).start()
        except OSError as error:
            await runner.cleanup()
            raise _cannot_listen(self._host, self._port, error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def port(self) -> int:
        """The port that is listened on; useful when 0 was asked for."""
        return int(self._runner.addresses[0][1]) if self._runner else self._port


def _cannot_listen(host: str, port: int, error: OSError) -> LepaError:
    if error.errno == errno.EADDRINUSE:
        said = "another program has the port (Consul itself?); stop it, or set `consul_api { port = … }`"
        return LepaError("conflict", f"cannot listen on {host}:{port} for Consul's API: {said}")
    return LepaError("invalid", f"cannot listen on {host}:{port} for Consul's API: {error.strerror or error}")
