"""Whom to evict."""

from typing import Any

import msgspec
from tests.builders import make_alloc, make_eval, make_group, make_job, make_node, make_resources, make_task
from tests.fake_view import FakeView

from lepa.model.allocation import Allocation
from lepa.model.job import Job
from lepa.model.node import NodeDevice, NodeDeviceResource
from lepa.model.resources import (
    AllocatedDeviceResource,
    AllocatedPortMapping,
    AllocatedSharedResources,
    AllocatedTaskResources,
    NetworkResource,
    Port,
    RequestedDevice,
    Resources,
)
from lepa.model.usage import Usage, allocation_usage
from lepa.scheduler.preempt import choose_victims


def choose(need: int, *candidates: tuple[int, int]) -> list[str] | None:
    """Victims for `need` MHz among candidates (priority, MHz)."""
    allocs = [
        (priority, make_alloc(f"p{priority}-{cpu}", allocated_resources=make_resources(cpu=cpu)))
        for priority, cpu in candidates
    ]

    def fits(gone: set[str]) -> bool:
        freed = sum(allocation_usage(alloc).cpu for _, alloc in allocs if alloc.id in gone)
        return freed >= need

    victims = choose_victims(allocs, Usage(cpu=need), fits)
    return None if victims is None else sorted(alloc.id for alloc in victims)


def test_the_lowest_priority_goes_first() -> None:
    assert choose(100, (30, 100), (10, 100), (20, 100)) == ["p10-100"]


def test_among_equals_the_one_that_helps_most() -> None:
    assert choose(300, (10, 100), (10, 400), (10, 200)) == ["p10-400"]


def test_whoever_is_not_needed_is_spared() -> None:
    assert choose(500, (10, 100), (20, 500)) == ["p20-500"]


def test_nobody_goes_for_nothing() -> None:
    assert choose(500, (10, 100), (20, 300)) is None


def evict(view: FakeView, job: Job) -> tuple[list[Allocation], list[str]]:
    """Placements and victims of a system-like evaluation in which eviction is allowed."""
    config = view.configuration.preemption_config
    config = msgspec.structs.replace(config, service_scheduler_enabled=True)
    view.configuration = msgspec.structs.replace(view.configuration, preemption_config=config)
    view.put_job(job)
    plan = view.evaluate(make_eval(job=job), apply=False).plan
    assert plan.annotations["web"].preemptions == len(plan.stops)
    return list(plan.updates), sorted(stop.alloc_id for stop in plan.stops)


def held(alloc: Allocation, port: int) -> Allocation:
    shared = AllocatedSharedResources(ports=(AllocatedPortMapping(label="p", value=port, host_ip="127.0.0.1"),))
    return msgspec.structs.replace(
        alloc, allocated_resources=msgspec.structs.replace(alloc.allocated_resources, shared=shared)
    )


def service(priority: int = 90, count: int = 1, **group: Any) -> Job:
    return make_job("high", priority=priority, groups=(make_group(count=count, **group),))


def low(priority: int = 10) -> Job:
    return make_job("low", priority=priority)


def test_only_much_lower_priorities_are_evicted() -> None:
    for priority, evicted in ((81, []), (80, ["v"])):
        view = FakeView(make_node(cpu=100), job=low(priority), allocs=[make_alloc("v", job=low(priority))])
        assert evict(view, service())[1] == evicted


def test_the_node_whose_victims_weigh_least_is_taken() -> None:
    view = FakeView(make_node("n1", cpu=100), make_node("n2", cpu=100), job=low(30))
    view.put_job(make_job("lower", priority=20))
    view.put_alloc(make_alloc("v30", job=low(30), node_id="n1"))
    view.put_alloc(make_alloc("v20", job=make_job("lower"), node_id="n2"))
    assert evict(view, service())[1] == ["v20"]


def test_several_evictions_on_one_node() -> None:
    """B063."""
    victims = [held(make_alloc(f"v{i}", job=low(), index=i), 8_080 + i) for i in range(3)]
    view = FakeView(make_node(cpu=300), job=low(), allocs=victims)
    ports = tuple(Port(label="p", value=8_080 + i) for i in range(1))
    placed, evicted = evict(view, service(count=3))
    assert (len(placed), evicted) == (3, ["v0", "v1", "v2"])
    view = FakeView(make_node(), job=low(), allocs=victims)
    placed, evicted = evict(view, service(networks=(NetworkResource(reserved_ports=ports),)))
    assert (len(placed), evicted) == (1, ["v0"])


def test_a_port_held_by_an_equal_priority_evicts_nobody() -> None:
    """B065."""
    equal = make_job("equal", priority=90)
    view = FakeView(make_node(), job=equal)
    view.put_job(low())
    view.put_alloc(held(make_alloc("holder", job=equal), 8_080))
    view.put_alloc(make_alloc("bystander", job=low()))
    network = NetworkResource(reserved_ports=(Port(label="p", value=8_080),))
    assert evict(view, service(networks=(network,))) == ([], [])


def test_two_device_requests_are_served_by_evicting_both_holders() -> None:
    """B055."""
    instances = (NodeDevice(id="a", healthy=True), NodeDevice(id="b", healthy=True))
    node = make_node()
    gpus = NodeDeviceResource(vendor="nvidia", type="gpu", name="t4", instances=instances)
    resources = msgspec.structs.replace(node.node_resources, devices=(gpus,))
    view = FakeView(msgspec.structs.replace(node, node_resources=resources), job=low())
    for each in ("a", "b"):
        device = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="t4", device_ids=(each,))
        alloc = make_alloc(each, job=low())
        given = msgspec.structs.replace(
            alloc.allocated_resources, tasks={"web": AllocatedTaskResources(devices=(device,))}
        )
        view.put_alloc(alloc, allocated_resources=given)
    task = make_task(resources=Resources(devices=(RequestedDevice(name="gpu"), RequestedDevice(name="gpu"))))
    placed, evicted = evict(view, service(tasks=(task,)))
    assert evicted == ["a", "b"]
    assert [device.device_ids for device in placed[0].allocated_resources.tasks["web"].devices] == [("a",), ("b",)]
