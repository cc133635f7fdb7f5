"""Children of periodic and parameterized jobs."""

import re

import pytest
from msgspec.structs import replace
from tests.builders import make_job
from tests.world import World

from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.policies import ParameterizedJobConfig, PeriodicConfig
from lepa.state.commands import children as commands


def template(**rules: object) -> Job:
    return make_job("resize", type="batch", parameterized_job=ParameterizedJobConfig(**rules))  # type: ignore[arg-type]


def test_a_dispatched_child_is_a_job_of_its_own() -> None:
    world = World()
    world.job(template(meta_optional=("size",)))
    written = world.do(
        commands.dispatch_job, "default", "resize", payload=b"x", meta={"size": "9"}, template="run1", priority=70
    )
    job = written.job
    assert job is not None
    assert job.id.startswith(f"resize/dispatch-run1-{world.now_ns // SECOND}-")
    assert (job.parent_id, job.dispatched, job.payload, job.meta, job.priority) == (
        "resize",
        True,
        b"x",
        {"size": "9"},
        70,
    )
    assert written.evaluation is not None


def test_a_token_gives_the_same_child_again() -> None:
    """B090: with a prefix for its id, too."""
    world = World()
    world.job(template())
    first = world.do(commands.dispatch_job, "default", "resize", idempotency_token="t", template="run1").job
    at_s = world.now_ns // SECOND
    world.now_ns += 60 * SECOND
    second = world.do(commands.dispatch_job, "default", "resize", idempotency_token="t", template="run1")
    assert first is not None
    assert re.fullmatch(rf"resize/dispatch-run1-{at_s}-[0-9a-f]{{8}}", first.id)
    assert len(world.snapshot.children("default", "resize")) == 1
    assert second.job is not None
    assert second.job.id == first.id
    assert second.evaluation is None


@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        ({"payload": "required"}, {}, "Payload is not provided but required by parameterized job"),
        ({"payload": "forbidden"}, {"payload": b"x"}, "Payload provided but forbidden by parameterized job"),
        ({}, {"payload": b"x" * 16_385}, "Payload exceeds maximum size; 16385 > 16384"),
        ({}, {"meta": {"b": "", "a": ""}}, r"unpermitted metadata keys: \[a b\]"),
        ({"meta_required": ("a", "b")}, {"meta": {"b": ""}}, r"did not provide required meta keys: \[a\]"),
        ({}, {"priority": 101}, r"dispatch job priority must be between \[1, 100\]"),
    ],
)
def test_what_a_template_does_not_take_is_refused(rules: dict, options: dict, message: str) -> None:  # type: ignore[type-arg]
    world = World()
    world.job(template(**rules))
    with pytest.raises(LepaError, match=message):
        world.do(commands.dispatch_job, "default", "resize", **options)


def test_a_child_may_have_the_largest_priority_that_the_servers_take() -> None:
    world = World()
    world.job(template())
    written = world.do(commands.dispatch_job, "default", "resize", priority=200, max_priority=200)
    assert written.job is not None
    assert written.job.priority == 200


def test_only_a_running_template_is_dispatched() -> None:
    world = World()
    world.job(make_job("web"))
    with pytest.raises(LepaError, match='Specified job "web" is not a parameterized job'):
        world.do(commands.dispatch_job, "default", "web")
    with pytest.raises(LepaError, match="parameterized job not found"):
        world.do(commands.dispatch_job, "default", "nothing")
    world.job(replace(template(), stop=True))
    with pytest.raises(LepaError, match='Specified job "resize" is stopped'):
        world.do(commands.dispatch_job, "default", "resize")


def test_a_child_of_a_template_that_is_periodic_too_waits_for_its_time() -> None:
    """B078."""
    world = World()
    world.job(replace(template(), periodic=PeriodicConfig(spec="@daily")))
    written = world.do(commands.dispatch_job, "default", "resize")
    assert written.job is not None
    assert written.job.periodic is not None
    assert written.evaluation is None


def test_a_launch_is_known_by_its_time_and_made_once() -> None:
    world = World()
    world.job(make_job("nightly", type="batch", periodic=PeriodicConfig(spec="@daily")))
    written = world.do(commands.launch_periodic, "default", "nightly", 1_770_000_000)
    again = world.do(commands.launch_periodic, "default", "nightly", 1_770_000_000)
    assert written.job is not None
    assert written.job.id == "nightly/periodic-1770000000"
    assert written.job.periodic is None
    assert commands.launched_at(written.job) == 1_770_000_000
    assert (written.evaluation is not None, again.evaluation) == (True, None)
    assert commands.launched_at(make_job("web")) == 0


def test_a_job_that_is_not_periodic_cannot_be_forced() -> None:
    world = World()
    world.job(make_job("web"))
    with pytest.raises(LepaError, match="can't force launch non-periodic job"):
        world.do(commands.launch_periodic, "default", "web", 1)
