"""Who may call what while access control is on: the caller's own token decides, as anywhere else.

What is stored goes through the agent's API with the caller's token. Before something is read from this agent's own
table, its API is asked for the like with the caller's token; a yes is believed for some seconds. Namespace `*` is for
management tokens.
"""

from typing import Final

from aiohttp import web

from lepa.consul.edge import Guest, Route
from lepa.sdk.address import Params

BELIEVED_S: Final = 5.0
BELIEVED_MAX: Final = 10_000

OPEN: Final = frozenset(
    {"status/leader", "status/peers", "catalog/datacenters", "event/list", "health/connect/{name}", "agent/maintenance"}
)
"""What says nothing about services or nodes."""
OF_NODES: Final = frozenset({"catalog/nodes", "agent/members"})
OF_BOTH: Final = frozenset({"catalog/node/{name}", "catalog/node-services/{name}", "health/node/{name}"})
OF_AGENT: Final = frozenset({"agent/self"})
STORED: Final = ("kv/", "session/", "txn")
"""What is read through the agent's API, with the caller's token."""

Probe = tuple[str, str]
"""A path, and a namespace."""


class Doorkeeper:
    """Lets callers through, or raises LepaError(denied)."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, Probe], float] = {}

    async def admit(self, guest: Guest, route: Route, request: web.Request) -> Guest:
        """The guest as this caller's: with their token. Raises LepaError."""
        secret = token(request)
        served = guest._replace(api=guest.api.with_token(secret))
        for probe in probes(route, request.query.get("ns") or guest.settings.namespace):
            now = guest.clock.now()
            if self._until.get((secret, probe), 0.0) > now:
                continue
            path, namespace = probe
            query: Params = {"namespace": namespace or None, "per_page": 1}
            await served.api.get(path, query)
            if len(self._until) >= BELIEVED_MAX:
                self._until.clear()
            self._until[secret, probe] = now + BELIEVED_S
        return served


def probes(route: Route, namespace: str) -> tuple[Probe, ...]:
    """What a caller has to be able to read in the agent's API to be answered here."""
    if route.path in OPEN or route.verbs != "GET" or route.path.startswith(STORED):
        return ()
    if route.path in OF_AGENT:
        return (("/v1/agent/self", ""),)
    nodes = (("/v1/nodes", ""),) if route.path in OF_NODES | OF_BOTH else ()
    if route.path in OF_NODES:
        return nodes
    services = ("/v1/services", namespace) if namespace != "*" else ("/v1/acl/tokens", "")
    return (*nodes, services)


def token(request: web.Request) -> str:
    """The token that a caller shows, as clients of Consul do."""
    if given := request.headers.get("X-Consul-Token") or request.headers.get("X-Nomad-Token"):
        return given
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else request.query.get("token", "")
