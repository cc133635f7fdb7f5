"""System and sysbatch jobs."""

from typing import Any

import msgspec
from tests.builders import make_alloc, make_eval, make_group, make_job, make_node, make_task
from tests.fake_view import FakeView

from lepa.kit.durations import SECOND
from lepa.model.allocation import DesiredTransition
from lepa.model.constraint import Constraint
from lepa.model.job import Job
from lepa.model.node import DrainStrategy
from lepa.scheduler.outcome import Outcome


def system(job_type: str = "system", env: str = "", constraints: tuple[Constraint, ...] = (), **group: Any) -> Job:
    made = make_group(tasks=(make_task(env={"v": env}),), **group)
    return make_job(type=job_type, groups=(made,), constraints=constraints)


def view_of(job: Job, nodes: int = 3) -> FakeView:
    return FakeView(*(make_node(f"n{i}") for i in range(nodes)), job=job)


def evaluate(view: FakeView) -> Outcome:
    outcome = view.evaluate(make_eval(job=view.job("default", "web")))
    view.run_clients()
    return outcome


def on_nodes(view: FakeView) -> list[str]:
    return sorted(alloc.node_id for alloc in view.wanted())


def test_one_on_every_node_also_on_those_that_join_later() -> None:
    view = view_of(system())
    evaluate(view)
    assert on_nodes(view) == ["n0", "n1", "n2"]
    assert {alloc.name for alloc in view.wanted()} == {"web.web[0]"}
    view.put_node(make_node("n3"))
    evaluate(view)
    assert on_nodes(view) == ["n0", "n1", "n2", "n3"]
    assert evaluate(view).plan.empty


def test_nodes_that_fail_a_constraint_are_no_failure() -> None:
    """B067, B069, B070."""
    constraint = Constraint(ltarget="${meta.x}", operand="=", rtarget="1")
    view = view_of(system(constraints=(constraint,)))
    view.change_node("n0", meta={"x": "1"})
    view.change_node("n1", meta={"x": "1"}, scheduling_eligibility="ineligible")
    outcome = evaluate(view)
    assert on_nodes(view) == ["n0"]
    assert outcome.evaluation.failed_tg_allocs == {}
    assert outcome.new_evaluations == ()
    view.change_node("n2", meta={"x": "1"})
    evaluate(view)
    assert on_nodes(view) == ["n0", "n2"]


def test_a_node_without_room_is_a_failure() -> None:
    view = view_of(system())
    view.put_node(make_node("small", cpu=50))
    outcome = evaluate(view)
    assert len(view.wanted()) == 3
    assert outcome.evaluation.failed_tg_allocs["web"].dimension_exhausted == {"cpu": 1}
    assert outcome.evaluation.queued_allocations == {"web": 1}
    assert outcome.new_evaluations[0].status == "blocked"


def test_a_node_without_room_gets_it_by_eviction() -> None:
    view = view_of(system(), nodes=1)
    low = make_job("low", priority=10)
    view.put_job(low)
    view.put_node(make_node("n0", cpu=100))
    view.put_alloc(make_alloc("v", job=low, node_id="n0"))
    evaluate(view)
    assert [alloc.job_id for alloc in view.wanted()] == ["web"]
    assert view.alloc("v").desired_status == "evict"


def test_a_drained_node_loses_its_allocation_when_told_and_an_ineligible_one_keeps_it() -> None:
    view = view_of(system())
    evaluate(view)
    view.change_node("n0", scheduling_eligibility="ineligible")
    view.change_node("n1", drain_strategy=DrainStrategy())
    assert evaluate(view).plan.empty
    alloc = next(alloc for alloc in view.wanted() if alloc.node_id == "n1")
    view.put_alloc(alloc, desired_transition=DesiredTransition(migrate=True))
    evaluate(view)
    assert on_nodes(view) == ["n0", "n2"]


def test_a_stopped_allocation_is_put_back() -> None:
    """B072."""
    view = view_of(system())
    evaluate(view)
    alloc = view.wanted()[0]
    view.put_alloc(alloc, desired_transition=DesiredTransition(migrate=True))
    outcome = evaluate(view)
    assert outcome.plan.annotations["web"].place == 1
    assert on_nodes(view) == ["n0", "n1", "n2"]


def test_a_lost_node_s_allocation_is_lost_and_not_moved() -> None:
    view = view_of(system())
    evaluate(view)
    view.change_node("n0", status="down")
    outcome = evaluate(view)
    assert [stop.client_status for stop in outcome.plan.stops] == ["lost"]
    assert on_nodes(view) == ["n1", "n2"]


def test_a_failed_system_allocation_is_started_again_where_it_was() -> None:
    view = view_of(system())
    evaluate(view)
    failed = view.wanted()[0]
    view.put_alloc(failed, client_status="failed")
    evaluate(view)
    (again,) = [alloc for alloc in view.wanted() if alloc.previous_allocation]
    assert (again.node_id, again.previous_allocation) == (failed.node_id, failed.id)


def test_sysbatch_work_that_ended_is_not_run_again_until_the_job_changes() -> None:
    view = view_of(system("sysbatch"))
    evaluate(view)
    first, second, _ = view.wanted()
    view.put_alloc(first, client_status="complete")
    view.put_alloc(second, client_status="failed")
    assert evaluate(view).plan.empty
    view.put_job(system("sysbatch", env="2"))
    evaluate(view)
    assert len([alloc for alloc in view.wanted() if alloc.job_version == 1]) == 3


def test_a_change_in_place_keeps_the_allocations() -> None:
    view = view_of(system())
    evaluate(view)
    before = {alloc.id for alloc in view.wanted()}
    view.put_job(msgspec.structs.replace(system(), priority=60))
    evaluate(view)
    assert {alloc.id for alloc in view.wanted()} == before
    assert {alloc.job_version for alloc in view.wanted()} == {1}


def test_nodes_that_the_job_no_longer_means_lose_it() -> None:
    view = view_of(system())
    evaluate(view)
    view.put_job(system(constraints=(Constraint(ltarget="${node.unique.id}", operand="!=", rtarget="n1"),)))
    evaluate(view)
    assert on_nodes(view) == ["n0", "n2"]


def test_a_stopped_job_stops_everywhere() -> None:
    view = view_of(system())
    evaluate(view)
    view.put_job(msgspec.structs.replace(system(), stop=True))
    evaluate(view)
    assert view.wanted() == []


def test_a_disconnected_node_keeps_its_allocation_for_its_time() -> None:
    view = view_of(system(max_client_disconnect=60 * SECOND))
    evaluate(view)
    view.change_node("n0", status="disconnected")
    outcome = evaluate(view)
    assert outcome.new_evaluations[0].triggered_by == "max-disconnect-timeout"
    assert on_nodes(view) == ["n0", "n1", "n2"]
    view.change_node("n0", status="ready")
    alloc = next(alloc for alloc in view.wanted() if alloc.node_id == "n0")
    view.put_alloc(alloc, client_status="running")
    evaluate(view)
    assert view.alloc(alloc.id).alloc_states[-1].value == "running"
    assert evaluate(view).plan.empty
