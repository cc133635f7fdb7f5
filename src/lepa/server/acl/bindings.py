"""Pure: from the claims of somebody who logged in to the token that the binding rules give them.

Claims are picked by the auth method's mappings into `value` (texts) and `list` (lists of texts); selectors of rules are
filter expressions over these two, and names may hold `${value.NAME}`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from lepa.kit.bexpr import FilterError, compile_filter
from lepa.model.acl import CLIENT, MANAGEMENT, AclToken, AuthMethod, BindingRule, RoleLink
from lepa.model.errors import LepaError, invalid
from lepa.state.snapshot import Snapshot

REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
DEFAULT_NAME: Final = "${auth_method_type}-${auth_method_name}"
LIST_MAX: Final = 1_000
TOKEN_NAME_MAX: Final = 256

Picked = dict[str, Any]


def check_selector(text: str) -> None:
    """Raise LepaError(invalid) for a selector that cannot be read."""
    if not text:
        return
    try:
        compile_filter(text)
    except FilterError as error:
        raise invalid(f"invalid selector: {error}") from error


def picked(method: AuthMethod, claims: Mapping[str, Any]) -> Picked:
    """What selectors and names see of the claims: {"value": {name: text}, "list": {name: [texts]}}."""
    config = method.config
    values = {name: _text(_claim(claims, path)) for path, name in config.claim_mappings.items()}
    lists = {name: _texts(_claim(claims, path)) for path, name in config.list_claim_mappings.items()}
    return {"value": {name: text for name, text in values.items() if text is not None}, "list": lists}


def _claim(claims: Any, path: str) -> Any:
    """A claim by its name, or by a JSON pointer such as /org/team (RFC 6901)."""
    if not path.startswith("/"):
        return claims.get(path)
    found = claims
    for step in path[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def _text(claim: Any) -> str | None:
    if isinstance(claim, bool):
        return str(claim).lower()
    return str(claim) if isinstance(claim, str | int | float) else None


def _texts(claim: Any) -> list[str]:
    items = claim if isinstance(claim, list) else [claim] if claim is not None else []
    return [text for item in items[:LIST_MAX] if (text := _text(item)) is not None]


def token_for(snapshot: Snapshot, method: AuthMethod, found: Picked) -> AclToken:
    """The token to make. Raises LepaError(denied) when no rule gives the caller anything."""
    fitting = [rule for rule in snapshot.binding_rules_of(method.name) if _fits(rule, found)]
    name = _filled(method.token_name_format or DEFAULT_NAME, _names(method, found))
    common = AclToken(
        name=name[:TOKEN_NAME_MAX], global_=method.token_locality == "global", expiration_ttl=method.max_token_ttl
    )
    if any(rule.bind_type == "management" for rule in fitting):
        return replace(common, type=MANAGEMENT)
    roles = [role.id for one in _bound(fitting, "role", found) if (role := snapshot.role_by_name(one)) is not None]
    policies = [one for one in _bound(fitting, "policy", found) if snapshot.policy(one) is not None]
    if not roles and not policies:
        raise LepaError("denied", "no role or policy bindings matched")
    return replace(
        common,
        type=CLIENT,
        roles=tuple(RoleLink(id=one) for one in dict.fromkeys(roles)),
        policies=tuple(dict.fromkeys(policies)),
    )


def _fits(rule: BindingRule, found: Picked) -> bool:
    if not rule.selector:
        return True
    try:
        return compile_filter(rule.selector)(found)
    except FilterError:
        return False


def _bound(rules: Iterable[BindingRule], kind: str, found: Picked) -> list[str]:
    return [_filled(rule.bind_name, _values(found)) for rule in rules if rule.bind_type == kind]


def _values(found: Picked) -> dict[str, str]:
    return {f"value.{name}": text for name, text in found["value"].items()}


def _names(method: AuthMethod, found: Picked) -> dict[str, str]:
    return {"auth_method_type": method.type, "auth_method_name": method.name, **_values(found)}


def _filled(text: str, known: Mapping[str, str]) -> str:
    """The text with its references filled in; one that is not known makes it a name that nothing has."""
    return REFERENCE.sub(lambda reference: known.get(reference[1].strip(), ""), text)
