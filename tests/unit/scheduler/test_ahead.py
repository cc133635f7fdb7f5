"""What is on its way counts as if it were there."""

import msgspec
from tests.builders import make_alloc, make_job, make_node, make_resources
from tests.fake_view import FakeView

from lepa.model.plan import Plan
from lepa.model.usage import usage_of
from lepa.scheduler.ahead import Ahead
from lepa.scheduler.plan_check import check_plan


def test_placements_are_there_beside_what_the_view_has() -> None:
    view = FakeView(make_node(), make_node("node-2"), allocs=[make_alloc("a")])
    ahead = Ahead(view, [make_alloc("b"), make_alloc("c", node_id="node-2")])
    assert [alloc.id for alloc in ahead.node_allocations("node-1")] == ["a", "b"]
    assert ahead.node_usage("node-1") == usage_of(ahead.node_allocations("node-1"))
    assert ahead.ahead_nodes == {"node-1", "node-2"}
    assert [alloc.id for alloc in view.node_allocations("node-1")] == ["a"]


def test_what_has_arrived_meanwhile_is_not_counted_twice() -> None:
    placed = make_alloc("a")
    view = FakeView(make_node(), allocs=[placed])
    ahead = Ahead(view, [placed])
    ahead.add([placed])
    assert ahead.node_usage("node-1") == view.node_usage("node-1")
    assert len(ahead.node_allocations("node-1")) == 1


def test_an_update_of_an_allocation_takes_its_place() -> None:
    present = make_alloc("a", allocated_resources=make_resources("web", cpu=100))
    larger = msgspec.structs.replace(present, allocated_resources=make_resources("web", cpu=300))
    ahead = Ahead(FakeView(make_node(), allocs=[present]), [larger])
    assert ahead.node_usage("node-1").used.cpu == 300
    assert ahead.node_usage("node-1").running == 1


def test_a_plan_for_room_that_is_being_taken_is_refused() -> None:
    job = make_job()
    view = FakeView(make_node(cpu=1_000), job=job)
    ahead = Ahead(view, [make_alloc("a", allocated_resources=make_resources("web", cpu=600))])
    plan = Plan(job=job, updates=(make_alloc("b", allocated_resources=make_resources("web", cpu=600)),))
    assert check_plan(plan, view).rejected_nodes == ()
    assert check_plan(plan, ahead).rejected_nodes == ("node-1",)


def test_the_rest_is_as_the_view_has_it() -> None:
    job = make_job()
    view = FakeView(make_node(), job=job)
    ahead = Ahead(view)
    assert ahead.index == view.index
    assert ahead.job("default", "web") == ahead.job_version("default", "web", 0) == job
    assert list(ahead.nodes()) == [ahead.node("node-1")]
    assert list(ahead.job_allocations("default", "web")) == []
    assert ahead.latest_deployment("default", "web") is None
    assert ahead.node_pool("default") is None
    assert ahead.scheduler_configuration() == view.scheduler_configuration()
    assert ahead.touched_nodes(0) == frozenset({"node-1"})
