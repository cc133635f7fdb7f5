"""What clients ask of the agent that they talk to: who it is, and what is registered on its node and how that is."""

from hashlib import blake2b

from aiohttp import web

from lepa.catalog.table import Instance
from lepa.consul import views
from lepa.consul.edge import Guest, Route, filter_of, shown_response, text_response, waiting
from lepa.consul.indexes import View
from lepa.model import wire
from lepa.model.errors import not_found

READ_AS = "1.20.6"
"""The version of Consul whose API is spoken: what tools that ask for a version are told."""

HEALTH_CODES = {"passing": 200, "warning": 429, "critical": 503, "maintenance": 503}


async def myself(guest: Guest, request: web.Request) -> web.StreamResponse:
    """This agent as Consul describes one."""
    settings = guest.settings
    config = {
        "Datacenter": settings.datacenter,
        "PrimaryDatacenter": settings.datacenter,
        "NodeName": settings.node_name,
        "NodeID": settings.node_id,
        "Partition": "default",
        "Revision": "lepa",
        "Server": settings.server,
        "Version": READ_AS,
        "BuildDate": "2025-01-01T00:00:00Z",
    }
    shown = {
        "Config": config,
        "DebugConfig": {},
        "Coord": None,
        "Member": _member(guest),
        "Stats": {"agent": {"lepa": settings.version}},
        "Meta": {"consul-network-segment": ""},
    }
    return shown_response(request, shown)


def _member(guest: Guest) -> views.Json:
    settings = guest.settings
    return {
        "Name": settings.node_name,
        "Addr": settings.address,
        "Port": settings.server_port,
        "Tags": {
            "role": "consul" if settings.server else "node",
            "dc": settings.datacenter,
            "id": settings.node_id,
            "build": READ_AS,
            "segment": "",
            "vsn": "2",
        },
        "Status": 1,
        "ProtocolMin": 1,
        "ProtocolMax": 5,
        "ProtocolCur": 2,
        "DelegateMin": 2,
        "DelegateMax": 5,
        "DelegateCur": 4,
    }


async def members(guest: Guest, request: web.Request) -> web.StreamResponse:
    """The nodes that the cluster hears of, this agent among them."""
    me = _member(guest)
    others = [
        {**me, "Name": node.name, "Addr": node.address, "Tags": {**me["Tags"], "role": "node", "id": node.id}}
        for group in guest.catalog.view.table.nodes.values()
        for node in group
        if node.name != guest.settings.node_name
    ]
    return shown_response(request, [me, *others])


async def services(guest: Guest, request: web.Request) -> web.StreamResponse:
    """What is registered on this agent's node, by id."""
    keeps = filter_of(request.query.get("filter", ""))
    view = await guest.catalog.first()
    shown = {each.id: views.service_view(view, each) for each in _mine(guest, view)}
    return shown_response(request, {key: value for key, value in shown.items() if keeps is None or keeps(value)})


async def checks(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Checks of what is registered on this agent's node, by id, with the newest results."""
    keeps = filter_of(request.query.get("filter", ""))
    mine = _mine(guest, await guest.catalog.first())
    shown = {
        check.id: views.check_view(check, each, guest.settings.node_name, each.modify_index)
        for each in mine
        for check in views.instance_checks(each)
    }
    return shown_response(request, {key: value for key, value in shown.items() if keeps is None or keeps(value)})


def _mine(guest: Guest, view: View) -> list[Instance]:
    """Instances on this agent's node: of jobs as the catalog has them; what is registered here as it is here, because
    the catalog may not have the newest yet."""
    name = guest.settings.node_name
    others = [each for each in view.table.instances_on(name) if each.agent != name]
    return [*others, *(Instance.of(each, node_name=name) for each in guest.local.services.values())]


async def service(guest: Guest, request: web.Request) -> web.StreamResponse:
    """One service of this agent's node. Its hash stands in for an index: with `hash` it waits for another one."""
    wait, seen = waiting(request), request.query.get("hash", "")
    deadline = guest.clock.now() + wait.wait_s
    view = await guest.catalog.first()
    while True:
        found = next((each for each in _mine(guest, view) if each.id == request.match_info["id"]), None)
        if found is None:
            raise not_found(f'unknown service ID: "{request.match_info["id"]}"')
        shown = views.service_view(view, found) | {"Datacenter": guest.settings.datacenter}
        digest = blake2b(wire.to_json(shown), digest_size=8).hexdigest()
        left_s = deadline - guest.clock.now()
        if seen != digest or left_s <= 0:
            return shown_response(request, shown | {"ContentHash": digest}, {"X-Consul-ContentHash": digest})
        view = await guest.catalog.changed(lambda each: each.changed, view.changed, left_s)


async def health_by_id(guest: Guest, request: web.Request) -> web.StreamResponse:
    """How one service of this node is, told by the status of the answer."""
    found = [each for each in await _here(guest) if each.id == request.match_info["id"]]
    return _health(request, found, many=False, view=guest.catalog.view)


async def health_by_name(guest: Guest, request: web.Request) -> web.StreamResponse:
    """How all instances of a service on this node are, the worst of them told by the status of the answer."""
    found = [each for each in await _here(guest) if each.service == request.match_info["name"]]
    return _health(request, found, many=True, view=guest.catalog.view)


async def _here(guest: Guest) -> list[Instance]:
    return _mine(guest, await guest.catalog.first())


def _health(request: web.Request, found: list[Instance], *, many: bool, view: View) -> web.StreamResponse:
    status = views.aggregated(each.status for each in found)
    if any(check.id.startswith(views.MAINTENANCE) for each in found for check in each.checks):
        status = "maintenance"
    code = HEALTH_CODES[status] if found else 404
    if request.query.get("format") == "text":
        return text_response(code, status if found else "Service not found")
    shown = [
        {"AggregatedStatus": status, "Service": views.service_view(view, each), "Checks": _checks(each)}
        for each in found
    ]
    return shown_response(request, shown if many else shown[0] if shown else None, status=code)


def _checks(instance: Instance) -> list[views.Json]:
    return [
        views.check_view(check, instance, instance.node_name, instance.modify_index)
        for check in views.instance_checks(instance)
    ]


ROUTES = (
    Route("GET", "agent/self", myself),
    Route("GET", "agent/members", members),
    Route("GET", "agent/services", services),
    Route("GET", "agent/checks", checks),
    Route("GET", "agent/service/{id}", service),
    Route("GET", "agent/health/service/id/{id}", health_by_id),
    Route("GET", "agent/health/service/name/{name}", health_by_name),
)
