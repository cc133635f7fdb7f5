"""The port for people and programs that watch an ingress: routes, what is wrong with them, health, metrics.

GET /health        OK, or 503 while no table has come or the ingress is ending
GET /api/routes    every route and target, in Fabio's shape; `?raw` in its route language
GET /api/notices   tags that are not followed, ports that cannot be had, certificates that cannot be used
GET /api/config    the settings in force
GET /api/version   the version of lepa
GET /metrics       Prometheus
GET /routes        the routes as a page
"""

from html import escape

import msgspec
from aiohttp import web

from lepa import __version__
from lepa.ingress.plane import Plane
from lepa.ingress.route_list import listed, raw
from lepa.model.errors import conflict

SHUTDOWN_S = 1.0


class Admin:
    """Serves the port, as an async context manager. It answers from the plane and changes nothing."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "Admin":
        settings = self._plane.settings
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/api/routes", self._routes),
                web.get("/api/notices", self._notices),
                web.get("/api/config", self._config),
                web.get("/api/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/routes", self._page),
                web.get("/", self._start),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, settings.ui_address, settings.ui).start()
        except OSError as error:
            await self._runner.cleanup()
            raise conflict(
                f"ingress: cannot listen on {settings.ui_address} port {settings.ui} (ui): {error.strerror or error}"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        traffic = self._plane.traffic
        if traffic.draining:
            return web.Response(status=503, text="ending\n")
        return web.Response(text="OK\n") if traffic.knows_routes else web.Response(status=503, text="no routes yet\n")

    async def _routes(self, request: web.Request) -> web.Response:
        table = self._plane.traffic.table
        if "raw" in request.query:
            return web.Response(text=raw(table))
        return _json(listed(table))

    async def _notices(self, _: web.Request) -> web.Response:
        return _json(self._plane.notices())

    async def _config(self, _: web.Request) -> web.Response:
        return _json(self._plane.settings)

    async def _version(self, _: web.Request) -> web.Response:
        return web.Response(text=__version__ + "\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = self._plane.traffic.counters.exposition(self._plane.gauges())
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _page(self, _: web.Request) -> web.Response:
        table = self._plane.traffic.table
        rows = "".join(
            f"<tr><td>{escape(each['service'])}<td>{escape(each['src'])}<td>{escape(each['dst'])}"
            f"<td>{each['weight']:.1%}<td>{escape(each['opts'])}<td>{'yes' if each['healthy'] else 'no'}"
            for each in listed(table)
        )
        notices = "".join(
            f"<li>{escape(each.service)} <code>{escape(each.tag)}</code> {escape(each.problem)}"
            for each in self._plane.notices()
        )
        page = (
            "<!doctype html><meta charset=utf-8><title>Ingress routes</title>"
            "<style>body{font:14px sans-serif;margin:2em}td,th{text-align:left;padding:.2em 1em}</style>"
            "<h1>Routes</h1><table><tr><th>Service<th>Source<th>Destination<th>Share<th>Options<th>Healthy"
            f"{rows}</table><h2>Not followed</h2><ul>{notices}</ul>"
        )
        return web.Response(text=page, content_type="text/html")

    async def _start(self, _: web.Request) -> web.Response:
        raise web.HTTPFound("/routes")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
