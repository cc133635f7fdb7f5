"""The keyring: root keys for operators, public keys for whoever checks identities."""

from aiohttp import web

from lepa.api.edge import Edge, Route, read, write
from lepa.api.request import flag, json_response, number, read_request
from lepa.model.errors import LepaError, not_found
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.acl_requests import KeyringRotateRequest


async def rotate(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make a new root key."""
    query = request.query
    if query.get("algo", "") not in ("", "aes256-gcm"):
        raise LepaError("invalid", f'unknown algorithm "{query["algo"]}": there is aes256-gcm')
    call = read_request(
        request,
        KeyringRotateRequest,
        full=flag(query, "full", "full" in query),
        publish_time=number(query, "publish_time"),
    )
    reply = await edge.caller.call(m.KEYRING_ROTATE, call)
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


async def _forced(request: web.Request) -> dict[str, bool]:
    try:
        return {"force": flag(request.query, "force")}
    except LepaError as error:
        raise LepaError("invalid", "invalid force parameter", http_status=422) from error


async def public_keys(edge: Edge, request: web.Request) -> web.StreamResponse:
    """What identities are checked with (RFC 7517)."""
    reply = await edge.caller.call(m.KEYRING_PUBLIC, read_request(request, r.ReadRequest))
    headers = {"Cache-Control": f"max-age={reply.value.max_age_s}"}
    return json_response(request, {"keys": reply.value.keys}, headers=headers)


async def discovery(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Where others find the public keys (OpenID Connect Discovery), when an issuer is set."""
    issuer = (await edge.caller.call(m.KEYRING_PUBLIC, read_request(request, r.ReadRequest))).value.issuer
    if not issuer:
        raise not_found("OIDC Discovery endpoint disabled")
    body = {
        "issuer": issuer,
        "jwks_uri": f"{issuer.rstrip('/')}/.well-known/jwks.json",
        "id_token_signing_alg_values_supported": ["RS256"],
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
    }
    return json_response(request, body)


ROUTES = (
    Route("GET", "operator/keyring/keys", read(m.KEYRING_LIST)),
    Route("PUT POST", "operator/keyring/rotate", rotate),
    Route("DELETE", "operator/keyring/key/{id}", write(m.KEYRING_DELETE, fields=_forced)),
)
WELL_KNOWN = (
    Route("GET", ".well-known/jwks.json", public_keys),
    Route("GET", ".well-known/openid-configuration", discovery),
)
"""These stand at the root, not below /v1/."""
