"""What allocations occupy."""

import msgspec
import pytest
from tests.builders import make_alloc, make_group, make_node, make_task

from lepa.model.node import LegacyNodeCpuResources, NodeReservedCpuResources, NodeReservedResources
from lepa.model.policies import TaskLifecycle
from lepa.model.resources import AllocatedCpuResources, AllocatedTaskResources, Resources
from lepa.model.usage import (
    NodeUsage,
    Usage,
    allocation_usage,
    core_mhz,
    free_core_ids,
    group_usage,
    has_ended,
    node_capacity,
    occupies,
    usage_of,
)


@pytest.mark.parametrize(
    ("desired", "client", "occupied", "ended"),
    [
        ("run", "pending", True, False),
        ("run", "running", True, False),
        ("run", "unknown", True, False),
        ("run", "failed", False, True),
        ("stop", "running", False, False),
        ("evict", "running", False, False),
        ("stop", "lost", False, True),
    ],
)
def test_room_is_free_once_stopping_is_wanted(desired: str, client: str, occupied: bool, ended: bool) -> None:
    alloc = make_alloc(desired_status=desired, client_status=client)
    assert occupies(alloc) is occupied
    assert has_ended(alloc) is ended


def test_usage_is_the_peak_of_the_life_cycle() -> None:
    tasks = (
        make_task("main", cpu=100, memory_mb=100),
        make_task("init", cpu=500, memory_mb=50, lifecycle=TaskLifecycle(hook="prestart")),
        make_task("log", cpu=10, memory_mb=10, lifecycle=TaskLifecycle(hook="prestart", sidecar=True)),
        make_task("after", cpu=20, memory_mb=300, lifecycle=TaskLifecycle(hook="poststop")),
    )
    assert group_usage(make_group(tasks=tasks)) == Usage(510, 310, 300, 0)


def test_cores_count_for_their_mhz() -> None:
    group = make_group(tasks=(make_task(resources=Resources(cpu=0, cores=2, memory_mb=64)),))
    assert group_usage(group, core_mhz=1_000) == Usage(2_000, 64, 300, 2)


def test_allocation_counts_what_it_was_given() -> None:
    assert allocation_usage(make_alloc()) == Usage(100, 128, 300, 0)


def test_capacity_is_less_what_the_operator_keeps() -> None:
    kept = NodeReservedResources(cpu=NodeReservedCpuResources(cpu_shares=1_000, reserved_cpu_cores=(0,)))
    node = make_node(cpu=4_000, reserved_resources=kept)
    cpu = LegacyNodeCpuResources(cpu_shares=4_000, total_cpu_cores=4, reservable_cpu_cores=(0, 1, 2, 3))
    node = msgspec.structs.replace(node, node_resources=msgspec.structs.replace(node.node_resources, cpu=cpu))
    assert node_capacity(node) == Usage(3_000, 8_192, 100_000, 3)
    assert core_mhz(node) == 1_000
    given = AllocatedTaskResources(cpu=AllocatedCpuResources(cpu_shares=1_000, reserved_cores=(2,)))
    alloc = make_alloc()
    alloc = msgspec.structs.replace(
        alloc, allocated_resources=msgspec.structs.replace(alloc.allocated_resources, tasks={"web": given})
    )
    assert free_core_ids(node, [alloc]) == (1, 3)


def test_exhausted_names_the_first_dimension() -> None:
    assert Usage(1, 2, 3).exhausted(Usage(1, 1, 1)) == "memory"
    assert Usage(1, 2, 3).fits(Usage(1, 2, 3))


def test_the_usage_of_a_node_follows_its_allocations() -> None:
    first, second = make_alloc("a"), make_alloc("b")
    both = usage_of([first, second])
    assert both == NodeUsage(allocation_usage(first).plus(allocation_usage(second)), 2)
    stopped = msgspec.structs.replace(first, desired_status="stop")
    assert both.changed(first, stopped) == usage_of([second])
    assert both.changed(first, stopped).changed(stopped, None).changed(second, None) == NodeUsage()


def test_a_sidecar_counts_beside_the_one_task() -> None:
    alloc = make_alloc()
    sidecar = TaskLifecycle(hook="prestart", sidecar=True)
    resources = msgspec.structs.replace(alloc.allocated_resources, task_lifecycles={"web": sidecar})
    assert allocation_usage(msgspec.structs.replace(alloc, allocated_resources=resources)) == allocation_usage(alloc)
