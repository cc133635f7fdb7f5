"""What handlers reach: the servers by `Caller`, this machine's node, this agent.

A table of routes is built from small handler makers; most reads are one line each.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from aiohttp import web
from msgspec.structs import replace

from lepa.api.page_policy import PageSettings
from lepa.api.request import common, json_response, read_request, reply_response
from lepa.kit.sources import Clock
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc.acl_requests import Authorized, AuthorizeRequest
from lepa.rpc.cluster_service import ClusterService
from lepa.rpc.methods import ACL_AUTHORIZE, Caller, Method
from lepa.rpc.node_service import NodeService
from lepa.rpc.requests import Members, Request

Q = TypeVar("Q", bound=Request)
Handle = Callable[["Edge", web.Request], Awaitable[web.StreamResponse]]


class AgentView(Protocol):
    """This agent, as its own API shows it."""

    def describe(self) -> dict[str, Any]:
        """The configuration in force with secrets left out, as `/v1/agent/self` shows it under "config"."""

    def stats(self) -> dict[str, dict[str, str]]:
        """Figures by part, all texts."""

    async def health(self) -> dict[str, tuple[bool, str]]:
        """Whether "server" and "client" work, with a sentence each; a part that is not enabled is absent."""

    def servers(self) -> list[str]:
        """Addresses of the servers that the client knows, `ip:port`, sorted; empty without a client."""

    async def members(self) -> Members:
        """Servers as this agent sees them."""

    def knows_region(self, region: str) -> bool:
        """Whether the way to a region is known, or left to the servers to find."""

    async def join(self, addresses: Sequence[str]) -> tuple[int, str, str]:
        """Join other servers: how many were reached, why none was, what is doubtful."""

    def force_leave(self, name: str, *, prune: bool) -> None:
        """Declare a failed server gone for good."""

    async def gossip_keyring(self, operation: str, key: str) -> dict[str, Any]:
        """list, install, use or remove a key of gossip on all servers, as Nomad shows it."""

    async def host(self) -> dict[str, Any]:
        """Facts about the host."""

    def reload(self) -> None:
        """Read the configuration again where that is possible."""

    def log_lines(self, level: str, *, as_json: bool) -> AsyncIterator[bytes]:
        """This agent's log from now on, line by line, until the caller stops."""

    def log_file(self) -> Path | None:
        """Where this agent's log is written, None when it is not."""

    def schedulers(self) -> dict[str, Any]:
        """Workers of this agent's server. Raises LepaError(unsupported) where there is none."""

    def cluster(self) -> ClusterService | None:
        """This agent's server among the others; None without one, or while it has no state yet."""

    async def update_metrics(self) -> None:
        """Bring gauges up to date before they are shown."""


class Settings(NamedTuple):
    """Settings of the edge.

    response_headers: added to every response. prometheus: serve metrics in that format. request_bytes_max: the largest
    body taken. region: of this agent. tls: how other agents are called; None for plain text. acl: whether callers have
    to show what they may do. pages: those for a browser.
    """

    region: str = "global"
    response_headers: tuple[tuple[str, str], ...] = ()
    prometheus: bool = True
    debug: bool = False
    tls: ssl.SSLContext | None = None
    acl: bool = False
    pages: PageSettings = PageSettings()


class Edge(NamedTuple):
    """Everything a handler may use."""

    caller: Caller
    agent: AgentView
    node: NodeService | None
    clock: Clock
    metrics: Metrics
    settings: Settings

    def check_region(self, region: str) -> None:
        """Raises LepaError for a region that no server is known of."""
        if region not in ("", self.settings.region) and not self.agent.knows_region(region):
            raise LepaError("not_found", "No path to region", http_status=500)

    async def authorize(self, request: web.Request, door: str, **about: Any) -> Authorized:
        """Whether the caller may pass a door, and where the node or allocation is that it is about (`node_id`,
        `alloc_id`, `task`). Raises LepaError.

        This agent's own servers answer from what they have; when that says no, the leader is asked, who knows best.
        """
        call = AuthorizeRequest(**{"door": door, **common(request), **about})
        try:
            return (await self.caller.call(ACL_AUTHORIZE, replace(call, stale=True))).value
        except LepaError as error:
            if error.code not in ("denied", "not_found"):
                raise
        return (await self.caller.call(ACL_AUTHORIZE, call)).value

    async def admit(self, request: web.Request, door: str, **about: Any) -> None:
        """Raise LepaError(denied) when the caller may not pass a door."""
        if self.settings.acl:
            await self.authorize(request, door, **about)


class ByVerb:
    """A handler for each verb; PUT's also answers POST."""

    def __init__(self, handlers: Mapping[str, Handle]) -> None:
        self.handlers = handlers

    async def __call__(self, edge: "Edge", request: web.Request) -> web.StreamResponse:
        """Let the verb's handler answer."""
        verb = "PUT" if request.method == "POST" else request.method
        return await self.handlers[verb](edge, request)


class Route(NamedTuple):
    """Verbs, a path after `/v1/`, and who answers. `{id}` holds one path segment, decoded."""

    verbs: str
    path: str
    handle: Handle


class Described(NamedTuple):
    """What a handler takes and gives, for the description of the API.

    method: the call that answers, whose answer is the response's body. body: the type of the request's body, None for
    none that has a type. query: parameters beside those of every read.
    """

    method: Method[Any, Any] | None = None
    body: Any = None
    query: tuple[str, ...] = ()


H = TypeVar("H", bound=Callable[..., Any])


def answers(method: Method[Any, Any] | None, body: Any = None, query: tuple[str, ...] = ()) -> Callable[[H], H]:
    """Say of a handler what it takes and gives."""

    def describe(handle: H) -> H:
        handle.described = Described(method, body, query)  # type: ignore[attr-defined]
        return handle

    return describe


def described(handle: Callable[..., Any]) -> Described:
    """What is known of a handler."""
    found: Described = getattr(handle, "described", Described())
    return found


def read(
    method: Method[Q, Any], *, missing: str = "", extra: Callable[[web.Request], dict[str, Any]] | None = None
) -> Handle:
    """A read that only needs its parameters. missing: the 404 text for a None value. extra: more request fields."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        fields = dict(request.match_info)
        if extra is not None:
            fields |= extra(request)
        reply = await edge.caller.call(method, read_request(request, method.request, **fields))
        return reply_response(request, reply, missing)

    return answers(method)(handle)


def write(
    method: Method[Q, Any], *, fields: Callable[[web.Request], Awaitable[dict[str, Any]]] | None = None
) -> Handle:
    """A write whose request is made of the path's names and `fields`; answers with its value and its index."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        given = dict(request.match_info)
        if fields is not None:
            given |= await fields(request)
        reply = await edge.caller.call(method, read_request(request, method.request, **given))
        headers = {"X-Nomad-Index": str(reply.index)}
        if reply.value is None:
            return web.Response(headers=headers, content_type="application/json")
        return json_response(request, reply.value, headers=headers)

    return answers(method)(handle)
