"""Names for versions of a job."""

import pytest
from msgspec.structs import replace
from tests.builders import make_group, make_job
from tests.world import World

from lepa.model.errors import LepaError
from lepa.state.commands import jobs
from lepa.state.commands.tags import NAME_MAX, TAGS_MAX, remove_tag, tag_version


def versions(world: World, count: int) -> None:
    for number in range(1, count + 1):
        world.job(make_job(groups=(make_group(count=number),)))


def tags(world: World) -> dict[int, str]:
    found = world.snapshot.job_versions("default", "web")
    return {job.version: job.version_tag.name for job in found if job.version_tag is not None}


def test_the_newest_version_is_tagged_unless_another_is_named() -> None:
    world = World()
    versions(world, 2)
    world.do(tag_version, "default", "web", "new", description="the newest")
    world.do(tag_version, "default", "web", "old", version=0)
    assert tags(world) == {0: "old", 1: "new"}
    newest = world.snapshot.job("default", "web")
    assert newest is not None
    assert newest.version_tag is not None
    assert (newest.version_tag.description, newest.version_tag.tagged_time) == ("the newest", world.now_ns)
    assert newest.version == 1


def test_a_tagged_version_is_kept_however_many_follow() -> None:
    world = World()
    versions(world, 1)
    world.do(tag_version, "default", "web", "good")
    versions(world, 9)
    assert [job.version for job in world.snapshot.job_versions("default", "web")] == [8, 7, 6, 5, 4, 3, 0]


def test_a_new_version_has_no_tag_and_registering_the_same_makes_none() -> None:
    world = World()
    versions(world, 1)
    world.do(tag_version, "default", "web", "good")
    assert not world.do(jobs.register_job, make_job()).changed
    versions(world, 2)
    assert tags(world) == {0: "good"}
    assert world.snapshot.job("default", "web").version_tag is None  # type: ignore[union-attr]


def test_a_name_is_for_one_version_and_may_be_changed() -> None:
    world = World()
    versions(world, 2)
    world.do(tag_version, "default", "web", "good", version=0)
    with pytest.raises(LepaError, match='tag "good" already exists on a different version of job "web"'):
        world.do(tag_version, "default", "web", "good", version=1)
    world.do(tag_version, "default", "web", "better", version=0)
    assert tags(world) == {0: "better"}


def test_a_name_is_taken_away() -> None:
    world = World()
    versions(world, 1)
    world.do(tag_version, "default", "web", "good")
    assert world.do(remove_tag, "default", "web", "good").name == "good"
    assert tags(world) == {}
    with pytest.raises(LepaError, match='tag "good" not found on job "web"'):
        world.do(remove_tag, "default", "web", "good")


def test_what_is_not_there_and_too_much_are_refused() -> None:
    world = World()
    versions(world, 1)
    for call, text in (
        (("ghost", "a"), "job not found"),
        (("web", ""), "1 to 128 characters"),
        (("web", "x" * (NAME_MAX + 1)), "1 to 128 characters"),
    ):
        with pytest.raises(LepaError, match=text):
            world.do(tag_version, "default", *call)
    with pytest.raises(LepaError, match="at version 7 not found"):
        world.do(tag_version, "default", "web", "a", version=7)
    with pytest.raises(LepaError, match="at most 256"):
        world.do(tag_version, "default", "web", "a", description="x" * 300)


def test_tags_of_one_job_have_a_bound() -> None:
    world = World()
    for number in range(1, TAGS_MAX + 2):
        world.job(make_job(groups=(make_group(count=number),)))
        if number <= TAGS_MAX:
            world.do(tag_version, "default", "web", f"t{number}")
    with pytest.raises(LepaError, match=f"at most {TAGS_MAX} are kept"):
        world.do(tag_version, "default", "web", "more")


def test_going_back_to_a_tagged_version_makes_an_untagged_one() -> None:
    world = World()
    versions(world, 2)
    world.do(tag_version, "default", "web", "good", version=0)
    world.do(jobs.revert_job, "default", "web", 0)
    job = world.snapshot.job("default", "web")
    assert job is not None
    assert (job.version, job.version_tag) == (2, None)
    assert replace(job, version=0).task_groups[0].count == 1
