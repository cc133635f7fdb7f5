"""Pure: policies, tokens, roles, auth methods and binding rules come, change and go.

A token is stored with the ids of its roles; names of policies need not exist yet. What is written is checked here as
far as the state tells; that a policy's rules and a rule's selector can be read is checked before.
"""

import re
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from lepa.kit.durations import HOUR, MINUTE, ZERO_TIME, format_duration, parse_rfc3339, rfc3339
from lepa.model.acl import (
    CLIENT,
    MANAGEMENT,
    REDACTED,
    AclBootstrap,
    AclPolicy,
    AclRole,
    AclToken,
    AuthMethod,
    AuthMethodConfig,
    BindingRule,
    OneTimeToken,
    PolicyLink,
    RoleLink,
    content_hash,
    digest,
)
from lepa.model.errors import invalid, not_found
from lepa.model.wire import Wire
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

W = TypeVar("W", bound=Wire)

NAME: Final = re.compile(r"[a-zA-Z0-9-]{1,128}")
UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
DESCRIPTION_MAX: Final = 256
TOKEN_NAME_MAX: Final = 256
RULES_MAX: Final = 256 * 1024
"""Characters of a policy's rules."""
ONE_TIME_NS: Final = 10 * MINUTE
TOKEN_NOT_FOUND: Final = "ACL token not found"


class TokenLimits(NamedTuple):
    """How long tokens that expire may live, in nanoseconds."""

    min_ttl: int = MINUTE
    max_ttl: int = 24 * HOUR


# The first token


def bootstrap(draft: Draft, secret_id: str = "", reset_index: int = 0) -> AclToken:
    """Make the first management token; again only with the index that the last one was made at."""
    done = draft.snapshot.bootstrap()
    if done is not None and reset_index == 0:
        raise invalid(f"ACL bootstrap already done (reset index: {done.modify_index})")
    if done is not None and reset_index != done.modify_index:
        raise invalid(f"Invalid bootstrap reset index (specified {reset_index}, reset index: {done.modify_index})")
    if secret_id and not UUID.fullmatch(secret_id):
        raise invalid("invalid bootstrap secret: it has to be a UUID")
    if secret_id and draft.snapshot.token_by_secret(secret_id) is not None:
        raise invalid("invalid bootstrap secret: a token has it already")
    token = _sealed(
        AclToken(
            accessor_id=draft.new_id(),
            secret_id=secret_id or draft.new_id(),
            name="Bootstrap Token",
            type=MANAGEMENT,
            global_=True,
            create_time=rfc3339(draft.now_ns),
        )
    )
    draft.put(keys.acl_key("tokens", token.accessor_id), token, None)
    draft.put(keys.acl_key("bootstrap", "first"), AclBootstrap(accessor_id=token.accessor_id), done)
    return token


# Policies


def upsert_policy(draft: Draft, policy: AclPolicy) -> None:
    """Create or change a policy. Its rules have been read already."""
    _check_name(policy.name)
    _check_description(policy.description)
    if len(policy.rules) > RULES_MAX:
        raise invalid(f"rules are longer than {RULES_MAX} characters")
    attached = policy.job_acl
    if attached is not None:
        if not attached.job_id:
            raise invalid("JobACL must include a JobID: a policy is attached to workloads of one job")
        if attached.task and not attached.group:
            raise invalid("JobACL with a Task must include its Group")
        policy = replace(policy, job_acl=replace(attached, namespace=attached.namespace or "default"))
    present = draft.snapshot.policy(policy.name)
    draft.put(keys.acl_key("policies", policy.name), _hashed(policy), present)


def delete_policy(draft: Draft, name: str) -> None:
    """Remove a policy; nothing happens when there is none."""
    _delete(draft, "policies", name, draft.snapshot.policy(name))


# Tokens


def upsert_token(draft: Draft, wanted: AclToken, limits: TokenLimits) -> AclToken:
    """Create a token, or change the one whose accessor is given. Returns it as it is stored."""
    present = draft.snapshot.token(wanted.accessor_id) if wanted.accessor_id else None
    if wanted.accessor_id and present is None:
        raise not_found(f"{TOKEN_NOT_FOUND}: {wanted.accessor_id}", http_status=400)
    _check_token(wanted)
    roles = tuple(_role_link(draft.snapshot, link) for link in wanted.roles)
    if present is not None:
        token = _changed_token(present, replace(wanted, roles=roles))
    else:
        token = _new_token(draft, replace(wanted, roles=roles), limits)
    draft.put(keys.acl_key("tokens", token.accessor_id), token, present)
    return token


def _check_token(token: AclToken) -> None:
    if len(token.name) > TOKEN_NAME_MAX:
        raise invalid("token name too long")
    if token.type == CLIENT:
        if not token.policies and not token.roles:
            raise invalid("client token missing policies or roles")
    elif token.type == MANAGEMENT:
        if token.policies or token.roles:
            raise invalid("management token cannot be associated with policies or roles")
    else:
        raise invalid("token type must be client or management")


def _new_token(draft: Draft, wanted: AclToken, limits: TokenLimits) -> AclToken:
    return _sealed(
        replace(
            wanted,
            accessor_id=draft.new_id(),
            secret_id=draft.new_id(),
            create_time=rfc3339(draft.now_ns),
            expiration_time=_expiration(draft.now_ns, wanted, limits),
        )
    )


def _expiration(now_ns: int, wanted: AclToken, limits: TokenLimits) -> str | None:
    if wanted.expiration_ttl < 0:
        raise invalid(f"token expiration TTL '{format_duration(wanted.expiration_ttl)}' should not be negative")
    given = _time(wanted.expiration_time, "ExpirationTime")
    if not given and not wanted.expiration_ttl:
        return None
    lives = given - now_ns if given else wanted.expiration_ttl
    if lives <= 0:
        raise invalid("expiration time cannot be before create time")
    shown = format_duration(lives)
    if lives > limits.max_ttl:
        most = format_duration(limits.max_ttl)
        raise invalid(f"expiration time cannot be more than {most} in the future (was {shown})")
    if lives < limits.min_ttl:
        least = format_duration(limits.min_ttl)
        raise invalid(f"expiration time cannot be less than {least} in the future (was {shown})")
    return rfc3339(now_ns + lives)


def _time(text: str | None, name: str) -> int:
    if not text or text == ZERO_TIME:
        return 0
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise invalid(f"{name}: {error}") from error


def _changed_token(present: AclToken, wanted: AclToken) -> AclToken:
    if wanted.global_ != present.global_:
        raise invalid("cannot toggle global mode")
    if wanted.expiration_ttl and wanted.expiration_ttl != present.expiration_ttl:
        raise invalid("cannot update expiration TTL")
    if _time(wanted.expiration_time, "ExpirationTime") not in (0, _time(present.expiration_time, "ExpirationTime")):
        raise invalid("cannot update expiration time")
    changed = replace(present, name=wanted.name, type=wanted.type, policies=wanted.policies, roles=wanted.roles)
    return _sealed(changed)


def _role_link(snapshot: Snapshot, link: RoleLink) -> RoleLink:
    role = snapshot.role(link.id) if link.id else snapshot.role_by_name(link.name)
    if role is None:
        raise invalid(f"cannot find role {link.id or link.name}")
    return RoleLink(id=role.id)


def delete_token(draft: Draft, accessor_id: str) -> None:
    """Remove a token and what may be exchanged for it. Raises LepaError(invalid) when there is none."""
    present = draft.snapshot.token(accessor_id)
    if present is None:
        raise not_found(f"Cannot delete nonexistent tokens: {accessor_id}", http_status=400)
    _delete(draft, "tokens", accessor_id, present)
    for one_time in draft.snapshot.one_time_tokens():
        if one_time.accessor_id == accessor_id:
            draft.erase(keys.acl_key("one_time", digest(one_time.one_time_secret_id)))


def expired(token: AclToken, now_ns: int) -> bool:
    """Whether a token is over."""
    return token.expiration_time is not None and parse_rfc3339(token.expiration_time) <= now_ns


# One-time tokens


def create_one_time(draft: Draft, accessor_id: str) -> OneTimeToken:
    """A secret that is exchanged once for the token, within ten minutes."""
    made = OneTimeToken(
        one_time_secret_id=draft.new_id(),
        accessor_id=accessor_id,
        expires_at=rfc3339(draft.now_ns + ONE_TIME_NS),
    )
    draft.put(keys.acl_key("one_time", digest(made.one_time_secret_id)), made, None)
    return made


def exchange_one_time(draft: Draft, secret_id: str) -> AclToken:
    """The token behind a one-time secret, which is of no use afterwards."""
    found = draft.snapshot.one_time_token(secret_id)
    token = draft.snapshot.token(found.accessor_id) if found is not None else None
    if found is None or token is None or parse_rfc3339(found.expires_at) <= draft.now_ns:
        raise not_found(TOKEN_NOT_FOUND, http_status=403)
    draft.delete(keys.acl_key("one_time", digest(secret_id)), found)
    return token


# Roles


def upsert_role(draft: Draft, wanted: AclRole) -> AclRole:
    """Create a role, or change the one whose id is given."""
    present = draft.snapshot.role(wanted.id) if wanted.id else None
    if wanted.id and present is None:
        raise not_found(f"cannot find role {wanted.id}", http_status=400)
    _check_name(wanted.name)
    _check_description(wanted.description)
    named = tuple(dict.fromkeys(link.name for link in wanted.policies))
    if not named:
        raise invalid("at least one policy should be specified")
    for name in named:
        if draft.snapshot.policy(name) is None:
            raise invalid(f"cannot find policy {name}")
    other = draft.snapshot.role_by_name(wanted.name)
    if other is not None and other.id != wanted.id:
        raise invalid(f"role with name {wanted.name} already exists")
    role = replace(wanted, id=wanted.id or draft.new_id(), policies=tuple(PolicyLink(name=name) for name in named))
    role = _hashed(role)
    draft.put(keys.acl_key("roles", role.id), role, present)
    return role


def delete_role(draft: Draft, role_id: str) -> None:
    """Remove a role; tokens that have it lose what it gave."""
    present = draft.snapshot.role(role_id)
    if present is None:
        raise not_found("ACL role not found")
    _delete(draft, "roles", role_id, present)


# Auth methods and binding rules


def upsert_auth_method(draft: Draft, wanted: AuthMethod, limits: TokenLimits) -> AuthMethod:
    """Create or change an auth method. A secret that is not given, or given as it is shown, stays as it was."""
    _check_name(wanted.name)
    if wanted.type not in ("OIDC", "JWT"):
        raise invalid(f'invalid token type "{wanted.type}": it has to be OIDC or JWT')
    if wanted.token_locality not in ("local", "global"):
        raise invalid(f'invalid token locality "{wanted.token_locality}": it has to be local or global')
    if not limits.min_ttl <= wanted.max_token_ttl <= limits.max_ttl:
        shown = (format_duration(each) for each in (limits.min_ttl, limits.max_ttl, wanted.max_token_ttl))
        raise invalid("invalid MaxTokenTTL: it has to be between {} and {}, not {}".format(*shown))
    for other in draft.snapshot.auth_methods():
        if wanted.default and other.default and other.type == wanted.type and other.name != wanted.name:
            raise invalid(f"default auth method for type {wanted.type} already exists: {other.name}")
    present = draft.snapshot.auth_method(wanted.name)
    config = _with_secret(wanted.config, present.config if present is not None else None)
    now = rfc3339(draft.now_ns)
    method = replace(
        wanted, config=config, create_time=present.create_time if present is not None else now, modify_time=ZERO_TIME
    )
    method = replace(_hashed(method), modify_time=now)
    draft.put(keys.acl_key("auth_methods", method.name), method, present)
    return method


def _with_secret(wanted: AuthMethodConfig, present: AuthMethodConfig | None) -> AuthMethodConfig:
    if wanted.oidc_client_secret in ("", REDACTED) and present is not None:
        return replace(wanted, oidc_client_secret=present.oidc_client_secret)
    return wanted


def delete_auth_method(draft: Draft, name: str) -> None:
    """Remove an auth method and its binding rules."""
    present = draft.snapshot.auth_method(name)
    if present is None:
        raise not_found("ACL auth-method not found")
    _delete(draft, "auth_methods", name, present)
    for rule in draft.snapshot.binding_rules_of(name):
        _delete(draft, "binding_rules", rule.id, rule)


def upsert_binding_rule(draft: Draft, wanted: BindingRule) -> BindingRule:
    """Create a binding rule, or change the one whose id is given. Its selector has been read already."""
    present = draft.snapshot.binding_rule(wanted.id) if wanted.id else None
    if wanted.id and present is None:
        raise not_found(f"cannot find binding rule {wanted.id}", http_status=400)
    _check_description(wanted.description)
    method = present.auth_method if present is not None else wanted.auth_method
    if wanted.auth_method not in ("", method):
        raise invalid(f'the auth method of a binding rule stays "{method}": make another rule for another one')
    if draft.snapshot.auth_method(method) is None:
        raise invalid(f"ACL auth-method {method} not found")
    if wanted.bind_type not in ("role", "policy", "management"):
        raise invalid(f'unsupported bind type "{wanted.bind_type}": it has to be role, policy or management')
    if wanted.bind_type == "management" and wanted.bind_name:
        raise invalid("bind name must be empty when the bind type is management")
    if wanted.bind_type != "management" and not wanted.bind_name:
        raise invalid(f"bind name is required when the bind type is {wanted.bind_type}")
    now = rfc3339(draft.now_ns)
    rule = replace(
        wanted,
        id=wanted.id or draft.new_id(),
        auth_method=method,
        create_time=present.create_time if present is not None else now,
        modify_time=ZERO_TIME,
    )
    rule = replace(_hashed(rule), modify_time=now)
    draft.put(keys.acl_key("binding_rules", rule.id), rule, present)
    return rule


def delete_binding_rule(draft: Draft, rule_id: str) -> None:
    """Remove a binding rule."""
    present = draft.snapshot.binding_rule(rule_id)
    if present is None:
        raise not_found("ACL binding rule not found")
    _delete(draft, "binding_rules", rule_id, present)


# What they share


def _delete(draft: Draft, kind: str, name: str, present: Any) -> None:
    if present is not None:
        draft.delete(keys.acl_key(kind, name), present)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise invalid(f"invalid name '{name}': it has 1 to 128 letters, digits and hyphens")


def _check_description(text: str) -> None:
    if len(text) > DESCRIPTION_MAX:
        raise invalid(f"description longer than {DESCRIPTION_MAX}")


def _hashed(value: W) -> W:
    bare: Any = replace(value, hash=b"", create_index=0, modify_index=0)
    hashed: W = replace(bare, hash=content_hash(bare))
    return hashed


def _sealed(token: AclToken) -> AclToken:
    """The token with a hash that tells nothing of its secret."""
    bare = replace(token, hash=b"", create_index=0, modify_index=0)
    return replace(bare, hash=content_hash(replace(bare, secret_id="")))
