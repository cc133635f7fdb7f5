"""What handlers of Consul's API share: parameters in, headers and bodies out, blocking reads.

Consul's habits that differ from Nomad's: errors are plain text, a wrong verb is 405 with the verbs that would do, lists
are never null, and every read tells its index in `X-Consul-Index`, which is never 0.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from lepa.catalog.table import Instance
from lepa.consul.following import Following
from lepa.consul.indexes import View
from lepa.consul.local_services import LocalServices
from lepa.consul.views import Asked
from lepa.kit.bexpr import FilterError, compile_filter
from lepa.kit.durations import SECOND, parse_duration
from lepa.kit.sources import Clock, Random
from lepa.model import wire
from lepa.model.errors import LepaError, invalid
from lepa.sdk.address import Params
from lepa.sdk.async_connection import AsyncConnection
from lepa.sdk.connection import Answer

WAIT_DEFAULT_S = 300.0
WAIT_MAX_S = 600.0
WAIT_JITTER = 16
"""A wait takes up to this part of itself longer, so that callers do not come back together."""

BODIES_SIZE_MAX = 16 << 20
"""Octets of encoded answers that are kept, before all are forgotten."""
BODY_OVERHEAD = 1_024
"""Octets that a kept answer is taken to cost beside its own."""

TRUE, FALSE = {"", "1", "t", "T", "true", "TRUE", "True"}, {"0", "f", "F", "false", "FALSE", "False"}


class ConsulSettings(NamedTuple):
    """Who this agent is to clients of Consul.

    node_name, node_id, address: its node, or the agent itself where no node runs. namespace: whose services are shown
    when a request does not name another. server: whether it runs a server, whose internal port is server_port.
    """

    node_name: str
    address: str
    node_id: str = ""
    datacenter: str = "dc1"
    namespace: str = "default"
    server: bool = True
    server_port: int = 4647
    version: str = ""


def own_services(settings: ConsulSettings) -> tuple[Instance, ...]:
    """What Consul's servers register of themselves: the service `consul`."""
    if not settings.server:
        return ()
    return (
        Instance(
            id="consul",
            service="consul",
            namespace=settings.namespace,
            node_id=settings.node_id,
            node_name=settings.node_name,
            datacenter=settings.datacenter,
            port=settings.server_port,
        ),
    )


class Bodies:
    """Encoded answers of the newest view: many clients ask for the same again and again."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._kept: dict[Any, bytes] = {}
        self._size = 0

    def of(self, view: View, key: Any, show: Callable[[], Any]) -> bytes:
        """The body under `key`, made when it is asked for first. All are forgotten when there is a newer view."""
        if view is not self._view or self._size >= BODIES_SIZE_MAX:
            self._view, self._kept, self._size = view, {}, 0
        if key not in self._kept:
            body = self._kept[key] = wire.to_json(show())
            self._size += len(body) + BODY_OVERHEAD
        return self._kept[key]


class Guest(NamedTuple):
    """Everything that a handler may use. acl: whether callers have to show a token; `api` is then as the caller's."""

    settings: ConsulSettings
    catalog: Following
    local: LocalServices
    api: AsyncConnection
    clock: Clock
    random: Random
    bodies: Bodies
    acl: bool = False


Handle = Callable[["Guest", web.Request], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """Verbs, a path after `/v1/`, and who answers."""

    verbs: str
    path: str
    handle: Handle


class Waiting(NamedTuple):
    """How long a read may wait: until something is newer than `seen` (0: not at all) or wait_s have passed."""

    seen: int
    wait_s: float
    consistency: str


def waiting(request: web.Request) -> Waiting:
    """The blocking parameters of a read. Raises LepaError(invalid)."""
    query = request.query
    text = query.get("index", "") or "0"
    if not text.isascii() or not text.isdigit():
        raise invalid("Invalid index")
    stale, consistent = flag(query, "stale"), flag(query, "consistent")
    if stale and consistent:
        raise invalid("Cannot specify ?stale with ?consistent, conflicting semantics.")
    if flag(query, "cached") and consistent:
        raise invalid("Cannot specify ?cached with ?consistent, conflicting semantics.")
    return Waiting(int(text), _wait_s(query.get("wait", "")), "stale" if stale else "leader")


def _wait_s(text: str) -> float:
    if not text:
        return WAIT_DEFAULT_S
    try:
        wait_s = parse_duration(text) / SECOND
    except ValueError as error:
        raise invalid("Invalid wait time") from error
    return min(wait_s, WAIT_MAX_S) if wait_s > 0 else WAIT_DEFAULT_S


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean that is true when it is only named."""
    text = query.get(name)
    if text is None or text in FALSE:
        return False
    if text in TRUE:
        return True
    raise invalid(f'Invalid value for ?{name}: "{text}" is neither true nor false')


def asked(guest: Guest, request: web.Request) -> Asked:
    """What a read of the catalog asks for. Raises LepaError(invalid)."""
    query = request.query
    near = query.get("near", "")
    return Asked(
        name=request.match_info.get("name", ""),
        namespace=query.get("ns") or guest.settings.namespace,
        datacenter=_datacenter(guest, query.get("dc", "")),
        tags=tuple(query.getall("tag", [])),
        passing=flag(query, "passing"),
        near=guest.settings.node_name if near == "_agent" else near,
        node_meta=tuple(_pair(text) for text in query.getall("node-meta", [])),
        keeps=filter_of(query.get("filter", "")),
    )


def _datacenter(guest: Guest, name: str) -> str:
    """A datacenter that is known; "" for all of them."""
    if name and name != guest.settings.datacenter and name.lower() not in guest.catalog.view.table.places:
        raise LepaError("internal", "No path to datacenter")
    return name


def _pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    return key, value if colon else ""


def filter_of(text: str) -> Callable[[Any], bool] | None:
    """The filter of a request; None when there is none. Raises LepaError(invalid)."""
    if not text:
        return None
    try:
        return compile_filter(text)
    except FilterError as error:
        raise invalid(f"Failed to create boolean expression evaluator: {error}") from error


def read(show: Callable[[View, Asked], Any], index_of: Callable[[View, Asked], int]) -> Handle:
    """A blocking read of the catalog: what it shows, and the index of that."""

    async def handle(guest: Guest, request: web.Request) -> web.StreamResponse:
        view = await guest.catalog.first()
        wanted, wait = asked(guest, request), waiting(request)
        if wait.seen:
            longer = guest.random.uniform(0, wait.wait_s / WAIT_JITTER)
            view = await guest.catalog.changed(lambda each: index_of(each, wanted), wait.seen, wait.wait_s + longer)
        fresh = headers(index_of(view, wanted), wait.consistency)
        if wanted.keeps is None:
            return body_response(request, guest.bodies.of(view, (show, wanted), lambda: show(view, wanted)), fresh)
        try:
            return shown_response(request, show(view, wanted), fresh)
        except FilterError as error:
            raise invalid(f"Failed to filter: {error}") from error

    return handle


async def json_object(request: web.Request) -> dict[str, Any]:
    """The body, which has to be a JSON object; {} when there is none. Raises LepaError(invalid)."""
    body = await json_body(request)
    if not isinstance(body, dict):
        raise invalid("Request decode error: expected a JSON object")
    return body


async def json_body(request: web.Request) -> Any:
    """The decoded body; {} when there is none. Raises LepaError(invalid)."""
    raw = await request.read()
    try:
        return msgspec.json.decode(raw) if raw.strip() else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Request decode error: {error}") from error


async def forward(guest: Guest, method: str, path: str, body: Any = None, params: Params | None = None) -> Answer:
    """A write to the agent's API; its refusal keeps the status that it had there."""
    try:
        return await guest.api.send(method, path, params, body)
    except LepaError as error:
        status = error.facts.get("status")
        raise LepaError(error.code, error.message, **({"http_status": status} if status else {})) from error


def headers(index: int, consistency: str = "leader") -> dict[str, str]:
    """How fresh an answer is."""
    return {
        "X-Consul-Index": str(max(1, index)),
        "X-Consul-KnownLeader": "true",
        "X-Consul-LastContact": "0",
        "X-Consul-Effective-Consistency": consistency,
        "X-Consul-Default-ACL-Policy": "allow",
        "X-Consul-Query-Backend": "blocking-query",
    }


def shown_response(
    request: web.Request, value: Any, extra: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """A JSON answer, indented when `pretty` asks for it."""
    return body_response(request, wire.to_json(value), extra, status)


def body_response(
    request: web.Request, body: bytes, extra: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """An answer that is JSON already."""
    if "pretty" in request.query:
        body = msgspec.json.format(body, indent=4) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json", headers=extra)


def text_response(status: int, message: str, extra: Mapping[str, str] | None = None) -> web.Response:
    """An error, or an answer that is no JSON."""
    return web.Response(status=status, text=message, content_type="text/plain", charset="utf-8", headers=extra)
