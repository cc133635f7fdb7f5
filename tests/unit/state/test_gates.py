"""Jobs that wait before they begin: for another job, or for a sister to end."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job
from tests.world import World

from lepa.model.job import Job, JobDependency
from lepa.model.policies import ParameterizedJobConfig, PeriodicConfig
from lepa.server.deciders.garbage import find_garbage
from lepa.server.deciders.gates import decide
from lepa.server.deciders.overlooked import find_overlooked
from lepa.server.settings import GarbageSettings
from lepa.state.commands.children import dispatch_job, launch_periodic
from lepa.state.commands.evaluations import end_evaluation
from lepa.state.commands.jobs import deregister_job, register_job
from lepa.state.gates import held


def after(job: str = "etl", **fields: Any) -> Job:
    return make_job("report", type="batch", after=(JobDependency(job=job, **fields),))


def end_evaluations(world: World, job_id: str) -> None:
    for evaluation in world.snapshot.job_evaluations("default", job_id):
        if evaluation.status == "pending":
            world.do(end_evaluation, replace(evaluation, status="complete"))


def finish(world: World, job: Job, status: str = "complete", number: int = 0) -> None:
    """One allocation of a job, which has ended."""
    world.put_alloc(make_alloc(f"{job.id}-{number}", job=job, client_status=status))
    end_evaluations(world, job.id)


def let_begin(world: World) -> list[str]:
    """Carry out what the decider says, until it has nothing more to say; the jobs that began."""
    found: list[str] = []
    while orders := decide(world.snapshot, world.now_ns).orders:
        found += [order.job_id for order in orders]
        world.carry_out(orders)
        assert len(found) < 50
    return found


def test_a_job_waits_until_the_other_is_complete() -> None:
    world = World()
    etl = world.job(make_job("etl", type="batch"))
    written = world.do(register_job, after())
    assert written.evaluation is None
    job = world.snapshot.job("default", "report")
    assert job is not None
    assert (job.status, held(world.snapshot, job)) == ("pending", 'job "etl" is not complete yet')
    assert let_begin(world) == []
    finish(world, etl)
    assert let_begin(world) == ["report"]
    assert world.evaluations("report") == [("job-register", "pending")]
    assert let_begin(world) == []


def test_a_failed_job_is_not_complete_but_dead() -> None:
    world = World()
    etl = world.job(make_job("etl", type="batch"))
    finish(world, etl, "failed")
    assert world.do(register_job, after()).evaluation is None
    assert world.do(register_job, replace(after(status="dead"), id="cleanup")).evaluation is not None


def test_a_failed_allocation_that_was_replaced_does_not_count() -> None:
    world = World()
    etl = world.job(make_job("etl", type="batch"))
    world.put_alloc(make_alloc("first", job=etl, client_status="failed", next_allocation="second"))
    finish(world, etl)
    assert world.do(register_job, after()).evaluation is not None


def test_running_means_as_many_as_are_wanted() -> None:
    world = World()
    database = world.job(make_job("db", count=2))
    world.put_alloc(make_alloc("a", job=database))
    job = replace(after("db", status="running"), type="service")
    assert world.do(register_job, job).evaluation is None
    world.put_alloc(make_alloc("b", job=database))
    assert let_begin(world) == ["report"]


def test_a_job_that_is_not_there_is_waited_for_and_the_newest_child_stands_for_a_template() -> None:
    world = World()
    job = after("nightly")
    world.do(register_job, job)
    assert held(world.snapshot, world.snapshot.job("default", "report")) == 'job "nightly" is not there'  # type: ignore[arg-type]
    world.job(make_job("nightly", type="batch", periodic=PeriodicConfig(specs=("@daily",))))
    assert "has no children yet" in held(world.snapshot, world.snapshot.job("default", "report"))  # type: ignore[arg-type]
    world.do(launch_periodic, "default", "nightly", 1_770_000_000)
    child = world.snapshot.job("default", "nightly/periodic-1770000000")
    assert child is not None
    assert let_begin(world) == []
    finish(world, child)
    assert let_begin(world) == ["report"]


def test_what_lives_does_not_wait_again_but_a_new_run_does() -> None:
    world = World()
    etl = world.job(make_job("etl", type="batch"))
    finish(world, etl)
    report = world.job(after())
    end_evaluations(world, "report")
    world.put_alloc(make_alloc("r", job=report))
    world.job(make_job("etl", type="batch", meta={"run": "2"}))
    changed = replace(after(), priority=60)
    assert world.do(register_job, changed).evaluation is not None
    world.put_alloc(make_alloc("r", job=report, client_status="complete"))
    end_evaluations(world, "report")
    assert world.do(register_job, replace(after(), priority=70)).evaluation is None
    finish(world, world.snapshot.job("default", "etl"), number=2)  # type: ignore[arg-type]
    assert let_begin(world) == ["report"]


def test_nobody_takes_a_waiting_job_for_overlooked_or_for_garbage() -> None:
    world = World()
    world.do(register_job, after())
    assert find_overlooked(world.snapshot) == ()
    garbage = find_garbage(world.snapshot, GarbageSettings(), world.now_ns, force=True)
    assert garbage.jobs == ()


def template(**limits: int) -> Job:
    return make_job("work", type="batch", parameterized_job=ParameterizedJobConfig(**limits))


def dispatched(world: World) -> tuple[Job, bool]:
    """A new child, and whether it began."""
    world.now_ns += 1_000_000_000
    job, evaluation, _ = world.do(dispatch_job, "default", "work")
    assert job is not None
    return job, evaluation is not None


def test_children_beyond_the_limit_wait_their_turn_the_oldest_first() -> None:
    world = World()
    world.job(template(max_running=2))
    made = [dispatched(world) for _ in range(4)]
    assert [began for _, began in made] == [True, True, False, False]
    assert let_begin(world) == []
    stored = world.snapshot.job("default", made[2][0].id)
    assert stored is not None
    assert held(world.snapshot, stored) == '2 of at most 2 children of job "work" run'
    finish(world, world.snapshot.job("default", made[0][0].id))  # type: ignore[arg-type]
    assert let_begin(world) == [made[2][0].id]
    began = [child for child, _ in made if world.evaluations(child.id)]
    assert [child.id for child in began] == [made[0][0].id, made[1][0].id, made[2][0].id]


@pytest.mark.parametrize("limit", [1, 3])
def test_however_children_end_the_limit_is_kept_and_all_run_in_the_end(limit: int) -> None:
    world = World()
    world.job(template(max_running=limit))
    children = [dispatched(world)[0].id for _ in range(7)]

    def running() -> list[str]:
        found = [world.snapshot.job("default", child) for child in children]
        return [job.id for job in found if job is not None and job.status != "dead" and world.evaluations(job.id)]

    ended: list[str] = []
    while len(ended) < len(children):
        let_begin(world)
        now = running()
        assert 1 <= len(now) <= limit
        finish(world, world.snapshot.job("default", now[-1]))  # type: ignore[arg-type]
        ended.append(now[-1])
    assert sorted(ended) == sorted(children)


def test_a_limit_that_is_raised_lets_more_begin_and_a_stopped_child_none() -> None:
    world = World()
    world.job(template(max_running=1))
    children = [dispatched(world)[0].id for _ in range(3)]
    world.do(deregister_job, "default", children[1], purge=False)
    world.job(template(max_running=5))
    assert let_begin(world) == [children[2]]


def test_periodic_children_are_limited_too() -> None:
    world = World()
    world.job(make_job("tick", type="batch", periodic=PeriodicConfig(specs=("@hourly",), max_running=1)))
    first = world.do(launch_periodic, "default", "tick", 1_770_000_000)
    second = world.do(launch_periodic, "default", "tick", 1_770_003_600)
    assert (first.evaluation is not None, second.evaluation) == (True, None)


def test_jobs_without_gates_begin_at_once() -> None:
    world = World()
    assert world.do(register_job, make_job(groups=(make_group(),))).evaluation is not None
    assert decide(world.snapshot, world.now_ns) == ((), None)
