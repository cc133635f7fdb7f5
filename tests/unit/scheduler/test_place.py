"""Making the allocations that a reconciler asked for (in a `lepa.scheduler.context`)."""

from typing import Any

from tests.builders import make_alloc, make_eval, make_group, make_job, make_node, make_task
from tests.fake_view import FakeView, Ids

from lepa.kit.durations import HOUR
from lepa.model.allocation import RescheduleEvent, RescheduleTracker
from lepa.model.job import EphemeralDisk, Job
from lepa.model.node import (
    LegacyNodeCpuResources,
    Node,
    NodeDevice,
    NodeDeviceResource,
    NodeDiskResources,
    NodeMemoryResources,
    NodeResources,
)
from lepa.model.operator import SchedulerConfiguration
from lepa.model.policies import ReschedulePolicy
from lepa.model.resources import NetworkResource, Port, RequestedDevice, Resources
from lepa.model.tenancy import NodePool, NodePoolSchedulerConfiguration
from lepa.scheduler.changes import Placement, stop_of
from lepa.scheduler.columns import Proposal
from lepa.scheduler.context import Context
from lepa.scheduler.place import OWN_METRICS_MAX, Placed, Placer

NOW = 100 * HOUR


def place(view: FakeView, job: Job, *placements: Placement, may_preempt: bool = False, seed: int = 1) -> Placed:
    view.columns.refresh(view)
    proposal = Proposal(view, view.columns)
    context = Context(make_eval(job=job), view, view.columns, NOW, seed, Ids())
    return Placer(context, proposal, may_preempt=may_preempt).place(placements)


def wanted(job: Job, number: int = 1, **changes: Any) -> list[Placement]:
    return [Placement(f"web.web[{i}]", job, job.task_groups[0], **changes) for i in range(number)]


def rich_node(node_id: str = "rich") -> Node:
    cpu = LegacyNodeCpuResources(cpu_shares=4_000, total_cpu_cores=4, reservable_cpu_cores=(0, 1, 2, 3))
    gpus = NodeDeviceResource(
        vendor="nvidia",
        type="gpu",
        name="t4",
        instances=(NodeDevice(id="a", healthy=True), NodeDevice(id="b", healthy=True)),
    )
    return make_node(
        node_id,
        node_resources=NodeResources(
            cpu=cpu,
            memory=NodeMemoryResources(memory_mb=8_000),
            disk=NodeDiskResources(disk_mb=100_000),
            devices=(gpus,),
        ),
    )


def test_an_allocation_says_what_it_is() -> None:
    job = make_job()
    (alloc,) = place(FakeView(make_node("n1")), job, *wanted(job)).allocations
    assert (alloc.id, alloc.name, alloc.node_id, alloc.node_name) == ("id-1", "web.web[0]", "n1", "n1")
    assert (alloc.desired_status, alloc.client_status, alloc.create_time) == ("run", "pending", NOW)
    assert alloc.allocated_resources.tasks["web"].cpu.cpu_shares == 100
    assert alloc.allocated_resources.shared.disk_mb == 300
    assert alloc.job is None
    assert alloc.metrics is not None
    assert alloc.metrics.score_meta_data[0].node_id == "n1"


def test_equal_allocations_share_their_resources_and_later_ones_their_metric() -> None:
    job = make_job(count=OWN_METRICS_MAX + 2)
    made = place(FakeView(*(make_node(f"n{i}") for i in range(9))), job, *wanted(job, OWN_METRICS_MAX + 2)).allocations
    assert len({id(alloc.allocated_resources) for alloc in made}) == 1
    assert made[-1].metrics is made[-2].metrics
    assert made[0].metrics is not made[1].metrics


def test_ports_devices_and_cores_are_given() -> None:
    task = make_task(resources=Resources(cpu=0, cores=2, memory_mb=64, devices=(RequestedDevice(name="gpu"),)))
    network = NetworkResource(dynamic_ports=(Port(label="http", to=-1),))
    job = make_job(groups=(make_group(count=3, tasks=(task,), networks=(network,)),))
    placed = place(FakeView(rich_node()), job, *wanted(job, 3))
    given = [alloc.allocated_resources for alloc in placed.allocations]
    assert [each.tasks["web"].cpu.reserved_cores for each in given] == [(0, 1), (2, 3)]
    assert [each.tasks["web"].cpu.cpu_shares for each in given] == [2_000, 2_000]
    assert [each.tasks["web"].devices[0].device_ids for each in given] == [("a",), ("b",)]
    ports = [each.shared.ports[0] for each in given]
    assert ports[0].value != ports[1].value
    assert ports[0].to == ports[0].value
    assert placed.failed_counts == {"web": 1}
    assert placed.failures["web"].nodes_exhausted == 1


def test_devices_that_are_used_up_are_told() -> None:
    task = make_task(resources=Resources(devices=(RequestedDevice(name="gpu", count=2),)))
    job = make_job(groups=(make_group(count=2, tasks=(task,)),))
    placed = place(FakeView(rich_node()), job, *wanted(job, 2))
    assert placed.failures["web"].dimension_exhausted == {"devices: no devices match request": 1}


def test_memory_may_exceed_its_reservation_only_when_that_is_allowed() -> None:
    task = make_task(resources=Resources(memory_mb=100, memory_max_mb=200))
    job = make_job(groups=(make_group(tasks=(task,)),))

    def ceiling(view: FakeView) -> int:
        (alloc,) = place(view, job, *wanted(job)).allocations
        return alloc.allocated_resources.tasks["web"].memory.memory_max_mb

    view = FakeView(make_node("n1"))
    assert ceiling(view) == 0
    view.configuration = SchedulerConfiguration(memory_oversubscription_enabled=True)
    assert ceiling(view) == 200
    own = NodePoolSchedulerConfiguration(memory_oversubscription_enabled=False)
    view.pools["default"] = NodePool(name="default", scheduler_configuration=own)
    assert ceiling(view) == 0


def test_a_pool_may_choose_the_algorithm() -> None:
    other = make_alloc("x", job=make_job("other"), node_id="n1")
    view = FakeView(make_node("n1"), make_node("n2"), allocs=[other])
    job = make_job()
    assert place(view, job, *wanted(job)).allocations[0].node_id == "n1"
    spread = NodePoolSchedulerConfiguration(scheduler_algorithm="spread")
    view.pools["default"] = NodePool(name="default", scheduler_configuration=spread)
    assert place(view, job, *wanted(job)).allocations[0].node_id == "n2"


def test_a_sticky_disk_stays_on_its_node() -> None:
    """B002."""
    group = make_group(ephemeral_disk=EphemeralDisk(sticky=True))
    job = make_job(groups=(group,))
    previous = make_alloc("old", job=job, node_id="n2")
    view = FakeView(*(make_node(f"n{i}") for i in range(5)), allocs=[previous])
    for seed in range(5):
        placement = wanted(job, previous=previous, replaces=stop_of(previous, "update"))
        (alloc,) = place(view, job, *placement, seed=seed).allocations
        assert alloc.node_id == "n2"
        assert alloc.previous_allocation == "old"


def test_a_moved_failure_avoids_its_node_and_remembers_the_move() -> None:
    job = make_job(groups=(make_group(reschedule_policy=ReschedulePolicy()),))
    earlier = RescheduleTracker(events=(RescheduleEvent(reschedule_time=1, prev_node_id="n2", delay=5),))
    previous = make_alloc("old", job=job, node_id="n1", client_status="failed", reschedule_tracker=earlier)
    view = FakeView(make_node("n1"), make_node("n2"), make_node("n3"), allocs=[previous])
    for seed in range(5):
        (alloc,) = place(view, job, *wanted(job, previous=previous, rescheduled=True), seed=seed).allocations
        assert alloc.node_id == "n3"
        assert alloc.reschedule_tracker is not None
        assert [event.prev_alloc_id for event in alloc.reschedule_tracker.events] == ["", "old"]


def test_a_lost_one_s_replacement_copies_the_tracker() -> None:
    """B017."""
    job = make_job()
    tracker = RescheduleTracker(events=(RescheduleEvent(prev_alloc_id="x"),))
    previous = make_alloc("old", job=job, node_id="gone", reschedule_tracker=tracker)
    (alloc,) = place(FakeView(make_node("n1")), job, *wanted(job, previous=previous)).allocations
    assert alloc.reschedule_tracker == tracker


def test_a_failed_replacement_leaves_the_old_one_running() -> None:
    """B015: nothing is stopped, so nothing is forgotten."""
    job = make_job(groups=(make_group(tasks=(make_task(cpu=5_000),)),))
    old = make_alloc("old", job=job, node_id="n1")
    placed = place(FakeView(make_node("n1"), allocs=[old]), job, *wanted(job, replaces=stop_of(old, "update")))
    assert (placed.allocations, placed.stops) == ([], [])
    assert placed.failed_counts == {"web": 1}


def test_replacements_reuse_the_room_they_make() -> None:
    job = make_job(count=4)
    old = [make_alloc(f"old-{i}", job=job, index=i, node_id="n1") for i in range(4)]
    view = FakeView(make_node("n1", cpu=400), allocs=old)
    placements = [Placement(a.name, job, job.task_groups[0], a, replaces=stop_of(a, "update")) for a in old]
    placed = place(view, job, *placements)
    assert len(placed.allocations) == 4
    assert [stop.alloc_id for stop in placed.stops] == [alloc.id for alloc in old]


def test_failures_are_told_once_a_group_with_their_number() -> None:
    job = make_job()
    placed = place(FakeView(make_node("n1", cpu=150)), job, *wanted(job, 3))
    assert len(placed.allocations) == 1
    assert placed.failed_counts == {"web": 2}
    assert placed.failures["web"].dimension_exhausted == {"cpu": 1}


def test_a_pinned_placement_goes_to_its_node_or_nowhere() -> None:
    job = make_job()
    view = FakeView(make_node("n1", cpu=50), make_node("n2"))
    placements = [Placement("web.web[0]", job, job.task_groups[0], node_id=node) for node in ("n1", "n2", "gone")]
    placed = place(view, job, *placements)
    assert [alloc.node_id for alloc in placed.allocations] == ["n2"]
    assert placed.failures["web"].dimension_exhausted == {"cpu": 1}


def test_canaries_are_marked_and_join_the_deployment() -> None:
    job = make_job()
    (alloc,) = place(FakeView(make_node("n1")), job, *wanted(job, canary=True, deployment_id="d")).allocations
    assert alloc.deployment_id == "d"
    assert alloc.deployment_status is not None
    assert alloc.deployment_status.canary


def test_eviction_makes_room_and_names_its_reason() -> None:
    low = make_job("low", priority=10)
    victim = make_alloc("victim", job=low, node_id="n1")
    job = make_job(priority=90)
    view = FakeView(make_node("n1", cpu=150), job=low, allocs=[victim])
    assert place(view, job, *wanted(job)).failed_counts == {"web": 1}
    placed = place(view, job, *wanted(job, 2), may_preempt=True)
    (alloc,) = placed.allocations
    assert alloc.preempted_allocations == ("victim",)
    assert placed.stops[0].preempted_by == alloc.id
    assert placed.stops[0].description == f"Preempted by alloc ID {alloc.id}"
    assert placed.failed_counts == {"web": 1}
