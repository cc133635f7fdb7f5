"""A plan that is written in parts ends in the same state as one that is written at once."""

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_alloc, make_deployment, make_job
from tests.world import World

from lepa.model.deployment import DeploymentState
from lepa.model.plan import AllocationStop, Plan
from lepa.scheduler.plan_check import plan_parts
from lepa.state.commands.plans import apply_plan


def begun(existing: int) -> World:
    world = World()
    job = world.job(make_job())
    for number in range(existing):
        world.put_alloc(make_alloc(f"old-{number}", job=job, index=number))
    return world


def plan_of(world: World, existing: int, placed: int) -> Plan:
    job = world.snapshot.job("default", "web")
    deployment = make_deployment(job=job, task_groups={"web": DeploymentState(desired_total=placed)})
    stops = tuple(AllocationStop(alloc_id=f"old-{number}", description="moved") for number in range(existing))
    updates = tuple(
        make_alloc(
            f"new-{number}",
            job=job,
            index=number,
            deployment_id=deployment.id,
            previous_allocation=f"old-{number}" if number < existing else "",
        )
        for number in range(placed)
    )
    return Plan(eval_id="e", job=job, stops=stops, updates=updates, deployment=deployment)


def facts(world: World) -> object:
    """Everything but the revisions, which differ."""
    allocs = [
        (a.id, a.desired_status, a.next_allocation, a.previous_allocation, a.deployment_id)
        for a in sorted(world.snapshot.allocations(), key=lambda alloc: alloc.id)
    ]
    return allocs, world.deployment("deployment-1").task_groups


@given(st.integers(0, 6), st.integers(1, 12), st.integers(1, 5))
def test_parts_add_up_to_the_plan(existing: int, placed: int, size: int) -> None:
    whole, parted = begun(existing), begun(existing)
    whole.do(apply_plan, plan_of(whole, existing, placed))
    for part in plan_parts(plan_of(parted, existing, placed), size):
        parted.do(apply_plan, part)
    assert facts(whole) == facts(parted)


@given(st.integers(1, 4), st.integers(1, 8))
def test_writing_a_part_again_changes_nothing(existing: int, placed: int) -> None:
    world = begun(existing)
    plan = plan_of(world, existing, placed)
    world.do(apply_plan, plan)
    before = facts(world)
    world.do(apply_plan, plan)
    assert facts(world) == before
