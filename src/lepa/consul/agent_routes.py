"""What clients ask of the agent that they talk to: who it is and what is registered on its node."""

from aiohttp import web

from lepa.consul import views
from lepa.consul.edge import Guest, Route, filter_of, shown_response

READ_AS = "1.20.6"
"""The version of Consul whose API is spoken: what tools that ask for a version are told."""


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
    view, keeps = guest.catalog.view, filter_of(request.query.get("filter", ""))
    mine = view.table.instances_on(guest.settings.node_name)
    shown = {each.id: views.service_view(view, each) for each in mine}
    return shown_response(request, {key: value for key, value in shown.items() if keeps is None or keeps(value)})


async def checks(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Checks of what is registered on this agent's node, by id."""
    view, keeps = guest.catalog.view, filter_of(request.query.get("filter", ""))
    shown = {
        check.id: views.check_view(check, each, guest.settings.node_name, each.modify_index)
        for each in view.table.instances_on(guest.settings.node_name)
        for check in views.instance_checks(each)
    }
    return shown_response(request, {key: value for key, value in shown.items() if keeps is None or keeps(value)})


ROUTES = (
    Route("GET", "agent/self", myself),
    Route("GET", "agent/members", members),
    Route("GET", "agent/services", services),
    Route("GET", "agent/checks", checks),
)
