"""Which waiting jobs may begin; what holds them is tried in tests/unit/state/test_gates.py."""

from tests.builders import make_job
from tests.world import World

from lepa.model.policies import ParameterizedJobConfig
from lepa.server.deciders.gates import Begin, decide
from lepa.state.commands.children import dispatch_job
from lepa.state.commands.jobs import deregister_job


def test_an_order_that_came_too_late_does_nothing() -> None:
    world = World()
    world.job(make_job("work", type="batch", parameterized_job=ParameterizedJobConfig(max_running=1)))
    world.do(dispatch_job, "default", "work")
    second = world.do(dispatch_job, "default", "work").job
    assert second is not None
    world.carry_out([Begin("default", second.id), Begin("default", "gone")])
    assert world.evaluations(second.id) == []


def test_only_as_many_are_let_begin_at_once_as_have_room() -> None:
    world = World()
    world.job(make_job("work", type="batch", parameterized_job=ParameterizedJobConfig(max_running=2)))
    made = [world.do(dispatch_job, "default", "work").job for _ in range(5)]
    for child in made[:2]:
        assert child is not None
        world.do(deregister_job, "default", child.id, purge=False)
        for evaluation in world.snapshot.job_evaluations("default", child.id):
            world.forget(f"evals/{evaluation.id}")
    orders = decide(world.snapshot, world.now_ns).orders
    assert [order.job_id for order in orders] == [child.id for child in made[2:4] if child is not None]
