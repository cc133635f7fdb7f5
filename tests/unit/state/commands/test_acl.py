"""Tokens, policies, roles. Covers lepa.server.deciders.tokens and lepa.model.acl."""

import pytest
from tests.world import World

from lepa.kit.durations import HOUR, MINUTE, SECOND, parse_rfc3339, rfc3339
from lepa.model.acl import (
    AclPolicy,
    AclRole,
    AclToken,
    AuthMethod,
    AuthMethodConfig,
    BindingRule,
    JobAcl,
    PolicyLink,
    RoleLink,
    without_secrets,
)
from lepa.model.errors import LepaError
from lepa.server.deciders.tokens import decide
from lepa.state.commands import acl

LIMITS = acl.TokenLimits()


def test_bootstrap_is_done_once_and_again_only_with_its_index() -> None:
    world = World()
    first = world.do(acl.bootstrap)
    assert (first.type, first.name) == ("management", "Bootstrap Token")
    done = world.snapshot.bootstrap()
    assert done is not None
    with pytest.raises(LepaError, match=rf"already done \(reset index: {done.modify_index}\)"):
        world.do(acl.bootstrap)
    with pytest.raises(LepaError, match="Invalid bootstrap reset index"):
        world.do(acl.bootstrap, "", 99)
    second = world.do(acl.bootstrap, "", done.modify_index)
    assert second.secret_id != first.secret_id
    with pytest.raises(LepaError, match="Invalid bootstrap reset index"):
        world.do(acl.bootstrap, "", done.modify_index)


def test_the_operator_may_choose_the_first_secret() -> None:
    world = World()
    secret = "11111111-2222-3333-4444-555555555555"
    assert world.do(acl.bootstrap, secret).secret_id == secret
    assert world.snapshot.token_by_secret(secret) is not None
    with pytest.raises(LepaError, match="UUID"):
        World().do(acl.bootstrap, "short")


def token(**fields: object) -> AclToken:
    return AclToken(**{"type": "client", "policies": ("p",)} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (token(policies=()), "missing policies or roles"),
        (token(type="management"), "cannot be associated"),
        (token(type="root"), "must be client or management"),
        (token(name="n" * 257), "name too long"),
        (token(expiration_ttl=SECOND), "cannot be less than 1m0s"),
        (token(expiration_ttl=25 * HOUR), "cannot be more than 24h0m0s"),
        (token(expiration_ttl=-1), "should not be negative"),
        (token(expiration_time="yesterday"), "ExpirationTime"),
        (token(expiration_time="2020-01-01T00:00:00Z"), "before create time"),
        (token(roles=(RoleLink(name="ghost"),)), "cannot find role ghost"),
        (token(accessor_id="ghost"), "not found"),
    ],
)
def test_tokens_that_cannot_be(wanted: AclToken, reason: str) -> None:
    with pytest.raises(LepaError, match=reason):
        World().do(acl.upsert_token, wanted, LIMITS)


def test_a_token_expires_and_is_forgotten_an_hour_later() -> None:
    world = World()
    made = world.do(acl.upsert_token, token(expiration_ttl=2 * MINUTE), LIMITS)
    assert made.expiration_time == rfc3339(world.now_ns + 2 * MINUTE)
    assert not acl.expired(made, world.now_ns + 2 * MINUTE - 1)
    assert acl.expired(made, world.now_ns + 2 * MINUTE)
    assert decide(world.snapshot, world.now_ns + HOUR).orders == ()
    world.now_ns = parse_rfc3339(made.expiration_time) + HOUR
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert world.snapshot.token(made.accessor_id) is None


def test_a_change_keeps_secret_and_life() -> None:
    world = World()
    made = world.do(acl.upsert_token, token(expiration_ttl=HOUR), LIMITS)
    changed = world.do(acl.upsert_token, token(accessor_id=made.accessor_id, name="new", policies=("q",)), LIMITS)
    assert (changed.secret_id, changed.expiration_time) == (made.secret_id, made.expiration_time)
    assert (changed.name, changed.policies) == ("new", ("q",))
    assert changed.hash != made.hash
    with pytest.raises(LepaError, match="toggle global"):
        world.do(acl.upsert_token, token(accessor_id=made.accessor_id, global_=True), LIMITS)
    with pytest.raises(LepaError, match="update expiration TTL"):
        world.do(acl.upsert_token, token(accessor_id=made.accessor_id, expiration_ttl=2 * HOUR), LIMITS)


def test_a_hash_tells_nothing_of_the_secret() -> None:
    one, two = World(), World()
    two.new_id()
    made = [world.do(acl.upsert_token, token(name="same"), LIMITS) for world in (one, two)]
    assert made[0].secret_id != made[1].secret_id
    first, second = (acl._sealed(AclToken(accessor_id="a", secret_id=each.secret_id)).hash for each in made)
    assert first == second


def test_a_one_time_token_is_exchanged_once_and_in_time() -> None:
    world = World()
    made = world.do(acl.upsert_token, token(), LIMITS)
    once = world.do(acl.create_one_time, made.accessor_id)
    assert world.do(acl.exchange_one_time, once.one_time_secret_id).secret_id == made.secret_id
    with pytest.raises(LepaError, match="not found"):
        world.do(acl.exchange_one_time, once.one_time_secret_id)
    late = world.do(acl.create_one_time, made.accessor_id)
    world.now_ns += 10 * MINUTE
    with pytest.raises(LepaError, match="not found"):
        world.do(acl.exchange_one_time, late.one_time_secret_id)
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert list(world.snapshot.one_time_tokens()) == []


def test_a_deleted_token_takes_its_one_time_secrets_along() -> None:
    world = World()
    made = world.do(acl.upsert_token, token(), LIMITS)
    once = world.do(acl.create_one_time, made.accessor_id)
    world.do(acl.delete_token, made.accessor_id)
    with pytest.raises(LepaError, match="not found"):
        world.do(acl.exchange_one_time, once.one_time_secret_id)
    with pytest.raises(LepaError, match="nonexistent"):
        world.do(acl.delete_token, made.accessor_id)


def test_roles_name_policies_that_exist_and_have_names_of_their_own() -> None:
    world = World()
    with pytest.raises(LepaError, match="cannot find policy p"):
        world.do(acl.upsert_role, AclRole(name="r", policies=(PolicyLink(name="p"),)))
    world.do(acl.upsert_policy, AclPolicy(name="p"))
    role = world.do(acl.upsert_role, AclRole(name="r", policies=(PolicyLink(name="p"), PolicyLink(name="p"))))
    assert role.policies == (PolicyLink(name="p"),)
    with pytest.raises(LepaError, match="already exists"):
        world.do(acl.upsert_role, AclRole(name="r", policies=(PolicyLink(name="p"),)))
    with pytest.raises(LepaError, match="at least one policy"):
        world.do(acl.upsert_role, AclRole(id=role.id, name="r"))
    made = world.do(acl.upsert_token, token(policies=(), roles=(RoleLink(name="r"),)), LIMITS)
    assert made.roles == (RoleLink(id=role.id),)


def test_policies_are_attached_to_workloads_with_care() -> None:
    world = World()
    with pytest.raises(LepaError, match="JobID"):
        world.do(acl.upsert_policy, AclPolicy(name="p", job_acl=JobAcl(group="g")))
    with pytest.raises(LepaError, match="Group"):
        world.do(acl.upsert_policy, AclPolicy(name="p", job_acl=JobAcl(job_id="j", task="t")))
    world.do(acl.upsert_policy, AclPolicy(name="p", job_acl=JobAcl(job_id="web")))
    assert [one.name for one in world.snapshot.policies_of_job("default", "web")] == ["p"]
    assert world.snapshot.policies_of_job("default", "web2") == ()
    with pytest.raises(LepaError, match="invalid name"):
        world.do(acl.upsert_policy, AclPolicy(name="a b"))


def method(**fields: object) -> AuthMethod:
    usual = {"name": "m", "type": "JWT", "token_locality": "local", "max_token_ttl": HOUR}
    return AuthMethod(**usual | fields)  # type: ignore[arg-type]


def test_a_secret_that_is_shown_redacted_stays_when_it_is_given_back() -> None:
    """B238."""
    world = World()
    config = AuthMethodConfig(
        oidc_client_secret="hush", oidc_client_assertion={"PrivateKey": "very-private", "KeyAlgorithm": "x"}
    )
    stored = world.do(acl.upsert_auth_method, method(config=config), LIMITS)
    shown = without_secrets(stored)
    assert "hush" not in repr(shown)
    assert "very-private" not in repr(shown)
    again = world.do(acl.upsert_auth_method, shown, LIMITS)
    assert again.config.oidc_client_secret == "hush"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (method(type="LDAP"), "OIDC or JWT"),
        (method(token_locality="moon"), "local or global"),
        (method(max_token_ttl=0), "MaxTokenTTL"),
        (method(name="a b"), "invalid name"),
    ],
)
def test_auth_methods_that_cannot_be(wanted: AuthMethod, reason: str) -> None:
    with pytest.raises(LepaError, match=reason):
        World().do(acl.upsert_auth_method, wanted, LIMITS)


def test_binding_rules_go_with_their_method() -> None:
    world = World()
    rule = BindingRule(auth_method="m", bind_type="management")
    with pytest.raises(LepaError, match="not found"):
        world.do(acl.upsert_binding_rule, rule)
    world.do(acl.upsert_auth_method, method(default=True), LIMITS)
    with pytest.raises(LepaError, match="default auth method"):
        world.do(acl.upsert_auth_method, method(name="n", default=True), LIMITS)
    made = world.do(acl.upsert_binding_rule, rule)
    for wrong in (
        BindingRule(auth_method="m", bind_type="management", bind_name="x"),
        BindingRule(auth_method="m", bind_type="role"),
        BindingRule(auth_method="m", bind_type="boss", bind_name="x"),
        BindingRule(id=made.id, auth_method="n", bind_type="management"),
    ):
        with pytest.raises(LepaError):
            world.do(acl.upsert_binding_rule, wrong)
    world.do(acl.delete_auth_method, "m")
    assert world.snapshot.binding_rule(made.id) is None
