"""Deployments of system jobs."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.builders import make_eval, make_node, make_update
from tests.fake_view import FakeView
from tests.unit.scheduler.test_system import system, view_of

from lepa.model.deployment import Deployment, DeploymentState
from lepa.scheduler.outcome import Outcome


def evaluate(view: FakeView, *, clients: bool = True, healthy: bool = True) -> Outcome:
    outcome = view.evaluate(make_eval(job=view.job("default", "web")))
    if clients:
        view.run_clients(healthy=healthy)
    return outcome


def latest(view: FakeView) -> Deployment:
    deployment = view.latest_deployment("default", "web")
    assert deployment is not None
    return deployment


def state(view: FakeView) -> DeploymentState:
    return latest(view).task_groups["web"]


def versions(view: FakeView) -> Counter[int]:
    return Counter(alloc.job_version for alloc in view.wanted())


def rolled_out(nodes: int = 4, **update: Any) -> FakeView:
    """A first version that runs everywhere, and a second one that was registered."""
    job = system(update=make_update(**update))
    view = view_of(job, nodes=nodes)
    evaluate(view)
    evaluate(view)
    assert latest(view).status == "successful"
    view.put_job(msgspec.structs.replace(system(env="new", update=make_update(**update))))
    return view


def test_the_first_version_is_placed_everywhere_at_once() -> None:
    view = view_of(system(update=make_update(canary=50)), nodes=4)
    outcome = evaluate(view)
    assert outcome.plan.annotations["web"].place == 4
    assert (state(view).desired_total, state(view).desired_canaries) == (4, 0)
    assert {alloc.deployment_id for alloc in view.wanted()} == {latest(view).id}
    assert latest(view).status == "running"
    outcome = evaluate(view)
    assert (outcome.plan.updates, outcome.plan.stops) == ((), ())
    assert latest(view).status == "successful"
    assert evaluate(view).plan.empty


def test_an_update_rolls_over_the_nodes_as_they_become_healthy() -> None:
    """B073: at most one allocation at a time that is not proven healthy."""
    view = rolled_out(max_parallel=1)
    for number in range(4):
        outcome = evaluate(view, clients=False)
        assert outcome.plan.annotations["web"].destructive_update == 1
        assert outcome.new_evaluations == ()
        assert evaluate(view, clients=False).plan.empty
        assert versions(view) == Counter({0: 3 - number, 1: number + 1})
        view.run_clients()
    assert latest(view).status == "running"
    evaluate(view)
    assert (latest(view).status, latest(view).job_version) == ("successful", 1)


def test_canaries_are_a_share_of_the_nodes_and_wait_for_their_promotion() -> None:
    view = rolled_out(nodes=5, max_parallel=5, canary=50)
    outcome = evaluate(view)
    assert outcome.plan.annotations["web"].destructive_update == 3
    assert (state(view).desired_canaries, state(view).desired_total) == (3, 5)
    assert latest(view).status_description == "Deployment is running but requires manual promotion"
    assert evaluate(view).plan.empty
    assert versions(view) == Counter({0: 2, 1: 3})
    view.put_node(make_node("late"))
    evaluate(view)
    assert versions(view) == Counter({0: 3, 1: 3})
    assert state(view).desired_total == 6
    view.promote()
    evaluate(view)
    evaluate(view)
    assert versions(view) == Counter({1: 6})
    assert latest(view).status == "successful"


def test_a_lost_canary_is_made_elsewhere_by_the_evaluation_that_loses_it() -> None:
    view = rolled_out(nodes=4, max_parallel=2, canary=50)
    evaluate(view)
    lost = next(alloc for alloc in view.wanted() if alloc.job_version == 1)
    view.change_node(lost.node_id, status="down")
    evaluate(view)
    assert versions(view) == Counter({0: 1, 1: 2})
    assert (state(view).desired_canaries, state(view).desired_total) == (2, 3)


def test_canaries_are_not_waited_for_where_nothing_older_is_left() -> None:
    view = rolled_out(nodes=2, max_parallel=1, canary=30)
    view.change_node("n0", status="down")
    view.change_node("n1", status="down")
    view.put_node(make_node("n2"))
    evaluate(view)
    evaluate(view)
    assert versions(view) == Counter({1: 1})
    assert (latest(view).status, state(view).desired_canaries) == ("successful", 0)


def test_no_more_canaries_at_a_time_than_may_change() -> None:
    view = rolled_out(max_parallel=1, canary=50)
    for wanted in (1, 2, 2):
        evaluate(view)
        assert versions(view)[1] == wanted


def test_a_failure_is_left_to_the_deployment_while_it_goes_on() -> None:
    view = rolled_out(max_parallel=1)
    evaluate(view)
    (new,) = [alloc for alloc in view.wanted() if alloc.job_version == 1]
    view.put_alloc(new, client_status="failed")
    assert evaluate(view).plan.empty
    view.set_deployment(latest(view).id, status="failed")
    evaluate(view)
    assert versions(view) == Counter({0: 3, 1: 1})
    assert [alloc.previous_allocation for alloc in view.wanted() if alloc.job_version == 1] == [new.id]


@pytest.mark.parametrize("status", ["paused", "failed"])
def test_a_held_deployment_replaces_nothing(status: str) -> None:
    view = rolled_out(max_parallel=1)
    evaluate(view)
    view.set_deployment(latest(view).id, status=status)
    assert evaluate(view).plan.annotations["web"].destructive_update == 0
    view.put_node(make_node("late"))
    assert evaluate(view).plan.annotations["web"].place == 1


def test_nodes_that_come_and_go_change_what_is_wanted() -> None:
    view = rolled_out(nodes=3, max_parallel=1)
    evaluate(view)
    (done,) = [alloc for alloc in view.wanted() if alloc.job_version == 1]
    view.change_node(done.node_id, status="down")
    evaluate(view)
    assert state(view).desired_total == 2
    evaluate(view)
    view.put_node(make_node("late"))
    evaluate(view)
    evaluate(view)
    assert versions(view) == Counter({1: 3})
    assert (latest(view).status, state(view).desired_total) == ("successful", 3)


def test_a_deployment_that_only_waited_for_a_lost_node_is_done() -> None:
    view = rolled_out(nodes=2, max_parallel=2)
    evaluate(view, healthy=True)
    view.change_node("n1", status="down")
    evaluate(view)
    assert (latest(view).status, state(view).desired_total) == ("successful", 1)


def test_what_changes_in_place_takes_part() -> None:
    view = rolled_out(nodes=2)
    before = {alloc.id for alloc in view.wanted()}
    view.put_job(msgspec.structs.replace(view.job("default", "web") or system(), priority=60))
    for _ in range(4):
        evaluate(view)
    view.put_job(msgspec.structs.replace(view.job("default", "web") or system(), priority=61))
    kept = {alloc.id for alloc in view.wanted()}
    assert evaluate(view).plan.annotations["web"].in_place_update == 2
    evaluate(view)
    assert {alloc.id for alloc in view.wanted()} == kept != before
    assert (latest(view).status, latest(view).job_version) == ("successful", 3)


def test_a_newer_version_and_a_stop_cancel_it() -> None:
    view = rolled_out()
    evaluate(view)
    first = latest(view)
    view.put_job(system(env="newest", update=make_update()))
    evaluate(view)
    assert next(each.status for each in view.deployments if each.id == first.id) == "cancelled"
    assert latest(view).job_version == 2
    view.put_job(msgspec.structs.replace(system(env="newest"), stop=True))
    evaluate(view)
    assert latest(view).status == "cancelled"


def test_without_a_limit_everything_changes_at_once_and_there_is_no_deployment() -> None:
    view = view_of(system(update=make_update(max_parallel=0)), nodes=3)
    evaluate(view)
    view.put_job(system(env="new", update=make_update(max_parallel=0)))
    assert evaluate(view).plan.annotations["web"].destructive_update == 3
    assert view.latest_deployment("default", "web") is None


def test_a_job_that_no_node_may_run_waits_without_a_deployment() -> None:
    view = view_of(system(update=make_update()), nodes=0)
    evaluate(view)
    assert view.deployments == []
    view.put_node(make_node("n0"))
    evaluate(view)
    evaluate(view)
    assert (latest(view).status, state(view).desired_total) == ("successful", 1)
