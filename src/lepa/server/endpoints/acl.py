"""Policies, tokens, roles, auth methods and binding rules; and whether somebody may pass a door of an agent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from lepa.model.acl import (
    ANONYMOUS,
    CLIENT,
    AclPolicy,
    AclPolicyListStub,
    AclRole,
    AclToken,
    AclTokenListStub,
    AuthMethod,
    AuthMethodStub,
    BindingRule,
    BindingRuleStub,
    RoleLink,
    without_secrets,
)
from lepa.model.errors import LepaError, denied, invalid, not_found
from lepa.model.wire import shortened
from lepa.rpc import acl_requests as a
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.acl.logins import Logins, check_selector
from lepa.server.acl.rules import parse_rules
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Answer, Queries
from lepa.server.endpoints.query import Answerable, Query, row, table
from lepa.server.pages import Page, created_start, page_of, since
from lepa.server.writer import Written
from lepa.state.commands import acl as commands
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

DISABLED = "ACL support disabled"
RESET_FILE = "acl-bootstrap-reset"

T = TypeVar("T")


class AclEndpoints:
    """Everything about access control."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = context.parts
        self._guard = context.parts.guard
        settings = context.parts.settings.acl
        self._limits = commands.TokenLimits(settings.token_min_ttl_ns, settings.token_max_ttl_ns)
        self._logins = Logins(context.parts.clock, context.parts.random)

    async def _write(self, command: Callable[[Draft], T]) -> Written[T]:
        return await self._context.write(command)

    # Policies

    def list_policies(self, snapshot: Snapshot, request: r.ReadRequest) -> tuple[AclPolicyListStub, ...]:
        """Policies by name: all of them for management, else the caller's own."""
        access = self._guard.access(snapshot, request.auth_token)
        return tuple(
            _policy_stub(policy)
            for policy in snapshot.policies()
            if policy.name.startswith(request.prefix) and (access.management or policy.name in access.policies)
        )

    def own_policies(self, snapshot: Snapshot, request: r.ReadRequest) -> tuple[AclPolicyListStub, ...]:
        """The caller's own policies."""
        access = self._guard.access(snapshot, request.auth_token)
        return tuple(_policy_stub(policy) for policy in snapshot.policies() if policy.name in access.policies)

    def get_policy(self, snapshot: Snapshot, request: r.ReadRequest) -> AclPolicy | None:
        """One policy."""
        access = self._guard.access(snapshot, request.auth_token)
        if not access.management and request.id not in access.policies:
            raise denied()
        return snapshot.policy(request.id)

    async def upsert_policy(self, request: a.PolicyWriteRequest) -> Reply[None]:
        """Create or change a policy."""
        policy = _given(request.value, "policy")
        parse_rules(policy.rules)
        written = await self._write(lambda draft: commands.upsert_policy(draft, policy))
        return Reply(value=None, index=written.revision)

    async def delete_policy(self, request: a.PolicyWriteRequest) -> Reply[None]:
        """Remove a policy."""
        written = await self._write(lambda draft: commands.delete_policy(draft, request.name))
        return Reply(value=None, index=written.revision)

    # Tokens

    async def bootstrap(self, request: a.BootstrapRequest) -> Reply[AclToken]:
        """Make the first management token, or, with the reset file, another one."""
        reset = self._reset_index()
        written = await self._write(lambda draft: commands.bootstrap(draft, request.bootstrap_secret, reset))
        self._forget_reset()
        return Reply(value=self._stored(written), index=written.revision)

    def _reset_file(self) -> Path | None:
        directory = self._parts.settings.acl.directory
        return Path(directory) / RESET_FILE if directory else None

    def _reset_index(self) -> int:
        """The number in the reset file; 0 when there is none."""
        file = self._reset_file()
        try:
            text = file.read_text().strip() if file is not None else ""
        except OSError:
            return 0
        if text and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise invalid(f"{file}: expected the reset index alone, a number")
        return int(text or 0)

    def _forget_reset(self) -> None:
        file = self._reset_file()
        if file is not None:
            file.unlink(missing_ok=True)

    def list_tokens(self, snapshot: Snapshot, request: a.TokenListRequest) -> Page:
        """Tokens in the order of creation, or by accessor when a prefix is asked for; never with their secrets."""

        def where(token: AclToken) -> bool:
            return token.accessor_id.startswith(request.prefix) and (token.global_ or not request.global_only)

        if request.prefix:
            rows = snapshot.tables["acl_tokens"].with_prefix(request.prefix)
            found = since(rows, request, lambda token: token.accessor_id, reverse=request.reverse)
            return page_of(found, request, token=lambda token: token.accessor_id, stub=_stubs(snapshot), where=where)
        tokens = snapshot.tokens(created_start(request), reverse=request.reverse)
        return page_of(
            tokens,
            request,
            token=lambda token: f"{token.create_index}.{token.accessor_id}",
            stub=_stubs(snapshot),
            where=where,
        )

    def own_token(self, snapshot: Snapshot, request: r.ReadRequest) -> AclToken:
        """The caller's token."""
        if not request.auth_token:
            return AclToken(
                accessor_id=ANONYMOUS, name="Anonymous Token", type=CLIENT, policies=(ANONYMOUS,), global_=False
            )
        self._guard.access(snapshot, request.auth_token)
        token = self._guard.token(snapshot, request.auth_token)
        if token is None:
            raise denied(commands.TOKEN_NOT_FOUND)
        return _with_role_names(snapshot, token)

    def get_token(self, snapshot: Snapshot, request: r.ReadRequest) -> AclToken | None:
        """One token: any for management, else the caller's own."""
        access = self._guard.access(snapshot, request.auth_token)
        if not access.management and access.accessor_id != request.id:
            raise denied()
        token = snapshot.token(request.id)
        return _with_role_names(snapshot, token) if token is not None else None

    async def upsert_token(self, request: a.TokenWriteRequest) -> Reply[AclToken]:
        """Create or change a token."""
        token = _given(request.value, "token")
        written = await self._write(lambda draft: commands.upsert_token(draft, token, self._limits))
        return Reply(value=self._stored(written), index=written.revision)

    def _stored(self, written: Written[AclToken]) -> AclToken:
        """A token with the indexes that it got, and the names of its roles."""
        snapshot = self._parts.replica.snapshot
        token = snapshot.token(written.value.accessor_id) or written.value
        return _with_role_names(snapshot, token)

    async def delete_token(self, request: a.TokenWriteRequest) -> Reply[None]:
        """Remove a token."""
        written = await self._write(lambda draft: commands.delete_token(draft, request.accessor_id))
        return Reply(value=None, index=written.revision)

    async def create_one_time(self, request: r.Request) -> Reply[a.OneTimeAnswer]:
        """A secret that can be exchanged once for the caller's token."""
        token = self._guard.token(self._parts.replica.snapshot, request.auth_token)
        if token is None:
            raise denied(commands.TOKEN_NOT_FOUND)
        accessor_id = token.accessor_id
        written = await self._write(lambda draft: commands.create_one_time(draft, accessor_id))
        made = replace(written.value, create_index=written.revision, modify_index=written.revision)
        return Reply(value=a.OneTimeAnswer(one_time_token=made), index=written.revision)

    async def exchange_one_time(self, request: a.OneTimeExchangeRequest) -> Reply[AclToken]:
        """The token behind a one-time secret."""
        written = await self._write(lambda draft: commands.exchange_one_time(draft, request.one_time_secret_id))
        return Reply(value=self._stored(written), index=written.revision)

    # Roles

    def list_roles(self, snapshot: Snapshot, request: r.ReadRequest) -> tuple[AclRole, ...]:
        """Roles by id: all of them for management, else the caller's own."""
        own = self._own_roles(snapshot, request)
        return tuple(
            role for role in snapshot.roles() if role.id.startswith(request.prefix) and (own is None or role.id in own)
        )

    def _own_roles(self, snapshot: Snapshot, request: r.ReadRequest) -> set[str] | None:
        """Ids of the caller's roles; None when it may see all."""
        if self._guard.access(snapshot, request.auth_token).management:
            return None
        token = self._guard.token(snapshot, request.auth_token)
        return {link.id for link in token.roles} if token is not None else set()

    def get_role(self, snapshot: Snapshot, request: r.ReadRequest) -> AclRole | None:
        """One role by its id."""
        return self._seen_role(snapshot, request, snapshot.role(request.id))

    def get_role_by_name(self, snapshot: Snapshot, request: r.ReadRequest) -> AclRole | None:
        """One role by its name."""
        return self._seen_role(snapshot, request, snapshot.role_by_name(request.id))

    def _seen_role(self, snapshot: Snapshot, request: r.ReadRequest, role: AclRole | None) -> AclRole | None:
        own = self._own_roles(snapshot, request)
        if own is not None and (role is None or role.id not in own):
            raise denied()
        return role

    async def upsert_role(self, request: a.RoleWriteRequest) -> Reply[AclRole]:
        """Create or change a role."""
        role = _given(request.value, "role")
        written = await self._write(lambda draft: commands.upsert_role(draft, role))
        return Reply(value=self._parts.replica.snapshot.role(written.value.id) or role, index=written.revision)

    async def delete_role(self, request: a.RoleWriteRequest) -> Reply[None]:
        """Remove a role."""
        written = await self._write(lambda draft: commands.delete_role(draft, request.id))
        return Reply(value=None, index=written.revision)

    # Logins

    async def upsert_auth_method(self, request: a.AuthMethodWriteRequest) -> Reply[AuthMethod]:
        """Create or change an auth method."""
        method = _given(request.value, "auth method")
        self._logins.check(method)
        written = await self._write(lambda draft: commands.upsert_auth_method(draft, method, self._limits))
        stored = self._parts.replica.snapshot.auth_method(method.name) or written.value
        return Reply(value=without_secrets(stored), index=written.revision)

    async def delete_auth_method(self, request: a.AuthMethodWriteRequest) -> Reply[None]:
        """Remove an auth method."""
        written = await self._write(lambda draft: commands.delete_auth_method(draft, request.name))
        return Reply(value=None, index=written.revision)

    async def upsert_binding_rule(self, request: a.BindingRuleWriteRequest) -> Reply[BindingRule]:
        """Create or change a binding rule."""
        rule = _given(request.value, "binding rule")
        check_selector(rule.selector)
        written = await self._write(lambda draft: commands.upsert_binding_rule(draft, rule))
        stored = self._parts.replica.snapshot.binding_rule(written.value.id) or written.value
        return Reply(value=stored, index=written.revision)

    async def delete_binding_rule(self, request: a.BindingRuleWriteRequest) -> Reply[None]:
        """Remove a binding rule."""
        written = await self._write(lambda draft: commands.delete_binding_rule(draft, request.id))
        return Reply(value=None, index=written.revision)

    async def oidc_auth_url(self, request: a.OidcAuthUrlRequest) -> Reply[str]:
        """Where a person logs in."""
        method = self._method(request.auth_method_name, "OIDC")
        return Reply(value=await self._logins.auth_url(method, request), index=1)

    async def oidc_complete(self, request: a.OidcCompleteRequest) -> Reply[AclToken]:
        """A token for whoever has logged in."""
        method = self._method(request.auth_method_name, "OIDC")
        return await self._bind(method, await self._logins.complete(method, request))

    async def login(self, request: a.LoginRequest) -> Reply[AclToken]:
        """A token for whoever shows a JWT."""
        method = self._method(request.auth_method_name, "JWT")
        return await self._bind(method, await self._logins.claims_of(method, request.login_token))

    def _method(self, name: str, kind: str) -> AuthMethod:
        method = self._parts.replica.snapshot.auth_method(name)
        if method is None:
            raise not_found(f"auth-method {name} not found", http_status=400)
        if method.type != kind:
            raise invalid(f'auth-method "{name}" is of type {method.type}, not {kind}')
        return method

    async def _bind(self, method: AuthMethod, claims: dict[str, Any]) -> Reply[AclToken]:
        """Make the token that the binding rules give to these claims."""
        wanted = self._logins.token(self._parts.replica.snapshot, method, claims)
        written = await self._write(lambda draft: commands.upsert_token(draft, wanted, self._limits))
        return Reply(value=self._stored(written), index=written.revision)

    # Doors

    async def authorize(self, request: a.AuthorizeRequest) -> Reply[a.Authorized]:
        """Whether the caller may pass a door of an agent, and where the node is that it is about."""
        snapshot = self._parts.replica.snapshot
        self._guard.may(request.door, request)
        known = self._known(snapshot, request.auth_token)
        if request.door == "Task.Api" and not known:
            raise denied("Forbidden")
        node_id = request.node_id
        if request.alloc_id:
            alloc = snapshot.allocation(request.alloc_id)
            if alloc is None:
                raise not_found(f'Unknown allocation "{request.alloc_id}"')
            node_id = alloc.node_id
        node = snapshot.node(node_id) if node_id else None
        if node_id and node is None:
            raise not_found(f'Unknown node "{node_id}"')
        answer = a.Authorized(
            node_id=node_id, http_addr=node.http_addr if node is not None else "", authenticated=known
        )
        return Reply(value=answer, index=max(1, snapshot.index))

    def _known(self, snapshot: Snapshot, secret: str) -> bool:
        if not secret:
            return False
        try:
            self._guard.resolve(snapshot, secret)
        except LepaError:
            return False
        return True

    def answers(self, queries: Queries) -> Answers:
        """By method. While access control is off all but the doors say so."""
        reads: Answerable = {
            m.ACL_POLICY_LIST: Query(table("acl_policies"), self.list_policies),
            m.ACL_POLICY_SELF: Query(table("acl_policies"), self.own_policies),
            m.ACL_POLICY_GET: Query(row("acl_policies"), self.get_policy),
            m.ACL_TOKEN_LIST: Query(table("acl_tokens"), self.list_tokens),
            m.ACL_TOKEN_SELF: Query(table("acl_tokens"), self.own_token),
            m.ACL_TOKEN_GET: Query(row("acl_tokens"), self.get_token),
            m.ACL_ROLE_LIST: Query(table("acl_roles"), self.list_roles),
            m.ACL_ROLE_GET: Query(row("acl_roles"), self.get_role),
            m.ACL_ROLE_BY_NAME: Query(table("acl_roles"), self.get_role_by_name),
            m.ACL_AUTH_METHOD_LIST: Query(table("acl_auth_methods"), list_auth_methods),
            m.ACL_AUTH_METHOD_GET: Query(row("acl_auth_methods"), get_auth_method),
            m.ACL_BINDING_RULE_LIST: Query(table("acl_binding_rules"), list_binding_rules),
            m.ACL_BINDING_RULE_GET: Query(
                row("acl_binding_rules"), lambda snapshot, request: snapshot.binding_rule(request.id)
            ),
        }
        writes: Answers = {
            m.ACL_BOOTSTRAP: self.bootstrap,
            m.ACL_POLICY_UPSERT: self.upsert_policy,
            m.ACL_POLICY_DELETE: self.delete_policy,
            m.ACL_TOKEN_UPSERT: self.upsert_token,
            m.ACL_TOKEN_DELETE: self.delete_token,
            m.ACL_ONE_TIME_CREATE: self.create_one_time,
            m.ACL_ONE_TIME_EXCHANGE: self.exchange_one_time,
            m.ACL_ROLE_UPSERT: self.upsert_role,
            m.ACL_ROLE_DELETE: self.delete_role,
            m.ACL_AUTH_METHOD_UPSERT: self.upsert_auth_method,
            m.ACL_AUTH_METHOD_DELETE: self.delete_auth_method,
            m.ACL_BINDING_RULE_UPSERT: self.upsert_binding_rule,
            m.ACL_BINDING_RULE_DELETE: self.delete_binding_rule,
            m.ACL_OIDC_AUTH_URL: self.oidc_auth_url,
            m.ACL_OIDC_COMPLETE: self.oidc_complete,
            m.ACL_LOGIN: self.login,
        }
        found: dict[m.Method[Any, Any], Answer] = {**queries.answers(reads), **writes}
        if not self._guard.enabled:
            found = dict.fromkeys(found, _disabled)
        return {**found, m.ACL_AUTHORIZE: self.authorize}


async def _disabled(request: Any) -> Reply[Any]:
    raise invalid(DISABLED)


def list_auth_methods(snapshot: Snapshot, request: r.ReadRequest) -> tuple[AuthMethodStub, ...]:
    """Auth methods by name, as much of them as is needed to log in."""
    return tuple(shortened(method, AuthMethodStub) for method in snapshot.auth_methods())


def get_auth_method(snapshot: Snapshot, request: r.ReadRequest) -> AuthMethod | None:
    """One auth method, without its secret."""
    method = snapshot.auth_method(request.id)
    return without_secrets(method) if method is not None else None


def list_binding_rules(snapshot: Snapshot, request: r.ReadRequest) -> tuple[BindingRuleStub, ...]:
    """Binding rules by id, shortened."""
    return tuple(shortened(rule, BindingRuleStub) for rule in snapshot.binding_rules())


def _policy_stub(policy: AclPolicy) -> AclPolicyListStub:
    return shortened(policy, AclPolicyListStub)


def _stubs(snapshot: Snapshot) -> Callable[[AclToken], AclTokenListStub]:
    def stub(token: AclToken) -> AclTokenListStub:
        return shortened(_with_role_names(snapshot, token), AclTokenListStub)

    return stub


def _with_role_names(snapshot: Snapshot, token: AclToken) -> AclToken:
    """The token with the names of its roles; those that are gone are left out."""
    found = (snapshot.role(link.id) for link in token.roles)
    return replace(token, roles=tuple(RoleLink(id=role.id, name=role.name) for role in found if role is not None))


def _given(value: T | None, what: str) -> T:
    if value is None:
        raise invalid(f"missing {what}")
    return value
