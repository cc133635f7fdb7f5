"""Rights of a caller: which rule counts, and that a deny wins."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.server.acl.access import ALL, Access, Workload, glob_matches
from lepa.server.acl.rules import parse_rules


def access(*texts: str, **more: object) -> Access:
    return Access(map(parse_rules, texts), **more)  # type: ignore[arg-type]


def test_the_most_specific_pattern_counts_alone() -> None:
    found = access('namespace "*" { policy = "write" }\nnamespace "prod-*" { policy = "read" }\n'
                   'namespace "prod-web" { policy = "deny" }')  # fmt: skip
    assert found.namespace("dev", "submit-job")
    assert not found.namespace("prod-api", "submit-job")
    assert found.namespace("prod-api", "read-job")
    assert not found.namespace("prod-web", "read-job")
    assert not found.sees_namespace("prod-web")


def test_policies_are_joined_and_a_deny_among_them_wins() -> None:
    reader, writer = 'namespace "a" { policy = "read" }', 'namespace "a" { capabilities = ["alloc-exec"] }'
    assert access(reader, writer).namespace("a", "alloc-exec")
    denied = access(reader, writer, 'namespace "a" { policy = "deny" }')
    assert not denied.namespace("a", "read-job", "alloc-exec")
    assert not access('node { policy = "deny" }', 'node { policy = "write" }').scope("node", "read")


def test_variables_have_rules_of_their_own() -> None:
    found = access(
        """namespace "*" {
  policy = "write"
  variables {
    path "*" {
      capabilities = ["list"]
    }
    path "app/*" {
      capabilities = ["write"]
    }
    path "app/key" {
      capabilities = ["deny"]
    }
  }
}"""
    )
    assert found.variable("default", "x", "list")
    assert not found.variable("default", "x", "read")
    assert found.variable("default", "app/a", "write")
    assert not found.variable("default", "app/a", "read")
    assert not found.variable("default", "app/key", "list")
    assert not access('namespace "*" { policy = "write" }').variable("default", "x", "list")


def test_a_workload_reads_its_own_paths_and_nothing_else() -> None:
    """B233, B235, CVE-2023-1299."""
    task = Access(workload=Workload("default", "web", "front", "server", "a1"))
    own = ["nomad/jobs", "nomad/jobs/web", "nomad/jobs/web/front", "nomad/jobs/web/front/server"]
    assert all(task.variable("default", path, "read") for path in own)
    assert not any(task.variable("default", path, "write") for path in own)
    assert not any(task.variable("other", path, "read") for path in own)
    for path in ("nomad/jobs/web2", "nomad/jobs/web/front2", "nomad/jobs/we", "x", "nomad/jobs/web/front/server/x"):
        assert not task.variable("default", path, "list")
    assert not task.management
    assert not task.namespace("default", "read-job")


def test_management_may_everything() -> None:
    assert ALL.namespace("x", "alloc-exec")
    assert ALL.scope("operator", "write")
    assert ALL.variable("x", "y", "destroy")
    assert ALL.node_pool("x", "delete")
    assert ALL.host_volume("x", "mount-readwrite")


def test_nothing_is_granted_without_a_policy() -> None:
    nobody = Access()
    assert not nobody.namespace("default", "read-job")
    assert not nobody.sees_namespace("default")
    assert not nobody.scope("node", "read")
    assert not nobody.any_variable("*")
    assert not nobody.node_pool("default", "read")


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [("a*c", "abc", True), ("a*c", "ac", True), ("a*a", "a", False), ("*", "", True), ("a", "ab", False),
     ("*x*", "axb", True), ("a*b*c", "abbc", True), ("a*b*c", "acb", False)],
)  # fmt: skip
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert glob_matches(pattern, name) is fits


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_patterns_mean_what_regular_expressions_do(pattern: str, name: str) -> None:
    wanted = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
    assert glob_matches(pattern, name) is wanted


GRANTS = st.frozensets(st.sampled_from(["read-job", "submit-job", "alloc-exec", "deny"]), min_size=1)


@given(
    st.dictionaries(st.sampled_from(["*", "a*", "ab*", "abc", "b*"]), GRANTS, min_size=1),
    st.sampled_from(["abc", "ab", "b"]),
)
def test_no_right_comes_from_nowhere(rules: dict[str, frozenset[str]], name: str) -> None:
    """What is granted was granted by the closest pattern that fits, and by none that denies."""
    text = json.dumps({"namespace": {pattern: {"capabilities": sorted(caps)} for pattern, caps in rules.items()}})
    found = access(text)
    fitting = [pattern for pattern in rules if glob_matches(pattern, name)]
    exact = [pattern for pattern in fitting if "*" not in pattern]
    closest = exact or sorted(fitting, key=len)[-1:]
    for capability in ("read-job", "submit-job", "alloc-exec"):
        wanted = bool(closest) and capability in rules[closest[0]] and "deny" not in rules[closest[0]]
        assert found.namespace(name, capability) is wanted
