"""Which nodes may run a group."""

import numpy as np
from tests.builders import make_group, make_job, make_node
from tests.fake_view import FakeView

from lepa.model.constraint import Constraint
from lepa.scheduler.candidates import class_eligibility, find_candidates
from lepa.scheduler.columns import NodeColumns


def columns_of(view: FakeView) -> NodeColumns:
    columns = NodeColumns()
    columns.refresh(view)
    return columns


def test_each_node_is_counted_for_the_first_check_it_fails() -> None:
    linux = Constraint(ltarget="${attr.kernel.name}", operand="=", rtarget="linux")
    rack = Constraint(ltarget="${meta.rack}", operand="=", rtarget="1")
    view = FakeView(
        make_node("good", meta={"rack": "1"}),
        make_node("elsewhere", datacenter="dc9"),
        make_node("down", status="down"),
        make_node("other-pool", node_pool="gpu"),
        make_node("bsd", attributes={"kernel.name": "bsd"}, node_class="odd"),
        make_node("no-rack", node_class="odd"),
        make_node("no-driver", meta={"rack": "1"}, drivers={}, attributes={"kernel.name": "linux"}),
    )
    job = make_job(datacenters=("dc1",), constraints=(linux, rack))
    found = find_candidates(columns_of(view), job, job.task_groups[0])
    assert np.count_nonzero(found.in_pool) == 6
    assert np.count_nonzero(found.eligible) == 4
    assert np.count_nonzero(found.feasible) == 1
    assert found.filtered == {"${attr.kernel.name} = linux": 1, "${meta.rack} = 1": 1, "missing drivers": 1}
    assert found.class_filtered == {"odd": 2}


def test_a_class_is_eligible_when_one_of_its_nodes_passes() -> None:
    fast = Constraint(ltarget="${meta.fast}", operand="is_set")
    view = FakeView(
        make_node("a", computed_class="v1:fast", meta={"fast": "1"}),
        make_node("b", computed_class="v1:slow"),
        make_node("c", computed_class="v1:gone", status="down"),
    )
    group = make_group(constraints=(fast,))
    job = make_job(groups=(group,))
    columns = columns_of(view)
    eligibility = class_eligibility(columns, job, [(group, find_candidates(columns, job, group))])
    assert eligibility.classes == {"v1:fast": True, "v1:slow": False}
    assert not eligibility.escaped


def test_a_constraint_on_unique_properties_escapes_the_class() -> None:
    group = make_group(constraints=(Constraint(ltarget="${attr.unique.hostname}", operand="=", rtarget="x"),))
    job = make_job(groups=(group,))
    columns = columns_of(FakeView(make_node("a")))
    assert class_eligibility(columns, job, [(group, find_candidates(columns, job, group))]).escaped


def test_no_nodes_at_all() -> None:
    job = make_job()
    found = find_candidates(columns_of(FakeView()), job, job.task_groups[0])
    assert found.filtered == {}
    assert not found.feasible.any()
