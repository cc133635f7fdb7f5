"""What may be forgotten."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_eval, make_group, make_job, make_node
from tests.world import World

from lepa.kit.durations import HOUR, SECOND
from lepa.model.job import Job, JobVersionTag
from lepa.model.policies import PeriodicConfig
from lepa.server.deciders.garbage import find_garbage, may_be_deleted
from lepa.server.settings import GarbageSettings
from lepa.state import keys
from lepa.state.commands.evaluations import end_evaluation
from lepa.state.commands.garbage import Garbage
from lepa.state.commands.jobs import deregister_job, launch_child
from lepa.state.commands.nodes import update_node_status


def found(world: World, *, force: bool = True) -> Garbage:
    return find_garbage(world.snapshot, GarbageSettings(), world.now_ns, force=force)


def end_all(world: World) -> None:
    for evaluation in list(world.snapshot.evaluations()):
        world.do(end_evaluation, replace(evaluation, status="complete"))


def stopped(world: World, job: Job | None = None) -> None:
    world.job(job or make_job())
    world.do(deregister_job, "default", "web", purge=False)
    end_all(world)


def test_a_stopped_job_goes_with_all_that_is_its_own() -> None:
    world = World()
    job = world.job(make_job())
    world.put_alloc(make_alloc(job=job, desired_status="stop", client_status="complete", eval_id="x"))
    world.put_deployment(make_deployment(job=job, status="successful"))
    world.do(deregister_job, "default", "web", purge=False)
    end_all(world)
    garbage = found(world)
    assert garbage.jobs == (("default", "web"),)
    assert (garbage.allocations, garbage.deployments, len(garbage.evaluations)) == (("alloc-1",), ("deployment-1",), 2)


def test_nothing_goes_before_its_time() -> None:
    world = World()
    stopped(world)
    assert found(world, force=False).empty
    world.now_ns += 5 * HOUR
    assert found(world, force=False).jobs == (("default", "web"),)


@pytest.mark.parametrize("status", ["pending", "blocked"])
def test_a_job_with_an_open_evaluation_stays(status: str) -> None:
    world = World()
    stopped(world)
    world.put_eval(make_eval("open", status=status))
    assert found(world).jobs == ()


def test_a_job_stays_while_something_of_it_still_runs() -> None:
    world = World()
    job = world.job(make_job())
    world.put_alloc(make_alloc(job=job, desired_status="stop"))
    world.do(deregister_job, "default", "web", purge=False)
    end_all(world)
    garbage = found(world)
    assert (garbage.jobs, garbage.allocations) == ((), ())


def test_a_tagged_version_keeps_its_job() -> None:
    world = World()
    stopped(world)
    version = world.snapshot.job_version("default", "web", 0)
    assert version is not None
    tagged = replace(version, version_tag=JobVersionTag(name="golden"))
    world.do(lambda draft: draft.overwrite(keys.job_version_key("default", "web", 0), tagged))
    assert found(world).jobs == ()


def test_a_parent_stays_while_it_has_children() -> None:
    world = World()
    parent = make_job(type="batch", periodic=PeriodicConfig(spec="@daily"))
    world.job(parent)
    world.do(launch_child, replace(parent, id="web/periodic-1", parent_id="web", periodic=None), "periodic-job")
    world.do(deregister_job, "default", "web", purge=False)
    assert found(world).jobs == ()


def test_finished_batch_work_goes_with_its_job_and_not_before() -> None:
    world = World()
    job = world.job(make_job(type="batch"))
    world.put_alloc(make_alloc(job=job, client_status="running", eval_id="id-1"))
    end_all(world)
    assert found(world).empty
    world.put_alloc(make_alloc(job=job, client_status="complete", eval_id="id-1"))
    garbage = found(world)
    assert (garbage.jobs, garbage.allocations) == ((("default", "web"),), ("alloc-1",))


def test_finished_batch_work_goes_when_it_is_old_enough() -> None:
    """B227."""
    world = World()
    job = world.job(make_job(type="batch", groups=(make_group(count=3),)))
    ended = {"client_status": "complete", "eval_id": "id-1", "modify_time": world.now_ns}
    for name in "abc":
        world.put_alloc(make_alloc(name, job=job, **ended))
    end_all(world)
    short = GarbageSettings(job_s=1.0)
    assert find_garbage(world.snapshot, short, world.now_ns).empty
    garbage = find_garbage(world.snapshot, short, world.now_ns + 2 * SECOND)
    assert (garbage.jobs, sorted(garbage.allocations)) == ((("default", "web"),), ["a", "b", "c"])


def test_failures_of_versions_before_go_and_the_newest_stays() -> None:
    """B228."""
    world = World()
    fates = ({"next_allocation": "second"}, {"desired_status": "stop"}, {})
    for name, fate in zip(("first", "second", "third"), fates, strict=True):
        job = world.job(make_job(meta={"made for": name}))
        newest = world.snapshot.job_evaluations("default", "web")[-1]
        world.put_alloc(make_alloc(name, job=job, eval_id=newest.id, client_status="failed", **fate))
    end_all(world)
    garbage = found(world)
    assert (garbage.jobs, sorted(garbage.allocations)) == ((), ["first", "second"])
    assert len(garbage.evaluations) == 2


def test_ended_allocations_of_a_living_service_go_with_their_evaluation() -> None:
    world = World()
    job = world.job(make_job())
    end_all(world)
    world.put_alloc(make_alloc("new", job=job, eval_id="other"))
    world.put_alloc(make_alloc("old", job=job, eval_id="id-1", desired_status="stop", client_status="complete"))
    garbage = found(world)
    assert (garbage.jobs, garbage.allocations, garbage.evaluations) == ((), ("old",), ("id-1",))


def test_a_failure_that_was_not_replaced_yet_stays() -> None:
    world = World()
    job = world.job(make_job())
    end_all(world)
    world.put_alloc(make_alloc(job=job, eval_id="id-1", client_status="failed"))
    assert found(world).empty


def test_the_latest_deployment_of_a_living_job_stays() -> None:
    world = World()
    job = world.job(make_job())
    world.put_deployment(make_deployment("old", job=job, status="successful"))
    world.put_deployment(make_deployment("new", job=job, status="failed"))
    assert found(world).deployments == ("old",)


def test_a_node_that_is_down_goes_when_nothing_is_left_on_it() -> None:
    world = World()
    world.node(make_node())
    world.do(update_node_status, "node-1", "down")
    job = world.job(make_job())
    world.put_alloc(make_alloc(job=job))
    assert found(world).nodes == ()
    world.put_alloc(make_alloc(job=job, client_status="lost", desired_status="stop"))
    assert found(world).nodes == ("node-1",)
    assert found(world, force=False).nodes == ()
    assert world.now_ns % SECOND == 0


def test_an_evaluation_may_be_deleted_unless_something_of_it_runs_or_is_to_be_replaced() -> None:
    world = World()
    job = world.job(make_job())
    evaluation = world.snapshot.job_evaluations("default", "web")[0]
    assert may_be_deleted(world.snapshot, evaluation)
    alloc = world.put_alloc(make_alloc(job=job, eval_id=evaluation.id))
    assert not may_be_deleted(world.snapshot, evaluation)
    world.put_alloc(replace(alloc, client_status="failed"))
    assert not may_be_deleted(world.snapshot, evaluation)
    world.put_alloc(replace(alloc, client_status="failed", next_allocation="other"))
    assert may_be_deleted(world.snapshot, evaluation)
    world.put_alloc(replace(alloc, client_status="running"))
    world.do(deregister_job, "default", "web", purge=False)
    assert may_be_deleted(world.snapshot, evaluation)


def test_what_a_deleted_evaluation_left_behind_goes_too_but_not_the_work_of_a_living_batch_job() -> None:
    world = World()
    job = world.job(make_job())
    batch = world.job(make_job("batch", type="batch"))
    ended = {"desired_status": "stop", "client_status": "complete", "eval_id": "gone", "modify_time": world.now_ns}
    world.put_alloc(make_alloc("a", job=job, **ended))
    world.put_alloc(make_alloc("b", job=batch, **ended))
    assert found(world).allocations == ("a",)
    assert found(world, force=False).allocations == ()
