"""What roll-outs need."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_group, make_job
from tests.world import World, healthy

from lepa.kit.durations import HOUR, MINUTE, rfc3339
from lepa.model.allocation import RescheduleEvent, RescheduleTracker
from lepa.model.deployment import DeploymentState
from lepa.model.job import Job
from lepa.model.policies import ReschedulePolicy
from lepa.server.deciders.deployments import Order, decide
from lepa.state.commands.jobs import deregister_job

D = "deployment-1"


def rolling(world: World, job: Job | None = None, **state: object) -> Job:
    job = world.job(job or make_job())
    fields = {"desired_total": 2, "progress_deadline": 10 * MINUTE} | state
    world.put_deployment(make_deployment(job=job, task_groups={"web": DeploymentState(**fields)}))  # type: ignore[arg-type]
    return job


def acts(world: World) -> list[str]:
    return [order.act for order in decide(world.snapshot, world.now_ns).orders]


def test_a_deployment_without_news_needs_nothing() -> None:
    world = World()
    job = rolling(world)
    world.put_alloc(make_alloc(job=job, deployment_id=D))
    assert decide(world.snapshot, world.now_ns) == ((), None)


def test_a_healthy_allocation_is_a_step_and_then_looked_at_once() -> None:
    world = World()
    job = rolling(world)
    world.put_alloc(make_alloc(job=job, deployment_id=D, deployment_status=healthy()))
    decision = decide(world.snapshot, world.now_ns)
    assert decision.orders == (Order("evaluate", D, "an allocation became healthy"),)
    world.carry_out(decision.orders)
    assert world.evaluations("web")[-1] == ("deployment-watcher", "pending")
    assert acts(world) == []


def test_it_has_succeeded_when_all_are_healthy() -> None:
    world = World()
    rolling(world, healthy_allocs=2)
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert world.deployment(D).status == "successful"
    assert acts(world) == []


def test_it_has_not_succeeded_while_an_earlier_version_runs() -> None:
    """One that was drained has counted twice: as many were healthy as are wanted, and one still has to be replaced."""
    world = World()
    old = make_alloc("old", job=world.job(make_job()), client_status="running")
    world.put_alloc(old)
    rolling(world, make_job(priority=60), healthy_allocs=2)
    assert acts(world) == []
    world.put_alloc(replace(old, desired_status="stop"))
    assert acts(world) == ["succeed"]


def test_an_unhealthy_allocation_ends_it_where_there_is_no_deadline() -> None:
    world = World()
    job = rolling(world, progress_deadline=0, auto_revert=True)
    world.put_alloc(make_alloc(job=job, deployment_id=D, deployment_status=healthy(False)))
    (order,) = decide(world.snapshot, world.now_ns).orders
    assert (order.act, order.reason, order.revert) == ("fail", "Failed due to unhealthy allocations", True)


@pytest.mark.parametrize("attempts", [0, 1])
def test_it_fails_as_soon_as_no_tries_are_left(attempts: int) -> None:
    """B027: long before its progress deadline, and not while there is a try left."""
    world = World()
    policy = ReschedulePolicy(attempts=attempts, interval=HOUR, delay=0, delay_function="constant", unlimited=False)
    job = rolling(world, make_job(groups=(make_group(reschedule_policy=policy),)))
    tried: tuple[RescheduleEvent, ...] = ()
    for number in range(attempts):
        before = make_alloc(f"alloc-{number}", job=job, deployment_id=D, client_status="failed")
        world.put_alloc(replace(before, reschedule_tracker=RescheduleTracker(events=tried)))
        assert acts(world) == ["replace"]
        world.put_alloc(replace(before, next_allocation=f"alloc-{number + 1}", desired_status="stop"))
        tried += (RescheduleEvent(reschedule_time=world.now_ns, prev_alloc_id=before.id),)
    last = make_alloc(f"alloc-{attempts}", job=job, deployment_id=D, client_status="failed")
    world.put_alloc(replace(last, reschedule_tracker=RescheduleTracker(events=tried)))
    (order,) = decide(world.snapshot, world.now_ns).orders
    assert (order.act, order.reason) == ("fail", "Failed due to unhealthy allocations")


def test_a_failure_with_tries_left_gets_permission_to_move() -> None:
    world = World()
    job = rolling(world, make_job(groups=(make_group(reschedule_policy=ReschedulePolicy()),)))
    world.put_alloc(make_alloc(job=job, deployment_id=D, client_status="failed"))
    decision = decide(world.snapshot, world.now_ns)
    assert [(order.act, order.alloc_ids) for order in decision.orders] == [("replace", ("alloc-1",))]
    world.carry_out(decision.orders)
    assert world.alloc("alloc-1").desired_transition.reschedule is True
    assert acts(world) == []


def test_it_fails_when_the_deadline_passes() -> None:
    world = World()
    by_ns = world.now_ns + MINUTE
    rolling(world, require_progress_by=rfc3339(by_ns))
    decision = decide(world.snapshot, world.now_ns)
    assert (decision.orders, decision.wake_at_ns) == ((), by_ns)
    world.now_ns = by_ns
    (order,) = decide(world.snapshot, world.now_ns).orders
    assert (order.act, order.reason) == ("fail", "Failed due to progress deadline")


def test_canaries_that_wait_for_a_person_have_all_the_time_they_want() -> None:
    world = World()
    state = {"desired_canaries": 1, "placed_canaries": ("alloc-1",), "require_progress_by": rfc3339(1)}
    job = rolling(world, **state)
    world.put_alloc(make_alloc(job=job, deployment_id=D, deployment_status=healthy(canary=True)))
    assert "fail" not in acts(world)
    assert decide(world.snapshot, world.now_ns).wake_at_ns is None


def test_canaries_that_may_promote_themselves_do() -> None:
    world = World()
    job = rolling(world, desired_canaries=1, placed_canaries=("alloc-1",), auto_promote=True)
    groups = world.deployment(D).task_groups | {"other": DeploymentState(desired_total=1)}
    world.put_deployment(replace(world.deployment(D), task_groups=groups))
    world.put_alloc(make_alloc(job=job, deployment_id=D, deployment_status=healthy(None, canary=True)))  # type: ignore[arg-type]
    assert "promote" not in acts(world)
    world.put_alloc(make_alloc(job=job, deployment_id=D, deployment_status=healthy(canary=True)))
    assert acts(world) == ["promote"]
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert world.deployment(D).task_groups["web"].promoted


def test_a_paused_deployment_makes_no_progress_and_misses_no_deadline() -> None:
    world = World()
    rolling(world, require_progress_by=rfc3339(1), healthy_allocs=2)
    world.put_deployment(replace(world.deployment(D), status="paused"))
    assert decide(world.snapshot, world.now_ns) == ((), None)


def test_a_deployment_of_a_purged_job_is_cancelled_and_of_a_stopped_one_left_to_the_scheduler() -> None:
    world = World()
    rolling(world)
    world.do(deregister_job, "default", "web", purge=False)
    assert acts(world) == []
    world.do(deregister_job, "default", "web", purge=True)
    (order,) = decide(world.snapshot, world.now_ns).orders
    assert (order.act, order.reason) == ("cancel", "Cancelled because job is stopped")
    world.carry_out([order])
    assert world.deployment(D).status == "cancelled"
