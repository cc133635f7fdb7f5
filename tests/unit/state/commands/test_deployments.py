"""Roll-outs: health, promotion, success, failure, going back."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_job
from tests.world import World, healthy

from lepa.kit.durations import MINUTE, parse_rfc3339
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.errors import LepaError
from lepa.state.commands import deployments as commands
from lepa.state.commands.jobs import mark_stable


def deployed(world: World, **state: object) -> Deployment:
    """A deployment of version 1 of a job whose version 0 is stable."""
    world.job(make_job())
    world.do(mark_stable, "default", "web", 0, stable=True)
    job = world.job(make_job(meta={"version": "1"}))
    groups = {"web": DeploymentState(desired_total=2, **state)}  # type: ignore[arg-type]
    return world.put_deployment(make_deployment(job=job, task_groups=groups))


def canary(world: World, alloc_id: str, value: bool | None = True) -> Allocation:
    job = world.snapshot.job("default", "web")
    status = replace(healthy(canary=True), healthy=value)
    return world.put_alloc(make_alloc(alloc_id, job=job, deployment_id="deployment-1", deployment_status=status))


def test_health_moves_the_progress_deadline_on() -> None:
    world = World()
    deployed(world, progress_deadline=10 * MINUTE)
    before = canary(world, "a", None)
    world.now_ns += MINUTE
    world.do(commands.set_health, "deployment-1", healthy=["a"], unhealthy=[])
    state = world.deployment("deployment-1").task_groups["web"]
    assert state.healthy_allocs == 1
    assert parse_rfc3339(state.require_progress_by) == world.now_ns + 10 * MINUTE
    assert before.deployment_status is not None
    world.do(commands.set_health, "deployment-1", healthy=[], unhealthy=["a"])
    state = world.deployment("deployment-1").task_groups["web"]
    assert (state.healthy_allocs, state.unhealthy_allocs) == (0, 1)


def test_health_of_a_stranger_is_refused() -> None:
    world = World()
    deployed(world)
    with pytest.raises(LepaError, match='unknown allocation "x"'):
        world.do(commands.set_health, "deployment-1", healthy=["x"], unhealthy=[])


def test_a_failure_goes_back_to_the_stable_version() -> None:
    world = World()
    deployed(world, auto_revert=True)
    written = world.do(commands.fail_deployment, "deployment-1", commands.UNHEALTHY)
    after = world.deployment("deployment-1")
    assert (after.status, after.status_description) == (
        "failed",
        "Failed due to unhealthy allocations - rolling back to job version 0",
    )
    assert written.reverted_to == 0
    assert written.evaluation is not None
    job = world.snapshot.job("default", "web")
    assert job is not None
    assert (job.version, job.meta) == (2, {})


def test_a_failure_says_why_it_does_not_go_back() -> None:
    world = World()
    job = world.job(make_job())
    world.put_deployment(make_deployment(job=job, task_groups={"web": DeploymentState(auto_revert=True)}))
    world.do(commands.fail_deployment, "deployment-1", commands.NO_PROGRESS)
    assert world.deployment("deployment-1").status_description == (
        "Failed due to progress deadline - no stable job version to auto revert to"
    )
    same = World()
    deployed(same, auto_revert=True)
    same.job(make_job())
    same.do(commands.fail_deployment, "deployment-1", commands.UNHEALTHY)
    assert same.deployment("deployment-1").status_description.endswith(
        " - not rolling back to stable job version 0 as current job has same specification"
    )


def test_a_failure_without_auto_revert_only_says_so() -> None:
    world = World()
    deployed(world)
    written = world.do(commands.fail_deployment, "deployment-1", commands.FAILED_BY_USER)
    assert world.deployment("deployment-1").status_description == "Deployment marked as failed"
    assert (written.reverted_to, written.evaluation is not None) == (None, True)
    with pytest.raises(LepaError, match="can't fail terminal deployment"):
        world.do(commands.fail_deployment, "deployment-1", commands.FAILED_BY_USER)


def test_promotion_needs_healthy_canaries() -> None:
    world = World()
    deployed(world, desired_canaries=2, placed_canaries=("a", "b"))
    canary(world, "a")
    canary(world, "b", None)
    with pytest.raises(LepaError, match='Task group "web" has 1/2 healthy allocations'):
        world.do(commands.promote_deployment, "deployment-1")
    with pytest.raises(LepaError, match='no group "db"'):
        world.do(commands.promote_deployment, "deployment-1", ["db"])
    canary(world, "b")
    world.do(commands.promote_deployment, "deployment-1", ["web"])
    assert world.deployment("deployment-1").task_groups["web"].promoted
    status = world.alloc("a").deployment_status
    assert status is not None
    assert not status.canary
    with pytest.raises(LepaError, match="no canaries to promote"):
        world.do(commands.promote_deployment, "deployment-1")


def test_a_resumed_deployment_has_its_whole_deadline_again() -> None:
    world = World()
    deployed(world, progress_deadline=MINUTE)
    world.do(commands.pause_deployment, "deployment-1", pause=True)
    assert world.deployment("deployment-1").status_description == "Deployment is paused"
    world.now_ns += 5 * MINUTE
    written = world.do(commands.pause_deployment, "deployment-1", pause=False)
    assert written.evaluation is not None
    state = world.deployment("deployment-1").task_groups["web"]
    assert parse_rfc3339(state.require_progress_by) == world.now_ns + MINUTE


def test_a_deployment_that_is_not_there_is_not_found() -> None:
    with pytest.raises(LepaError, match="deployment not found"):
        World().do(commands.fail_deployment, "x", "")


def test_success_is_stable() -> None:
    world = World()
    deployed(world)
    world.do(commands.succeed_deployment, "deployment-1")
    assert commands.stable_version(world.snapshot, make_deployment(job_version=5)) is not None
    version = world.snapshot.job_version("default", "web", 1)
    assert version is not None
    assert version.stable
    world.do(commands.cancel_deployment, "deployment-1", "late")
    assert world.deployment("deployment-1").status == "successful"
