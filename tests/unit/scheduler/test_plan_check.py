"""Does a plan still fit."""

from typing import Any

import msgspec
import pytest
from tests.builders import make_alloc, make_job, make_node
from tests.fake_view import FakeView

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.node import DrainStrategy
from lepa.model.plan import AllocationStop, Plan
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedDeviceResource,
    AllocatedPortMapping,
    AllocatedSharedResources,
    AllocatedTaskResources,
)
from lepa.scheduler.plan_check import check_plan, check_stands, plan_parts

JOB = make_job()


def plan(*updates: Allocation, stops: tuple[AllocationStop, ...] = (), **changes: Any) -> Plan:
    return Plan(**({"job": JOB, "updates": updates, "stops": stops} | changes))


def view_of(*allocs: Allocation, **node: Any) -> FakeView:
    return FakeView(make_node("node-1", cpu=250, **node), make_node("node-2"), job=JOB, allocs=allocs)


def with_port(alloc: Allocation, port: int, address: str = "127.0.0.1") -> Allocation:
    shared = AllocatedSharedResources(ports=(AllocatedPortMapping(label="p", value=port, host_ip=address),))
    return msgspec.structs.replace(
        alloc, allocated_resources=msgspec.structs.replace(alloc.allocated_resources, shared=shared)
    )


def with_task(alloc: Allocation, given: AllocatedTaskResources) -> Allocation:
    return msgspec.structs.replace(
        alloc, allocated_resources=msgspec.structs.replace(alloc.allocated_resources, tasks={"web": given})
    )


def test_what_fits_is_taken_whole() -> None:
    wanted = plan(make_alloc("new"), deployment=Deployment(id="d"))
    result = check_plan(wanted, view_of())
    assert (result.updates, result.refresh_index, result.rejected_nodes) == (wanted.updates, 0, ())
    assert result.deployment is not None


def test_a_full_node_refuses_and_others_accept() -> None:
    view = view_of(make_alloc("old-1"), make_alloc("old-2"))
    result = check_plan(plan(make_alloc("new"), make_alloc("other", node_id="node-2")), view)
    assert [alloc.id for alloc in result.updates] == ["other"]
    assert result.rejected_nodes == ("node-1",)
    assert result.refresh_index == view.index


def test_all_at_once_is_all_or_nothing() -> None:
    view = view_of(make_alloc("old-1"), make_alloc("old-2"))
    stop = AllocationStop(alloc_id="x")
    result = check_plan(
        plan(make_alloc("new"), make_alloc("b", node_id="node-2"), stops=(stop,), all_at_once=True), view
    )
    assert (result.updates, result.stops) == ((), ())
    assert result.refresh_index


def test_stops_of_the_plan_make_room() -> None:
    view = view_of(make_alloc("old-1"), make_alloc("old-2"))
    result = check_plan(plan(make_alloc("new"), stops=(AllocationStop(alloc_id="old-1"),)), view)
    assert result.rejected_nodes == ()


@pytest.mark.parametrize(
    "changes",
    [{"status": "down"}, {"scheduling_eligibility": "ineligible"}, {"drain_strategy": DrainStrategy()}],
)
def test_nodes_that_are_not_ready_take_nothing_new(changes: dict[str, Any]) -> None:
    view = view_of(make_alloc("old"), **changes)
    assert check_plan(plan(make_alloc("new")), view).rejected_nodes == ("node-1",)
    assert check_plan(plan(make_alloc("old", job_version=1)), view).rejected_nodes == (), "an in-place update may"


def test_an_unknown_node_takes_nothing() -> None:
    assert check_plan(plan(make_alloc("new", node_id="gone")), view_of()).rejected_nodes == ("gone",)


def test_a_status_is_put_right_whatever_the_node() -> None:
    view = view_of(make_alloc("old"), status="disconnected")
    assert check_plan(plan(make_alloc("old", client_status="unknown")), view).rejected_nodes == ()
    assert check_plan(plan(make_alloc("old", node_id="gone", client_status="lost")), view).rejected_nodes == ()


def test_nothing_is_placed_for_a_job_that_was_stopped_meanwhile() -> None:
    """B009."""
    view = view_of()
    view.put_job(make_job(stop=True))
    assert check_plan(plan(make_alloc("new")), view).rejected_nodes == ("node-1",)
    view.purge_job(JOB)
    assert check_plan(plan(make_alloc("new")), view).rejected_nodes == ("node-1",)


def test_an_eviction_goes_only_with_its_placement() -> None:
    view = view_of(make_alloc("big"), make_alloc("old"), make_alloc("z"))
    evict = AllocationStop(alloc_id="old", desired_status="evict", preempted_by="new")
    other = AllocationStop(alloc_id="elsewhere")
    result = check_plan(plan(make_alloc("new"), stops=(evict, other)), view)
    assert result.stops == (other,)


def test_ports_are_given_once() -> None:
    view = view_of(with_port(make_alloc("old"), 8080))
    other_job = {"job_id": "other"}
    assert check_plan(plan(with_port(make_alloc("new", **other_job), 8080)), view).rejected_nodes == ("node-1",)
    assert not check_plan(plan(with_port(make_alloc("new", **other_job), 8080, "10.0.0.1")), view).rejected_nodes
    twice = plan(with_port(make_alloc("b"), 9000), with_port(make_alloc("c"), 9000))
    assert check_plan(twice, view).rejected_nodes == ("node-1",)


def test_an_own_static_port_may_be_taken_over_and_a_foreign_one_not() -> None:
    view = view_of(with_port(make_alloc("old", desired_status="stop"), 8080))
    assert not check_plan(plan(with_port(make_alloc("new"), 8080)), view).rejected_nodes
    assert check_plan(plan(with_port(make_alloc("new", job_id="other"), 8080)), view).rejected_nodes


def test_cores_and_devices_are_given_once() -> None:
    core = AllocatedTaskResources(cpu=AllocatedCpuResources(cpu_shares=10, reserved_cores=(1,)))
    gpu = AllocatedTaskResources(devices=(AllocatedDeviceResource(type="gpu", device_ids=("a",)),))
    for given in (core, gpu):
        view = FakeView(make_node("node-1"), job=JOB, allocs=[with_task(make_alloc("old"), given)])
        view.put_node(make_node("node-1"))
        assert check_plan(plan(with_task(make_alloc("new"), given)), view).rejected_nodes == ("node-1",)


def test_a_node_takes_no_more_allocations_than_it_may() -> None:
    view = view_of(make_alloc("old"), node_max_allocs=1)
    assert check_plan(plan(make_alloc("new")), view).rejected_nodes == ("node-1",)


def test_an_overfull_node_still_takes_updates_that_need_no_more() -> None:
    view = view_of(make_alloc("a"), make_alloc("b"), make_alloc("c"))
    assert check_plan(plan(make_alloc("a", job_version=1)), view).rejected_nodes == ()


def test_parts_stop_first_and_each_is_small() -> None:
    updates = tuple(make_alloc(f"n{i}") for i in range(5))
    stops = tuple(AllocationStop(alloc_id=f"s{i}") for i in range(3))
    parts = list(plan_parts(plan(*updates, stops=stops, deployment=Deployment(id="d")), 2))
    assert [(len(part.stops), len(part.updates)) for part in parts] == [(2, 0), (1, 0), (0, 2), (0, 2), (0, 1)]
    assert [part.deployment is not None for part in parts] == [True, False, False, False, False]
    assert len(list(plan_parts(plan(*updates, all_at_once=True), 2))) == 1
    assert len(list(plan_parts(plan(*updates[:2]), 2))) == 1


def test_what_was_found_of_a_plan_stands_while_its_job_and_nodes_do() -> None:
    node, job = make_node("node-1", modify_index=5), make_job(modify_index=5)
    wanted = plan(make_alloc("a"))
    before = FakeView(node, job=job)
    assert check_stands(wanted, before, FakeView(node, make_node("node-2"), job=job, allocs=[make_alloc("b")]))
    assert not check_stands(wanted, before, FakeView(make_node("node-1", modify_index=6), job=job))
    assert not check_stands(wanted, before, FakeView(job=job))
    assert not check_stands(wanted, before, FakeView(node, job=make_job(modify_index=6)))
    assert not check_stands(wanted, before, FakeView(node))
