"""This agent: `/v1/agent/…` and `/v1/metrics`."""

import asyncio

from aiohttp import web

from lepa.api.edge import Edge, Route
from lepa.api.forward import node_by_id, pass_on
from lepa.api.prometheus import exposition
from lepa.api.request import flag, json_object, json_response, text_response, typed_member
from lepa.kit.durations import rfc3339
from lepa.model.errors import LepaError, invalid
from lepa.rpc.requests import Member

PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def self_info(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Configuration, membership and figures of this agent."""
    members = await edge.agent.members()
    own = next((member for member in members.members if member.name == members.server_name), Member())
    return json_response(request, {"config": edge.agent.describe(), "member": own, "stats": edge.agent.stats()})


async def members(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Servers, as this agent sees them."""
    return json_response(request, await edge.agent.members())


async def health(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Whether the parts work; 500 with the same body when one does not."""
    found = await edge.agent.health()
    wanted = request.query.getall("type", [])
    for part in wanted:
        if part not in {"client", "server"}:
            raise invalid(f'type must be "client" or "server", not "{part}"')
        found.setdefault(part, (False, f"{part} not enabled"))
    shown = {part: state for part, state in found.items() if not wanted or part in wanted}
    body = {part: {"ok": ok, "message": message} for part, (ok, message) in shown.items()}
    return json_response(request, body, status=200 if all(ok for ok, _ in shown.values()) else 500)


async def servers(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Servers that this agent's client knows."""
    if edge.node is None:
        raise LepaError("unsupported", "Client only endpoint: this agent runs no client")
    return json_response(request, edge.agent.servers())


async def set_servers(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Tell this agent's client other servers. Its servers are a setting, which a running client keeps."""
    if not request.query.getall("address", []):
        raise invalid("missing server address")
    raise LepaError("unsupported", "servers are set by `client { servers }` and a restart of the agent")


async def host(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Facts about the host, for those who debug."""
    if request.query.get("node_id"):
        place = await node_by_id(edge, request)
        if isinstance(place, str):
            return await pass_on(request, place)
    if edge.settings.acl:
        await edge.admit(request, "Agent.Read" if edge.settings.debug else "Agent.Debug")
    elif not edge.settings.debug:
        raise LepaError("denied", "Permission denied")
    return json_response(request, await edge.agent.host())


async def reload(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Read the configuration again where that is possible."""
    edge.agent.reload()
    return web.Response(content_type="application/json")


async def join(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Join other servers by gossip."""
    addresses = request.query.getall("address", [])
    if not addresses:
        raise invalid("missing address to join")
    joined, error, warning = await edge.agent.join(addresses)
    return json_response(request, {"num_joined": joined, "error": error, "warning": warning})


async def force_leave(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Declare a failed server gone for good."""
    name = request.query.get("node", "")
    if not name:
        raise invalid("missing node to force leave")
    edge.agent.force_leave(name, prune="prune" in request.query and flag(request.query, "prune", True))
    return web.Response(content_type="application/json")


async def list_gossip_keys(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Keys of gossip, and how many servers have each."""
    return json_response(request, await edge.agent.gossip_keyring("list", ""))


async def change_gossip_keys(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Install, use or remove a key of gossip on all servers."""
    key = typed_member(await json_object(request), "Key", str, "")
    if not key:
        raise invalid("Key is missing: the key as base64")
    return json_response(request, await edge.agent.gossip_keyring(request.path.rpartition("/")[2], key))


async def metrics(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Metrics as JSON, or in Prometheus' text format."""
    await edge.agent.update_metrics()
    if request.query.get("format") != "prometheus":
        return json_response(request, edge.metrics.summary(_timestamp(edge)))
    if not edge.settings.prometheus:
        return text_response(415, "Prometheus is not enabled")
    return web.Response(
        body=await asyncio.to_thread(exposition, edge.metrics), headers={"Content-Type": PROMETHEUS_TYPE}
    )


def _timestamp(edge: Edge) -> str:
    seconds = edge.clock.now_ns() // 1_000_000_000
    return rfc3339(seconds * 1_000_000_000).replace("T", " ").replace("Z", " +0000 UTC")


ROUTES = (
    Route("GET", "agent/self", self_info),
    Route("GET", "agent/members", members),
    Route("GET", "agent/health", health),
    Route("GET", "agent/servers", servers),
    Route("PUT POST", "agent/servers", set_servers),
    Route("GET", "agent/host", host),
    Route("PUT POST", "agent/reload", reload),
    Route("PUT POST", "agent/join", join),
    Route("PUT POST", "agent/force-leave", force_leave),
    Route("GET", "agent/keyring/list", list_gossip_keys),
    Route("PUT POST", "agent/keyring/install", change_gossip_keys),
    Route("PUT POST", "agent/keyring/use", change_gossip_keys),
    Route("PUT POST", "agent/keyring/remove", change_gossip_keys),
    Route("GET", "metrics", metrics),
)
