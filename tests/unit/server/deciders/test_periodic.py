"""Which periodic jobs are due."""

from collections import Counter

from msgspec.structs import replace
from tests.builders import make_alloc, make_job
from tests.world import World

from lepa.kit.durations import HOUR, SECOND, parse_rfc3339
from lepa.model.job import Job
from lepa.model.policies import ParameterizedJobConfig, PeriodicConfig
from lepa.server.deciders.garbage import find_garbage
from lepa.server.deciders.periodic import Launch, Periodic, launches, next_launch
from lepa.server.settings import GarbageSettings
from lepa.state.commands.children import dispatch_job
from lepa.state.commands.evaluations import end_evaluation
from lepa.state.commands.garbage import Garbage, collect
from lepa.state.commands.jobs import deregister_job


def hourly(**options: object) -> Job:
    periodic = PeriodicConfig(specs=("0 * * * *",), **options)  # type: ignore[arg-type]
    return make_job("nightly", type="batch", periodic=periodic)


def world_at(text: str) -> World:
    world = World()
    world.now_ns = parse_rfc3339(text)
    return world


def seconds(text: str) -> int:
    return parse_rfc3339(text) // SECOND


def test_a_job_is_launched_when_it_is_due_and_once() -> None:
    world = world_at("2026-02-01T10:30:00Z")
    periodic = Periodic(world.now_ns // SECOND)
    world.job(hourly())
    assert periodic.decide(world.snapshot, world.now_ns) == ((), parse_rfc3339("2026-02-01T11:00:00Z"))
    world.now_ns = parse_rfc3339("2026-02-01T11:00:00Z")
    decision = periodic.decide(world.snapshot, world.now_ns)
    assert decision.orders == (Launch("default", "nightly", seconds("2026-02-01T11:00:00Z")),)
    assert decision.wake_at_ns == parse_rfc3339("2026-02-01T12:00:00Z")
    world.carry_out(decision.orders)
    assert [child.id for child in world.snapshot.children("default", "nightly")] == ["nightly/periodic-1769943600"]
    assert periodic.decide(world.snapshot, world.now_ns).orders == ()


def test_a_missed_launch_is_made_up_for_once_by_the_next_leader() -> None:
    world = world_at("2026-02-01T10:30:00Z")
    world.job(hourly())
    world.now_ns = parse_rfc3339("2026-02-01T11:00:00Z")
    world.carry_out(Periodic(0).decide(world.snapshot, world.now_ns).orders)
    world.now_ns = parse_rfc3339("2026-02-01T15:20:00Z")
    late = Periodic(world.now_ns // SECOND)
    orders = late.decide(world.snapshot, world.now_ns).orders
    assert orders == (Launch("default", "nightly", seconds("2026-02-01T12:00:00Z")),)
    world.carry_out(orders)
    assert late.decide(world.snapshot, world.now_ns).orders == ()


def test_collected_children_do_not_bring_old_launches_back() -> None:
    world = world_at("2026-02-01T10:30:00Z")
    world.job(hourly())
    world.now_ns = parse_rfc3339("2026-02-01T11:00:00Z")
    world.carry_out(Periodic(0).decide(world.snapshot, world.now_ns).orders)
    children = [(child.namespace, child.id) for child in world.snapshot.children("default", "nightly")]
    world.do(collect, Garbage(jobs=tuple(children)))
    world.now_ns = parse_rfc3339("2026-02-02T10:30:00Z")
    assert Periodic(world.now_ns // SECOND).decide(world.snapshot, world.now_ns).orders == ()


def test_a_launch_is_left_out_while_the_last_one_runs_where_the_job_says_so() -> None:
    world = world_at("2026-02-01T10:30:00Z")
    world.job(hourly(prohibit_overlap=True))
    periodic = Periodic(0)
    world.now_ns = parse_rfc3339("2026-02-01T11:00:00Z")
    world.carry_out(periodic.decide(world.snapshot, world.now_ns).orders)
    world.now_ns += HOUR
    assert periodic.decide(world.snapshot, world.now_ns).orders == ()
    world.do(deregister_job, "default", "nightly/periodic-1769943600", purge=False)
    world.now_ns += HOUR
    assert len(periodic.decide(world.snapshot, world.now_ns).orders) == 1


def test_what_is_stopped_disabled_or_waits_for_dispatch_is_not_launched() -> None:
    job = hourly()
    assert launches(job)
    assert not launches(replace(job, stop=True))
    assert not launches(hourly(enabled=False))
    assert not launches(replace(job, parameterized_job=ParameterizedJobConfig()))
    assert launches(replace(job, parameterized_job=ParameterizedJobConfig(), dispatched=True))
    world = World()
    world.job(job)
    world.do(deregister_job, "default", "nightly", purge=False)
    world.carry_out([Launch("default", "nightly", 1), Launch("default", "gone", 1)])
    assert world.snapshot.children("default", "nightly") == ()


def test_a_template_that_is_periodic_too_launches_only_what_was_dispatched() -> None:
    """B078, B080: by itself it launches nothing, and the child that is dispatched waits for its time."""
    world = world_at("2026-02-01T10:30:00Z")
    world.job(replace(hourly(), parameterized_job=ParameterizedJobConfig()))
    periodic = Periodic(world.now_ns // SECOND)
    for _ in range(3):
        assert periodic.decide(world.snapshot, world.now_ns) == ((), None)
        world.now_ns += HOUR
    written = world.do(dispatch_job, "default", "nightly")
    assert written.job is not None
    assert (written.evaluation, written.job.periodic) == (None, hourly().periodic)
    due_ns = parse_rfc3339("2026-02-01T14:00:00Z")
    assert periodic.decide(world.snapshot, world.now_ns) == ((), due_ns)
    assert periodic.decide(world.snapshot, due_ns).orders == (Launch("default", written.job.id, due_ns // SECOND),)


def test_the_summary_of_a_periodic_job_counts_the_children_that_there_are() -> None:
    """B079, B082: half an hour of launches with collections in between; the parent runs until it is stopped."""
    world = world_at("2026-02-01T10:00:30Z")
    world.job(make_job("often", type="batch", periodic=PeriodicConfig(specs=("* * * * *",))))
    periodic = Periodic(world.now_ns // SECOND)
    for minute in range(30):
        world.now_ns += 60 * SECOND
        world.carry_out(periodic.decide(world.snapshot, world.now_ns).orders)
        children = world.snapshot.children("default", "often")
        for child in children if minute % 2 else ():
            finish(world, child)
        if minute % 5 == 4:
            world.do(collect, find_garbage(world.snapshot, GarbageSettings(), world.now_ns, force=True))
        check_summary(world)
    for child in world.snapshot.children("default", "often"):
        finish(world, child)
    world.do(collect, find_garbage(world.snapshot, GarbageSettings(), world.now_ns, force=True))
    check_summary(world)
    assert world.snapshot.children("default", "often") == ()
    world.do(deregister_job, "default", "often", purge=False)
    assert status(world, "often") == "dead"


def finish(world: World, child: Job) -> None:
    """What the scheduler and a node do with a child whose work takes no time."""
    (evaluation,) = world.snapshot.job_evaluations(child.namespace, child.id)
    if evaluation.status == "pending":
        world.put_alloc(make_alloc(f"of-{child.id}", job=child, client_status="complete", eval_id=evaluation.id))
        world.do(end_evaluation, replace(evaluation, status="complete"))


def check_summary(world: World) -> None:
    summary = world.snapshot.job_summary("default", "often")
    assert summary is not None
    assert summary.children is not None
    counted = Counter(child.status for child in world.snapshot.children("default", "often"))
    told = summary.children
    assert (told.pending, told.running, told.dead) == (counted["pending"], counted["running"], counted["dead"])
    assert status(world, "often") == "running"


def status(world: World, job_id: str) -> str:
    job = world.snapshot.job("default", job_id)
    assert job is not None
    return job.status


def test_the_time_zone_of_the_job_counts() -> None:
    tokyo = PeriodicConfig(specs=("0 9 * * *",), time_zone="Asia/Tokyo")
    assert next_launch(tokyo, seconds("2026-02-01T00:30:00Z")) == seconds("2026-02-02T00:00:00Z")


def test_the_next_launch_is_the_same_before_and_after_a_restart() -> None:
    """B077: a server that takes over goes by the job's time zone, as the one before did."""
    world = world_at("2026-02-01T10:30:00Z")
    world.job(make_job(type="batch", periodic=PeriodicConfig(specs=("0 9 * * *",), time_zone="Asia/Tokyo")))
    due_ns = parse_rfc3339("2026-02-02T00:00:00Z")
    assert Periodic(world.now_ns // SECOND).decide(world.snapshot, world.now_ns) == ((), due_ns)
    world.now_ns += 3 * HOUR
    after = Periodic(world.now_ns // SECOND)
    assert after.decide(world.snapshot, world.now_ns) == ((), due_ns)
    assert after.decide(world.snapshot, due_ns).orders == (Launch("default", "web", due_ns // SECOND),)


def test_an_hour_that_is_skipped_is_not_launched() -> None:
    berlin = PeriodicConfig(specs=("30 2 * * *",), time_zone="Europe/Berlin")
    before = seconds("2026-03-28T01:30:00Z")
    assert next_launch(berlin, before) == seconds("2026-03-30T00:30:00Z")
    utc = PeriodicConfig(specs=("30 2 * * *",))
    assert next_launch(utc, before) == seconds("2026-03-28T02:30:00Z")


def test_the_earliest_of_several_expressions_counts() -> None:
    both = PeriodicConfig(specs=("0 12 * * *", "15 * * * *"))
    assert next_launch(both, seconds("2026-02-01T10:30:00Z")) == seconds("2026-02-01T11:15:00Z")
    assert next_launch(PeriodicConfig(specs=("nonsense",)), 0) is None
    assert next_launch(None, 0) is None
