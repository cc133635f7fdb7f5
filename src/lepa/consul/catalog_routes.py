"""Reads of catalog, health and status."""

from aiohttp import web

from lepa.consul import views
from lepa.consul.edge import Guest, Route, headers, read, shown_response
from lepa.consul.indexes import View
from lepa.consul.views import STATUSES, Asked
from lepa.model.errors import invalid


def _whole(view: View, asked: Asked) -> int:
    return view.changed


def _nodes(view: View, asked: Asked) -> int:
    return view.nodes


def _one_service(view: View, asked: Asked) -> int:
    return view.index_of(asked.namespace, asked.name)


def _state(view: View, asked: Asked) -> list[views.Json]:
    if asked.name not in ("any", *STATUSES):
        raise invalid(f'Invalid state "{asked.name}": expected any, passing, warning or critical')
    return views.health_state(view, asked)


async def datacenters(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Names of all datacenters."""
    return shown_response(request, views.datacenters(guest.catalog.view, guest.settings.datacenter))


async def connect(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Instances that a mesh would offer: none."""
    return shown_response(request, [], headers(guest.catalog.view.changed))


async def leader(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Address of the leading server."""
    return shown_response(request, (await guest.api.get("/v1/status/leader")).value or "")


async def peers(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Addresses of all servers."""
    return shown_response(request, (await guest.api.get("/v1/status/peers")).value or [])


ROUTES = (
    Route("GET", "catalog/datacenters", datacenters),
    Route("GET", "catalog/nodes", read(views.nodes, _nodes)),
    Route("GET", "catalog/node/{name}", read(views.node, _whole)),
    Route("GET", "catalog/node-services/{name}", read(views.node_services, _whole)),
    Route("GET", "catalog/services", read(views.services, _whole)),
    Route("GET", "catalog/service/{name}", read(views.service, _one_service)),
    Route("GET", "health/node/{name}", read(views.health_node, _whole)),
    Route("GET", "health/checks/{name}", read(views.health_checks, _one_service)),
    Route("GET", "health/service/{name}", read(views.health_service, _one_service)),
    Route("GET", "health/connect/{name}", connect),
    Route("GET", "health/state/{name}", read(_state, _whole)),
    Route("GET", "status/leader", leader),
    Route("GET", "status/peers", peers),
)
