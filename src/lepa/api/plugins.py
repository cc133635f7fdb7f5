"""Storage plugins, as Nomad's clients ask for them. None are run here, so lists are empty and nothing is found."""

from aiohttp import web

from lepa.api.edge import Edge, Route
from lepa.api.request import json_response
from lepa.model.errors import not_found


async def list_plugins(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Storage plugins: none."""
    if request.query.get("type", "csi") not in ("", "csi"):
        raise not_found(f'no plugins of type "{request.query["type"]}"')
    return json_response(request, [], headers={"X-Nomad-Index": "1"})


async def get_plugin(edge: Edge, request: web.Request) -> web.StreamResponse:
    """One storage plugin: not found."""
    raise not_found("plugin not found")


ROUTES = (
    Route("GET", "plugins", list_plugins),
    Route("GET", "plugin/csi/{id}", get_plugin),
)
