"""Registering, stopping, scaling and reverting jobs."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_group, make_job
from tests.world import World

from lepa.model.errors import LepaError
from lepa.model.job_views import JobSubmission
from lepa.model.policies import ScalingPolicy
from lepa.state import keys
from lepa.state.commands import jobs as commands


def versions(world: World) -> list[int]:
    return [job.version for job in world.snapshot.job_versions("default", "web")]


def test_a_new_job_is_version_zero_with_the_index_of_its_write() -> None:
    world = World()
    written = world.do(commands.register_job, make_job())
    job = world.snapshot.job("default", "web")
    assert job is not None
    assert (job.version, job.job_modify_index, job.submit_time) == (0, world.revision, world.now_ns)
    assert written.evaluation is not None
    assert world.evaluation(written.evaluation.id).job_modify_index == world.revision
    assert job.status == "pending"


def test_the_same_again_only_asks_for_a_look() -> None:
    world = World()
    job = world.job(make_job())
    again = world.do(commands.register_job, make_job())
    assert not again.changed
    assert world.snapshot.job("default", "web") == job
    assert len(world.evaluations("web")) == 2


def test_a_change_is_a_new_version_and_old_ones_go() -> None:
    world = World()
    for count in range(1, 10):
        world.job(make_job(count=count))
    assert versions(world) == [8, 7, 6, 5, 4, 3]


def test_the_newest_versions_are_kept_however_high_their_numbers() -> None:
    """B138."""
    world = World()
    for count in range(1, 261):
        world.job(make_job(count=count))
        assert versions(world) == list(range(count - 1, max(-1, count - 7), -1))
    assert versions(world) == [259, 258, 257, 256, 255, 254]


def test_a_version_that_runs_or_has_a_tag_stays() -> None:
    world = World()
    first = world.job(make_job(count=1))
    world.put_alloc(make_alloc(job=first))
    for count in range(2, 10):
        world.job(make_job(count=count))
    assert versions(world) == [8, 7, 6, 5, 4, 3, 0]


def test_the_index_that_the_caller_saw_is_enforced() -> None:
    """B123: someone else registered meanwhile; and 0 is "must not exist"."""
    world = World()
    with pytest.raises(LepaError, match="Enforcing job modify index 7: job does not exist"):
        world.do(commands.register_job, make_job(), enforce_index=7)
    job = world.job(make_job())
    with pytest.raises(LepaError, match="Enforcing job modify index 0: job already exists"):
        world.do(commands.register_job, make_job(), enforce_index=0)
    with pytest.raises(LepaError, match=f"conflicting job modify index: {job.job_modify_index}"):
        world.do(commands.register_job, make_job(), enforce_index=job.job_modify_index + 1)
    world.do(commands.register_job, make_job(count=2), enforce_index=job.job_modify_index)
    with pytest.raises(LepaError, match=f"Enforcing job modify index {job.job_modify_index}: job exists with conflict"):
        world.do(commands.register_job, make_job(count=3), enforce_index=job.job_modify_index)
    assert world.snapshot.job("default", "web").task_groups[0].count == 2  # type: ignore[union-attr]
    assert world.do(commands.register_job, make_job("new"), enforce_index=0).changed


def test_counts_and_resources_can_be_preserved() -> None:
    world = World()
    world.job(make_job(count=7))
    kept = world.do(commands.register_job, make_job(count=1, meta={"a": "b"}), preserve_counts=True)
    assert kept.job is not None
    assert kept.job.task_groups[0].count == 7
    group = make_group(count=1)
    bigger = replace(group, tasks=(replace(group.tasks[0], resources=replace(group.tasks[0].resources, cpu=999)),))
    kept = world.do(commands.register_job, make_job(groups=(bigger,)), preserve_resources=True)
    assert kept.job is not None
    assert kept.job.task_groups[0].tasks[0].resources.cpu == 100


def test_the_text_of_a_version_is_kept_with_it() -> None:
    world = World()
    world.do(commands.register_job, make_job(), submission=JobSubmission(source="job {}", format="hcl2"))
    kept = world.snapshot.job_submission("default", "web", 0)
    assert kept is not None
    assert (kept.source, kept.job_id, kept.job_modify_index) == ("job {}", "web", world.revision)


def test_stopping_is_a_version_and_purging_leaves_nothing() -> None:
    world = World()
    world.do(commands.register_job, make_job(), submission=JobSubmission(source="job {}"))
    world.do(commands.deregister_job, "default", "web", purge=False)
    job = world.snapshot.job("default", "web")
    assert job is not None
    assert (job.stop, job.version, job.status) == (True, 1, "dead")
    world.do(commands.scale_job, "default", "web", "web", None, message="note")
    world.do(commands.deregister_job, "default", "web", purge=True)
    tables = world.snapshot.tables
    assert [len(tables[n]) for n in ("jobs", "job_versions", "job_submissions", "scaling_events")] == [0, 0, 0, 0]
    assert world.do(commands.deregister_job, "default", "web", purge=True) == (None, None, False)


def test_stopping_without_delay_tells_the_allocations() -> None:
    world = World()
    job = world.job(make_job())
    world.put_alloc(make_alloc(job=job))
    world.do(commands.deregister_job, "default", "web", purge=False, no_shutdown_delay=True)
    assert world.alloc("alloc-1").desired_transition.no_shutdown_delay is True


def test_reverting_registers_an_earlier_version_anew() -> None:
    world = World()
    world.job(make_job(count=1))
    world.job(make_job(count=2))
    with pytest.raises(LepaError, match="can't revert to current version"):
        world.do(commands.revert_job, "default", "web", 1)
    with pytest.raises(LepaError, match="Current job has version 1; enforcing version 5"):
        world.do(commands.revert_job, "default", "web", 0, enforce_prior_version=5)
    with pytest.raises(LepaError, match='job "web" in namespace "default" at version 9 not found'):
        world.do(commands.revert_job, "default", "web", 9)
    back = world.do(commands.revert_job, "default", "web", 0).job
    assert back is not None
    assert (back.version, back.task_groups[0].count) == (2, 1)


def test_a_stable_version_is_marked_in_both_places() -> None:
    world = World()
    world.job(make_job())
    world.do(commands.mark_stable, "default", "web", 0, stable=True)
    job, version = world.snapshot.job("default", "web"), world.snapshot.job_version("default", "web", 0)
    assert job is not None
    assert version is not None
    assert (job.stable, version.stable, job.version) == (True, True, 0)


def test_scaling_is_refused_in_nomads_words() -> None:
    world = World()
    world.job(make_job(groups=(make_group(count=2, scaling=ScalingPolicy(min=1, max=3)),)))
    for count, message in (
        (0, "group count was less than scaling policy minimum: 0 < 1"),
        (4, "group count was greater than scaling policy maximum: 4 > 3"),
    ):
        with pytest.raises(LepaError, match=message):
            world.do(commands.scale_job, "default", "web", "web", count)
    with pytest.raises(LepaError, match='task group "db" specified for scaling does not exist in job'):
        world.do(commands.scale_job, "default", "web", "db", 1)
    with pytest.raises(LepaError, match='job "db" not found'):
        world.do(commands.scale_job, "default", "db", "db", 1)
    world.put_deployment(make_deployment())
    with pytest.raises(LepaError, match="job scaling blocked due to active deployment"):
        world.do(commands.scale_job, "default", "web", "web", 3)


def test_a_scaling_policy_keeps_its_id_from_version_to_version() -> None:
    world = World()
    job = make_job(groups=(make_group(scaling=ScalingPolicy(min=1, max=3)),))
    first = world.job(job).task_groups[0].scaling
    second = world.job(replace(job, meta={"a": "b"})).task_groups[0].scaling
    assert first is not None
    assert second is not None
    assert first.id == second.id != ""
    assert second.target == {"Namespace": "default", "Job": "web", "Group": "web"}


def test_only_the_newest_scaling_events_are_kept() -> None:
    world = World()
    world.job(make_job())
    for number in range(25):
        world.now_ns += 1
        world.do(commands.scale_job, "default", "web", "web", None, message=str(number))
    events = world.snapshot.scaling_events("default", "web", "web")
    assert [event.message for event in events] == [str(number) for number in range(5, 25)]
    assert keys.THIS_REVISION == -1


def test_scaling_may_be_made_conditional() -> None:
    """B116."""
    world = World()
    job = world.job(make_job())
    with pytest.raises(LepaError, match="job exists with conflicting job modify index"):
        world.do(commands.scale_job, "default", "web", "web", 3, enforce_index=job.job_modify_index + 1)
    assert world.snapshot.job("default", "web").task_groups[0].count == 1  # type: ignore[union-attr]
    world.do(commands.scale_job, "default", "web", "web", 3, enforce_index=job.job_modify_index)
    assert world.snapshot.job("default", "web").task_groups[0].count == 3  # type: ignore[union-attr]
