"""Access control: `/v1/acl/…`.

Durations are texts in answers and may be texts or nanoseconds in bodies. Secrets of tokens are shown to those who may
see the token, and in lists to nobody.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from lepa.api.edge import ByVerb, Edge, Route, read, write
from lepa.api.request import (
    common,
    empty_response,
    flag,
    json_object,
    json_response,
    member,
    read_request,
    reply_headers,
    reply_response,
    typed_member,
    with_durations,
)
from lepa.kit.durations import format_duration
from lepa.model import wire
from lepa.model.acl import AclPolicy, AclRole, AclToken, AuthMethod, AuthMethodConfig, BindingRule
from lepa.model.errors import invalid, not_found
from lepa.rpc import acl_requests as a
from lepa.rpc import methods as m
from lepa.rpc import requests as r

LEEWAYS = ("ExpirationLeeway", "NotBeforeLeeway", "ClockSkewLeeway")


# Shapes


def token_json(token: AclToken) -> dict[str, Any]:
    """A token as the API shows it."""
    ttl = format_duration(token.expiration_ttl) if token.expiration_ttl else ""
    return {**wire.to_builtins(token), "ExpirationTTL": ttl}


def method_json(method: AuthMethod) -> dict[str, Any]:
    """An auth method as the API shows it."""
    found: dict[str, Any] = wire.to_builtins(method)
    config = found["Config"]
    config |= {name: format_duration(config[name]) if config[name] else "" for name in LEEWAYS}
    return {**found, "MaxTokenTTL": format_duration(method.max_token_ttl)}


def _without(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The body without what the servers alone say."""
    return {key: value for key, value in body.items() if key.lower() not in names}


def _method(body: Mapping[str, Any]) -> AuthMethod:
    config = typed_member(body, "Config", dict, {})
    value = wire.from_builtins(
        _without(with_durations(body, "MaxTokenTTL"), "config", "hash", "createtime", "modifytime"), AuthMethod
    )
    return replace(value, config=wire.from_builtins(with_durations(config, *LEEWAYS), AuthMethodConfig))


# Tokens


async def bootstrap(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make the first management token."""
    body = await json_object(request, required=False)
    call = a.BootstrapRequest(bootstrap_secret=typed_member(body, "BootstrapSecret", str, ""), **common(request))
    return _token(request, await edge.caller.call(m.ACL_BOOTSTRAP, call))


def _token(request: web.Request, reply: r.Reply[AclToken]) -> web.Response:
    return json_response(request, token_json(reply.value), headers={"X-Nomad-Index": str(reply.index)})


async def list_tokens(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Tokens without their secrets."""
    query = read_request(request, a.TokenListRequest, global_only=flag(request.query, "global"))
    return reply_response(request, await edge.caller.call(m.ACL_TOKEN_LIST, query))


async def own_token(edge: Edge, request: web.Request) -> web.StreamResponse:
    """The caller's token."""
    reply = await edge.caller.call(m.ACL_TOKEN_SELF, read_request(request, r.ReadRequest))
    return json_response(request, token_json(reply.value), headers=reply_headers(reply))


async def one_token(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Read, change or remove a token."""
    accessor = request.match_info["id"]
    if request.method == "GET":
        reply = await edge.caller.call(m.ACL_TOKEN_GET, read_request(request, r.ReadRequest, id=accessor))
        if reply.value is None:
            raise not_found("ACL token not found")
        return json_response(request, token_json(reply.value), headers=reply_headers(reply))
    if request.method == "DELETE":
        call = a.TokenWriteRequest(accessor_id=accessor, **common(request))
        return empty_response((await edge.caller.call(m.ACL_TOKEN_DELETE, call)).index)
    return await _upsert_token(edge, request, accessor)


async def create_token(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make a token."""
    return await _upsert_token(edge, request, "")


async def _upsert_token(edge: Edge, request: web.Request, accessor: str) -> web.StreamResponse:
    body = with_durations(_without(await json_object(request), "hash", "createtime"), "ExpirationTTL")
    token = wire.from_builtins(body, AclToken)
    if accessor and token.accessor_id not in ("", accessor):
        raise invalid("ACL token accessor does not match request path")
    if not accessor and token.accessor_id:
        raise invalid("a new token gets its accessor from the servers; send this one to /v1/acl/token/ACCESSOR")
    call = a.TokenWriteRequest(value=replace(token, accessor_id=accessor), **common(request))
    return _token(request, await edge.caller.call(m.ACL_TOKEN_UPSERT, call))


async def create_one_time(edge: Edge, request: web.Request) -> web.StreamResponse:
    """A secret that is exchanged once for the caller's token."""
    reply = await edge.caller.call(m.ACL_ONE_TIME_CREATE, r.Request(**common(request)))
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


async def exchange_one_time(edge: Edge, request: web.Request) -> web.StreamResponse:
    """The token behind such a secret."""
    body = await json_object(request)
    call = a.OneTimeExchangeRequest(
        one_time_secret_id=typed_member(body, "OneTimeSecretID", str, ""), **common(request)
    )
    reply = await edge.caller.call(m.ACL_ONE_TIME_EXCHANGE, call)
    answer = {"Token": token_json(reply.value), "Index": reply.index}
    return json_response(request, answer, headers={"X-Nomad-Index": str(reply.index)})


# Policies, roles, auth methods, binding rules


async def one_policy(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Read, write or remove a policy."""
    name = request.match_info["name"]
    if request.method == "GET":
        reply = await edge.caller.call(m.ACL_POLICY_GET, read_request(request, r.ReadRequest, id=name))
        return reply_response(request, reply, "ACL policy not found")
    if request.method == "DELETE":
        call = a.PolicyWriteRequest(name=name, **common(request))
        return empty_response((await edge.caller.call(m.ACL_POLICY_DELETE, call)).index)
    policy = wire.from_builtins(_without(await json_object(request), "hash"), AclPolicy)
    if policy.name not in ("", name):
        raise invalid("ACL policy name does not match request path")
    call = a.PolicyWriteRequest(value=replace(policy, name=name), **common(request))
    return empty_response((await edge.caller.call(m.ACL_POLICY_UPSERT, call)).index)


async def write_role(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make a role, or change the one that the path names."""
    role_id = request.match_info.get("id", "")
    role = wire.from_builtins(_without(await json_object(request), "hash"), AclRole)
    if role_id and role.id not in ("", role_id):
        raise invalid("ACL role ID does not match request path")
    call = a.RoleWriteRequest(value=replace(role, id=role_id), **common(request))
    reply = await edge.caller.call(m.ACL_ROLE_UPSERT, call)
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


async def write_auth_method(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make an auth method, or change the one that the path names; then what is not said stays as it was."""
    name = request.match_info.get("id", "")
    body = await json_object(request)
    if name and member(body, "Name", name) != name:
        raise invalid("ACL auth-method name does not match request path")
    if name:
        present = await edge.caller.call(m.ACL_AUTH_METHOD_GET, read_request(request, r.ReadRequest, id=name))
        if present.value is None:
            raise not_found("ACL auth-method not found")
        body = {"Name": name} | merged(method_json(present.value), body)
    call = a.AuthMethodWriteRequest(value=_method(body), **common(request))
    reply = await edge.caller.call(m.ACL_AUTH_METHOD_UPSERT, call)
    return json_response(request, method_json(reply.value), headers={"X-Nomad-Index": str(reply.index)})


def merged(present: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` laid on `present`, key by key in any case; a Config is replaced as a whole, as Nomad does."""
    names = {key.lower(): key for key in present}
    return {**present, **{names.get(key.lower(), key): value for key, value in given.items() if value is not None}}


async def get_auth_method(edge: Edge, request: web.Request) -> web.StreamResponse:
    """One auth method, without its secret."""
    query = read_request(request, r.ReadRequest, id=request.match_info["id"])
    reply = await edge.caller.call(m.ACL_AUTH_METHOD_GET, query)
    if reply.value is None:
        raise not_found("ACL auth-method not found")
    return json_response(request, method_json(reply.value), headers=reply_headers(reply))


async def write_binding_rule(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Make a binding rule, or change the one that the path names."""
    rule_id = request.match_info.get("id", "")
    body = _without(await json_object(request), "hash", "createtime", "modifytime")
    if rule_id and member(body, "ID", rule_id) != rule_id:
        raise invalid("ACL binding rule ID does not match request path")
    rule = replace(wire.from_builtins(body, BindingRule), id=rule_id)
    call = a.BindingRuleWriteRequest(value=rule, **common(request))
    reply = await edge.caller.call(m.ACL_BINDING_RULE_UPSERT, call)
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


# Logins


async def auth_url(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Where a person logs in with an OIDC provider."""
    call = wire.from_builtins(await json_object(request), a.OidcAuthUrlRequest)
    reply = await edge.caller.call(m.ACL_OIDC_AUTH_URL, replace(call, **common(request)))
    return json_response(request, {"AuthURL": reply.value})


async def complete_auth(edge: Edge, request: web.Request) -> web.StreamResponse:
    """A token for whoever has logged in there."""
    call = wire.from_builtins(await json_object(request), a.OidcCompleteRequest)
    return _token(request, await edge.caller.call(m.ACL_OIDC_COMPLETE, replace(call, **common(request))))


async def login(edge: Edge, request: web.Request) -> web.StreamResponse:
    """A token for whoever shows a JWT."""
    call = wire.from_builtins(await json_object(request), a.LoginRequest)
    return _token(request, await edge.caller.call(m.ACL_LOGIN, replace(call, **common(request))))


async def delete_auth_method(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Remove an auth method."""
    call = a.AuthMethodWriteRequest(name=request.match_info["id"], **common(request))
    return empty_response((await edge.caller.call(m.ACL_AUTH_METHOD_DELETE, call)).index)


ROUTES = (
    Route("PUT POST", "acl/bootstrap", bootstrap),
    Route("GET", "acl/policies", read(m.ACL_POLICY_LIST)),
    Route("GET", "acl/policy/self", read(m.ACL_POLICY_SELF)),
    Route("GET PUT POST DELETE", "acl/policy/{name}", one_policy),
    Route("GET", "acl/tokens", list_tokens),
    Route("GET", "acl/token/self", own_token),
    Route("PUT POST", "acl/token/onetime", create_one_time),
    Route("PUT POST", "acl/token/onetime/exchange", exchange_one_time),
    Route("PUT POST", "acl/token", create_token),
    Route("GET PUT POST DELETE", "acl/token/{id}", one_token),
    Route("GET", "acl/roles", read(m.ACL_ROLE_LIST)),
    Route("PUT POST", "acl/role", write_role),
    Route("GET", "acl/role/name/{id}", read(m.ACL_ROLE_BY_NAME, missing="ACL role not found")),
    Route(
        "GET PUT POST DELETE",
        "acl/role/{id}",
        ByVerb(
            {
                "GET": read(m.ACL_ROLE_GET, missing="ACL role not found"),
                "PUT": write_role,
                "DELETE": write(m.ACL_ROLE_DELETE),
            }
        ),
    ),
    Route("GET", "acl/auth-methods", read(m.ACL_AUTH_METHOD_LIST)),
    Route("PUT POST", "acl/auth-method", write_auth_method),
    Route(
        "GET PUT POST DELETE",
        "acl/auth-method/{id}",
        ByVerb({"GET": get_auth_method, "PUT": write_auth_method, "DELETE": delete_auth_method}),
    ),
    Route("GET", "acl/binding-rules", read(m.ACL_BINDING_RULE_LIST)),
    Route("PUT POST", "acl/binding-rule", write_binding_rule),
    Route(
        "GET PUT POST DELETE",
        "acl/binding-rule/{id}",
        ByVerb(
            {
                "GET": read(m.ACL_BINDING_RULE_GET, missing="ACL binding rule not found"),
                "PUT": write_binding_rule,
                "DELETE": write(m.ACL_BINDING_RULE_DELETE),
            }
        ),
    ),
    Route("PUT POST", "acl/oidc/auth-url", auth_url),
    Route("PUT POST", "acl/oidc/complete-auth", complete_auth),
    Route("PUT POST", "acl/login", login),
)
