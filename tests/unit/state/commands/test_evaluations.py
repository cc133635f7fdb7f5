"""Requests to look at jobs again."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_job, make_metric, make_node
from tests.world import World

from lepa.kit.durations import rfc3339
from lepa.model.policies import ParameterizedJobConfig, PeriodicConfig
from lepa.state.commands import evaluations as commands
from lepa.state.commands.jobs import deregister_job


def test_a_node_brings_its_living_jobs_and_all_system_jobs() -> None:
    world = World()
    world.node(make_node())
    web, probe = world.job(make_job("web")), world.job(make_job("probe", type="system"))
    over = world.job(make_job("over"))
    world.put_alloc(make_alloc("a", job=web))
    world.put_alloc(make_alloc("b", job=over, client_status="complete"))
    found = world.do(commands.evaluate_node, "node-1")
    assert {evaluation.job_id for evaluation in found} == {web.id, probe.id}
    assert {evaluation.triggered_by for evaluation in found} == {"node-update"}


def test_templates_are_not_looked_at() -> None:
    periodic = make_job(type="batch", periodic=PeriodicConfig(spec="@daily"))
    template = make_job(type="batch", parameterized_job=ParameterizedJobConfig())
    assert not commands.places(periodic)
    assert not commands.places(template)
    assert commands.places(replace(template, dispatched=True))


def test_a_full_success_cancels_what_was_blocked() -> None:
    world = World()
    job = world.job(make_job())
    blocked = world.put_eval(make_eval("blocked", job=job, status="blocked"))
    done = world.put_eval(make_eval("done", job=job))
    world.do(commands.end_evaluation, replace(done, status="complete"))
    after = world.evaluation(blocked.id)
    assert (after.status, after.status_description) == ("canceled", 'evaluation "done" successful')


def test_a_partial_success_leaves_what_is_blocked() -> None:
    world = World()
    job = world.job(make_job())
    world.put_eval(make_eval("blocked", job=job, status="blocked"))
    done = world.put_eval(make_eval("done", job=job))
    world.do(commands.end_evaluation, replace(done, status="complete", failed_tg_allocs={"web": make_metric()}))
    assert world.evaluation("blocked").status == "blocked"


def test_an_evaluation_that_is_over_stays_over() -> None:
    world = World()
    job = world.job(make_job())
    over = world.put_eval(make_eval("over", job=job, status="canceled"))
    world.do(commands.end_evaluation, replace(over, status="complete"))
    world.do(commands.cancel_evaluation, "over", "again")
    assert world.evaluation("over").status == "canceled"
    assert world.evaluation("over").status_description == ""


def test_a_failed_evaluation_is_followed_by_another_later() -> None:
    world = World()
    job = world.job(make_job())
    world.put_eval(make_eval("one", job=job, priority=70))
    world.do(commands.fail_evaluation, "one", "too often", follow_up_delay_ns=60)
    failed = world.evaluation("one")
    follow_up = world.evaluation(failed.next_eval)
    assert (failed.status, failed.status_description) == ("failed", "too often")
    assert (follow_up.triggered_by, follow_up.priority) == ("failed-follow-up", 70)
    assert follow_up.wait_until == rfc3339(world.now_ns + 60)


def test_an_evaluation_of_a_job_that_is_gone_is_canceled_and_not_followed() -> None:
    world = World()
    job = world.job(make_job())
    world.put_eval(make_eval("one", job=job))
    world.do(deregister_job, "default", "web", purge=True)
    before = len(world.evaluations("web"))
    world.do(commands.fail_evaluation, "one", "too often", follow_up_delay_ns=60)
    assert world.evaluation("one").status == "canceled"
    assert len(world.evaluations("web")) == before
