"""What those who log in get."""

import pytest
from tests.world import World

from lepa.kit.durations import HOUR
from lepa.model.acl import AclPolicy, AclRole, AuthMethod, AuthMethodConfig, BindingRule, PolicyLink
from lepa.model.errors import LepaError
from lepa.server.acl.bindings import check_selector, picked, token_for
from lepa.state.commands import acl

LIMITS = acl.TokenLimits()
CONFIG = AuthMethodConfig(
    jwks_url="http://x", claim_mappings={"/org/team": "team", "sub": "who"}, list_claim_mappings={"groups": "groups"}
)
METHOD = AuthMethod(
    name="corp",
    type="JWT",
    token_locality="global",
    max_token_ttl=HOUR,
    token_name_format="${auth_method_name}-${value.who}",
    config=CONFIG,
)
CLAIMS = {"sub": "ada", "org": {"team": "web"}, "groups": ["dev", 7]}


def world(*rules: BindingRule) -> World:
    made = World()
    for name in ("web", "ops"):
        made.do(acl.upsert_policy, AclPolicy(name=name))
    made.do(acl.upsert_role, AclRole(name="team-web", policies=(PolicyLink(name="web"),)))
    made.do(acl.upsert_auth_method, METHOD, LIMITS)
    for rule in rules:
        made.do(acl.upsert_binding_rule, rule)
    return made


def rule(kind: str, name: str = "", selector: str = "") -> BindingRule:
    return BindingRule(auth_method="corp", bind_type=kind, bind_name=name, selector=selector)


def test_claims_are_picked_by_name_and_by_pointer() -> None:
    assert picked(METHOD, CLAIMS) == {"value": {"team": "web", "who": "ada"}, "list": {"groups": ["dev", "7"]}}
    assert picked(METHOD, {})["value"] == {}


def test_rules_give_roles_and_policies() -> None:
    made = world(rule("role", "team-${value.team}"), rule("policy", "ops", '"dev" in list.groups'))
    token = token_for(made.snapshot, METHOD, picked(METHOD, CLAIMS))
    assert (token.type, token.policies, token.global_, token.name) == ("client", ("ops",), True, "corp-ada")
    assert [made.snapshot.role(link.id).name for link in token.roles] == ["team-web"]  # type: ignore[union-attr]
    assert token.expiration_ttl == HOUR


def test_management_needs_a_rule_that_fits() -> None:
    made = world(rule("management", selector='value.who == "ada"'))
    assert token_for(made.snapshot, METHOD, picked(METHOD, CLAIMS)).type == "management"
    with pytest.raises(LepaError, match="no role or policy bindings matched"):
        token_for(made.snapshot, METHOD, picked(METHOD, {"sub": "eve"}))


def test_what_does_not_exist_is_not_given() -> None:
    made = world(rule("role", "team-${value.nothing}"), rule("policy", "ghost"))
    with pytest.raises(LepaError) as refused:
        token_for(made.snapshot, METHOD, picked(METHOD, CLAIMS))
    assert refused.value.code == "denied"


def test_a_selector_has_to_be_readable() -> None:
    check_selector("")
    check_selector('value.team == "web"')
    with pytest.raises(LepaError, match="invalid selector"):
        check_selector("value.team ==")
