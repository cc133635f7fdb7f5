"""What Nomad has in its Enterprise edition only: answered as the Community edition answers.

Clients ask for these to find out which edition they speak with.
"""

from aiohttp import web

from lepa.api.edge import Edge, Route
from lepa.api.request import json_response, text_response
from lepa.model.errors import LepaError

ENTERPRISE_ONLY = "Nomad Enterprise only endpoint"

PATHS = (
    "sentinel/policies",
    "sentinel/policy/{name}",
    "quotas",
    "quota-usages",
    "quota",
    "quota/{name}",
    "quota/usage/{name}",
    "recommendation",
    "recommendations",
    "recommendations/apply",
    "recommendation/{id}",
    "operator/utilization",
)


async def enterprise_only(edge: Edge, request: web.Request) -> web.StreamResponse:
    """501: this is part of Nomad's Enterprise edition."""
    return text_response(501, ENTERPRISE_ONLY)


async def license(edge: Edge, request: web.Request) -> web.StreamResponse:
    """There is no licence: 204; setting one is 501."""
    if request.method == "GET":
        return web.Response(status=204)
    raise LepaError("unsupported", ENTERPRISE_ONLY)


async def upgrade_check(edge: Edge, request: web.Request) -> web.StreamResponse:
    """What an upgrade of Nomad's Vault tokens would leave behind: nothing, because no such tokens are made here."""
    return json_response(request, {"JobsWithoutVaultIdentity": [], "OutdatedNodes": [], "VaultTokens": []})


ROUTES = (
    *(Route("GET PUT POST DELETE", path, enterprise_only) for path in PATHS),
    Route("GET PUT POST", "operator/license", license),
    Route("GET PUT POST", "client/allocation/{id}/pause", enterprise_only),
    Route("GET", "operator/upgrade-check/vault-workload-identity", upgrade_check),
)
