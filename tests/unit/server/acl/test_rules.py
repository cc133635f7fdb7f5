"""Policies are read as they are meant, and refused when they are not clear."""

import pytest

from lepa.model.errors import LepaError
from lepa.server.acl.rules import parse_rules

WEB = """
namespace "web-*" {
  policy       = "read"
  capabilities = ["submit-job"]
  variables {
    path "nomad/jobs/*" {
      capabilities = ["read", "write"]
    }
  }
}
node_pool "gpu" { policy = "write" }
host_volume "data" { policy = "read" }
node { policy = "read" }
operator {
  capabilities = ["snapshot-save"]
}
"""


def test_every_scope_is_read() -> None:
    rules = parse_rules(WEB)
    assert {"submit-job", "list-jobs", "read-job"} <= rules.scopes["namespace", "web-*"]
    assert "alloc-exec" not in rules.scopes["namespace", "web-*"]
    assert rules.variables["web-*", "nomad/jobs/*"] == {"read", "list", "write"}
    assert rules.scopes["node_pool", "gpu"] == {"read", "write", "delete"}
    assert rules.scopes["host_volume", "data"] == {"mount-readonly"}
    assert rules.scopes["node", ""] == {"read"}
    assert rules.scopes["operator", ""] == {"snapshot-save"}


def test_json_says_the_same() -> None:
    text = '{"namespace": {"web": {"policy": "scale"}}, "agent": {"policy": "write"}}'
    rules = parse_rules(text)
    assert "scale-job" in rules.scopes["namespace", "web"]
    assert rules.scopes["agent", ""] == {"read", "write"}


@pytest.mark.parametrize(
    "text",
    [
        'namespace "web" { policy = "read" capabilities = ["submit-job"] } agent { policy = "write" }',
        'namespace "web" { policy = "read", capabilities = ["submit-job",], }, agent { policy = "write" }',
        '"namespace" "web" {\n"policy" = "read"\n"capabilities" = [\n"submit-job"\n]\n}\nagent = {policy="write"}',
        'namespace web { policy = "read" capabilities = ["submit-job"] } /* x */ agent { policy = "write" } // y',
        'namespace = { web = { policy = "read", capabilities = ["submit-job"] } } agent { policy = "write" }',
        'namespace { "web" { policy = "read" capabilities = ["submit-job"] } }\n# z\nagent { policy = "write" }',
    ],
)
def test_all_that_hcl1_allows_says_the_same(text: str) -> None:
    rules = parse_rules(text)
    assert rules.scopes.keys() == {("namespace", "web"), ("agent", "")}
    assert {"submit-job", "read-job"} <= rules.scopes["namespace", "web"]
    assert rules.scopes["agent", ""] == {"read", "write"}


def test_paths_of_variables_are_read_in_either_form() -> None:
    block = (
        'namespace "a" { variables { path "x/*" { capabilities = ["read"] } path "y" { capabilities = ["write"] } } }'
    )
    given = block.replace("variables {", "variables = {").replace('path "x/*" {', 'path = { "x/*" = {', 1)
    given = given.replace('} path "y" {', ', } "y" = {').replace("} } }", "} } } }")
    assert parse_rules(block).variables == parse_rules(given).variables != {}


def test_no_rules_grant_nothing() -> None:
    assert parse_rules("").scopes == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param('namespace {\n policy = "write"\n}', "no name", id="B231"),
        pytest.param('namespace "p" {\n variables "*" {\n capabilities = ["deny"]\n }\n}', "only path", id="B254"),
        ('namespace "p" {\n policy = "admin"\n}', "namespace policy"),
        ('namespace "p" {\n capabilities = ["fly"]\n}', "invalid capability 'fly'"),
        ('namespace "p" {\n quota = "x"\n}', '"quota" is not known'),
        ('namespace "p" {\n variables {\n }\n}', "no paths"),
        ('namespace "p" {\n variables {\n path "/x" {\n capabilities = ["read"]\n }\n }\n}', 'invalid path "/x"'),
        ('namespace "p" {\n variables {\n path "x" {\n }\n }\n}', "has to have capabilities"),
        ('node "x" {\n policy = "read"\n}', "has no name"),
        ("agent {\n}", "it has none"),
        ("x = 1", "is not a block"),
        ('galaxy { policy = "read" }', '"galaxy" is not known'),
        ('{"namespace": {}}', "Invalid namespace name"),
        ('{"namespace": {"policy": "write"}}', "Invalid namespace name"),
        ("{", "Failed to parse"),
        ('namespace "p" {', "Failed to parse"),
        ('namespace "p q" { policy = "read" }', "Invalid namespace name"),
        ('namespace = { policy = "write" }', "no name"),
        ('namespace { "a" = "write" }', "no name"),
        ('namespace "a" "b" { policy = "read" }', "more than one name"),
        ('agent { policy = "read" policy = "write" }', "policy is there twice"),
        ('namespace "p" { capabilities = "read-job" }', "have to be a list"),
        ('namespace "p" { capabilities = [{}] }', "have to be a list"),
        ("# nothing", "grants and denies nothing"),
    ],
)
def test_what_is_not_clear_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LepaError, match=reason) as refused:
        parse_rules(text)
    assert refused.value.code == "invalid"
