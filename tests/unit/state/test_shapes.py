"""The tables of the state, and what their rows are found by."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_job

from lepa.model.acl import AclPolicy, JobAcl
from lepa.state.keys import KINDS
from lepa.state.shapes import SHAPES


def groups(table: str, row: object) -> dict[str, object]:
    """The groups that a row belongs to, by grouping."""
    found = {name: group(row) for name, group in SHAPES[table].groupings.items()}
    return {name: group for name, group in found.items() if group is not None}


def test_every_kind_of_row_that_is_stored_has_a_table() -> None:
    assert sorted(SHAPES) == sorted(KINDS)


def test_keys_with_a_number_are_in_the_order_of_numbers() -> None:
    assert SHAPES["job_versions"].key(("default", "web", "00000000000000000010")) == ("default", "web", 10)
    assert SHAPES["jobs"].key(("default", "web")) == ("default", "web")
    assert SHAPES["allocs"].key(("a1",)) == "a1"


def test_a_row_is_in_the_groups_that_it_says_something_about() -> None:
    alloc = make_alloc("a", job=make_job("web"), node_id="n", eval_id="e", deployment_id="")
    assert groups("allocs", alloc) == {"job": ("default", "web"), "node": "n", "eval": "e"}
    assert groups("jobs", make_job("web")) == {}
    assert groups("jobs", make_job("web/1", parent_id="web")) == {"parent": ("default", "web")}


def test_a_policy_of_a_job_without_a_namespace_is_one_of_the_default_namespace() -> None:
    policy = AclPolicy(name="p", job_acl=JobAcl(job_id="web"))
    assert groups("acl_policies", policy) == {"job": ("default", "web")}
    assert groups("acl_policies", replace(policy, job_acl=None)) == {}
