"""How allocations leave draining nodes."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node
from tests.world import World, healthy

from lepa.kit.durations import HOUR
from lepa.model.job import Job
from lepa.model.node import DrainSpec
from lepa.model.policies import MigrateStrategy
from lepa.server.deciders.drains import Complete, Migrate, decide
from lepa.state.commands.nodes import drain_node


def draining(**spec: object) -> World:
    world = World()
    world.node(make_node("node-1"))
    world.node(make_node("node-2"))
    world.do(drain_node, "node-1", DrainSpec(**({"deadline": HOUR} | spec)), mark_eligible=False)  # type: ignore[arg-type]
    return world


def service(world: World, count: int, max_parallel: int = 1) -> Job:
    group = make_group(count=count, migrate=MigrateStrategy(max_parallel=max_parallel))
    job = world.job(make_job(groups=(group,)))
    for index in range(count):
        world.put_alloc(make_alloc(f"a{index}", job=job, index=index))
    return job


def moved(world: World) -> list[str]:
    orders = decide(world.snapshot, world.now_ns).orders
    return sorted(alloc_id for order in orders if isinstance(order, Migrate) for alloc_id in order.alloc_ids)


def test_services_leave_as_many_at_a_time_as_their_group_allows() -> None:
    world = draining()
    service(world, 5, max_parallel=2)
    assert moved(world) == ["a0", "a1"]
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    assert moved(world) == []
    assert world.evaluations("web")[-1] == ("node-drain", "pending")


def test_the_next_leaves_when_a_replacement_is_healthy() -> None:
    world = draining()
    job = service(world, 2)
    world.carry_out(decide(world.snapshot, world.now_ns).orders)
    replacement = make_alloc("b", job=job, node_id="node-2", previous_allocation="a0")
    world.put_alloc(replacement)
    assert moved(world) == []
    world.put_alloc(replace(replacement, deployment_status=healthy()))
    assert moved(world) == ["a1"]


def test_what_does_not_work_anyway_leaves_at_once() -> None:
    world = draining()
    job = service(world, 2)
    world.put_alloc(make_alloc("a0", job=job, client_status="pending"))
    assert moved(world) == ["a0"]


def test_two_jobs_of_one_name_in_two_namespaces_both_leave() -> None:
    """B032."""
    world = draining()
    world.put_alloc(make_alloc("a", job=world.job(make_job("web", count=1))))
    world.put_alloc(make_alloc("b", job=world.job(make_job("web", namespace="blue"))))
    assert moved(world) == ["a", "b"]


def test_batch_work_is_left_until_the_deadline() -> None:
    world = draining()
    job = world.job(make_job("sums", type="batch"))
    world.put_alloc(make_alloc("a", job=job))
    decision = decide(world.snapshot, world.now_ns)
    assert (decision.orders, decision.wake_at_ns) == ((), world.now_ns + HOUR)
    world.now_ns += HOUR
    assert decide(world.snapshot, world.now_ns).orders == (Migrate(("a",), "the drain's deadline has passed"),)


def test_a_forced_drain_does_not_wait() -> None:
    world = draining(deadline=-1)
    service(world, 3)
    assert moved(world) == ["a0", "a1", "a2"]


def test_system_jobs_leave_last_and_are_not_placed_elsewhere() -> None:
    """B038: last is after the service has ended, not after it was told to."""
    world = draining()
    job = world.job(make_job("probe", type="system"))
    world.put_alloc(make_alloc("s", job=job))
    web = world.job(make_job("web"))
    world.put_alloc(make_alloc("a", job=web, desired_status="stop"))
    assert moved(world) == []
    world.put_alloc(make_alloc("a", job=web, desired_status="stop", client_status="complete"))
    assert decide(world.snapshot, world.now_ns).orders == (Migrate(("s",), "only system jobs are left", False),)


def test_a_drain_that_ignores_system_jobs_is_complete_without_them() -> None:
    """B038."""
    world = draining(ignore_system_jobs=True)
    job = world.job(make_job("probe", type="system"))
    world.put_alloc(make_alloc("s", job=job))
    decision = decide(world.snapshot, world.now_ns)
    assert decision.orders == (Complete("node-1"),)
    world.carry_out(decision.orders)
    assert decide(world.snapshot, world.now_ns) == ((), None)


def test_a_drain_goes_on_while_something_still_stops() -> None:
    world = draining()
    job = world.job(make_job())
    world.put_alloc(make_alloc("a", job=job, desired_status="stop"))
    assert decide(world.snapshot, world.now_ns).orders == ()


def test_allocations_of_a_stopped_job_need_no_room_elsewhere() -> None:
    world = draining()
    job = service(world, 2)
    world.job(replace(job, stop=True))
    assert moved(world) == ["a0", "a1"]
