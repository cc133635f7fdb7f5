"""What nodes report of allocations, and what operators ask of them."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_group, make_job, make_service, make_task_state
from tests.world import World, healthy

from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.policies import ReschedulePolicy
from lepa.state.commands import allocations as commands
from lepa.state.commands.jobs import deregister_job


def running(world: World, **fields: object) -> Job:
    job = world.job(make_job(groups=(make_group(reschedule_policy=ReschedulePolicy()),)))
    world.put_alloc(make_alloc(job=job, **fields))
    return job


def report(world: World, **fields: object) -> None:
    world.now_ns += 1
    world.do(commands.update_allocations, "node-1", [Allocation(id="alloc-1", **fields)])  # type: ignore[arg-type]


def test_a_report_changes_what_the_node_knows_and_nothing_else() -> None:
    world = World()
    running(world, client_status="pending")
    before = world.alloc("alloc-1")
    report(world, client_status="running", task_states={"web": make_task_state("Started")}, node_id="elsewhere")
    after = world.alloc("alloc-1")
    assert (after.client_status, after.task_states["web"].state) == ("running", "running")
    assert (after.node_id, after.alloc_modify_index) == ("node-1", before.alloc_modify_index)
    assert after.modify_index > before.modify_index


def test_a_report_that_says_nothing_new_is_not_written() -> None:
    world = World()
    running(world)
    draft = world.draft()
    commands.update_allocations(draft, "node-1", [Allocation(id="alloc-1", client_status="running")])
    assert draft.empty


def test_reports_on_what_is_not_the_nodes_are_dropped() -> None:
    world = World()
    running(world)
    draft = world.draft()
    commands.update_allocations(draft, "node-2", [Allocation(id="alloc-1", client_status="failed")])
    commands.update_allocations(draft, "node-1", [Allocation(id="unknown", client_status="failed")])
    assert draft.empty


def test_a_failure_is_looked_at_once() -> None:
    world = World()
    running(world)
    report(world, client_status="failed")
    report(world, client_status="failed", client_description="Failed tasks")
    assert world.evaluations("web")[1:] == [("alloc-failure", "pending")]


def test_what_cannot_be_replaced_is_not_looked_at() -> None:
    world = World()
    job = world.job(make_job("probe", type="system"))
    world.put_alloc(make_alloc(job=job))
    report(world, client_status="failed")
    assert len(world.evaluations("probe")) == 1
    gone = World()
    running(gone)
    gone.do(deregister_job, "default", "web", purge=True)
    report(gone, client_status="failed")
    assert [trigger for trigger, _ in gone.evaluations("web")] == ["job-register", "job-deregister"]


def test_an_allocation_that_was_unknown_reconnects() -> None:
    world = World()
    running(world, client_status="unknown")
    report(world, client_status="running")
    assert world.evaluations("web")[-1] == ("reconnect", "pending")


def test_what_has_ended_offers_no_services() -> None:
    world = World()
    running(world)
    world.do(lambda draft: draft.overwrite("services/default/web/service-1", make_service()))
    report(world, client_status="complete")
    assert list(world.snapshot.services()) == []


def test_health_is_said_once_and_counted() -> None:
    world = World()
    deployment = make_deployment()
    world.put_deployment(deployment)
    running(world, deployment_id=deployment.id, deployment_status=AllocDeploymentStatus(canary=True))
    report(world, deployment_status=AllocDeploymentStatus(healthy=True))
    status = world.alloc("alloc-1").deployment_status
    assert status is not None
    assert (status.healthy, status.canary, status.modify_index) == (True, True, world.revision)
    report(world, deployment_status=AllocDeploymentStatus(healthy=False))
    state = world.deployment(deployment.id).task_groups["web"]
    assert (state.healthy_allocs, state.unhealthy_allocs) == (1, 0)


def test_health_for_an_earlier_deployment_comes_too_late() -> None:
    world = World()
    running(world, deployment_id="new")
    report(world, deployment_id="old", deployment_status=AllocDeploymentStatus(healthy=True))
    assert world.alloc("alloc-1").deployment_status is None


def test_stopping_an_allocation_asks_its_job_to_replace_it() -> None:
    world = World()
    running(world)
    evaluation = world.do(commands.stop_allocation, "alloc-1", no_shutdown_delay=True, reschedule=True)
    assert evaluation is not None
    assert evaluation.triggered_by == "alloc-stop"
    transition = world.alloc("alloc-1").desired_transition
    assert (transition.migrate, transition.no_shutdown_delay, transition.reschedule) == (True, True, True)
    with pytest.raises(LepaError, match="alloc not found"):
        world.do(commands.stop_allocation, "unknown")


def test_migrating_looks_at_each_job_once() -> None:
    world = World()
    job = running(world)
    world.put_alloc(make_alloc("alloc-2", job=job, index=1))
    world.put_alloc(make_alloc("alloc-3", job=job, index=2, desired_status="stop"))
    found = world.do(commands.migrate_allocations, ["alloc-1", "alloc-2", "alloc-3", "unknown"], place=False)
    assert [evaluation.triggered_by for evaluation in found] == ["node-drain"]
    transition = world.alloc("alloc-1").desired_transition
    assert (transition.migrate, transition.migrate_disable_placement) == (True, True)
    assert world.alloc("alloc-3").desired_transition.migrate is None


def test_only_failures_without_a_successor_are_forced_to_move() -> None:
    """B088: what `-force-reschedule` starts again; what ended well stays ended."""
    world = World()
    job = running(world, client_status="failed")
    world.put_alloc(make_alloc("alloc-2", job=job, client_status="failed", next_allocation="alloc-3"))
    world.put_alloc(make_alloc("alloc-3", job=job, client_status="complete"))
    world.do(commands.force_reschedule, "default", "web")
    assert world.alloc("alloc-1").desired_transition.force_reschedule is True
    assert world.alloc("alloc-2").desired_transition.force_reschedule is None
    assert world.alloc("alloc-3").desired_transition.force_reschedule is None


def test_unhealthy_allocations_get_permission_to_be_replaced() -> None:
    world = World()
    running(world, deployment_status=healthy(False))
    world.do(commands.allow_reschedule, ["alloc-1", "unknown"])
    assert world.alloc("alloc-1").desired_transition.reschedule is True


def test_a_group_is_found_in_the_version_that_runs() -> None:
    job = make_job()
    assert commands.group_of(job, make_alloc(job=job)) == job.task_groups[0]
    assert commands.group_of(job, replace(make_alloc(job=job), task_group="db")) is None
    assert commands.group_of(None, make_alloc(job=job)) is None
