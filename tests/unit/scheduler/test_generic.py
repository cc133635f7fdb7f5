"""Evaluations of service and batch jobs, from state to state."""

import msgspec
from tests.builders import make_eval, make_group, make_job, make_node, make_task, make_task_state, make_update
from tests.fake_view import FakeView

from lepa.kit.durations import HOUR, rfc3339
from lepa.model.allocation import DesiredTransition
from lepa.model.job import Job
from lepa.model.operator import PreemptionConfig, SchedulerConfiguration
from lepa.model.policies import ReschedulePolicy


def fail(view: FakeView, alloc_id: str) -> None:
    state = make_task_state(state="dead", failed=True, finished_at=rfc3339(view.now_ns))
    view.put_alloc(view.alloc(alloc_id), client_status="failed", task_states={"web": state})


def settle(view: FakeView, job: Job, steps: int = 20) -> int:
    """Evaluate and let clients act until nothing changes. Returns how many steps that took."""
    for step in range(steps):
        outcome = view.evaluate(make_eval(f"settle-{step}", job=job))
        view.run_clients()
        if outcome.plan.empty:
            return step
    raise AssertionError("does not come to rest")


def test_a_job_is_placed_and_then_left_alone() -> None:
    job = make_job(count=5)
    view = FakeView(make_node("n1"), make_node("n2"), job=job)
    settle(view, job)
    assert [alloc.name for alloc in view.wanted()] == [f"web.web[{i}]" for i in range(5)]


def test_a_rolling_update_ends_with_all_at_the_new_version() -> None:
    update = make_update(max_parallel=2)
    job = make_job(groups=(make_group(count=5, update=update),))
    view = FakeView(make_node("n1"), make_node("n2"), job=job)
    settle(view, job)
    new = view.put_job(make_job(groups=(make_group(count=5, update=update, tasks=(make_task(env={"a": "b"}),)),)))
    assert settle(view, new) == 4, "three steps, the success, and nothing"
    assert {alloc.job_version for alloc in view.wanted()} == {1}
    assert [deployment.status for deployment in view.deployments] == ["successful", "successful"]


def test_a_full_cluster_can_still_be_updated() -> None:
    job = make_job(count=4)
    view = FakeView(make_node(cpu=400), job=job)
    settle(view, job)
    new = view.put_job(make_job(groups=(make_group(count=4, tasks=(make_task(env={"a": "b"}),)),)))
    settle(view, new)
    assert [alloc.job_version for alloc in view.wanted()] == [1] * 4


def test_reschedule_attempts_are_remembered_when_there_was_no_room() -> None:
    """B015."""
    policy = ReschedulePolicy(attempts=1, interval=24 * HOUR, delay=0, delay_function="constant", unlimited=False)
    job = make_job(type="batch", groups=(make_group(reschedule_policy=policy, tasks=(make_task(cpu=3_000),)),))
    view = FakeView(make_node("n1"), job=job)
    settle(view, job)
    fail(view, view.wanted()[0].id)
    blocker = make_job("blocker", groups=(make_group(tasks=(make_task(cpu=3_000),)),))
    view.put_job(blocker)
    settle(view, blocker)
    assert view.evaluate(make_eval(job=job)).evaluation.queued_allocations == {"web": 1}
    view.put_node(make_node("n2"))
    settle(view, job)
    (second,) = [alloc for alloc in view.wanted() if alloc.job_id == "web"]
    assert second.reschedule_tracker is not None
    fail(view, second.id)
    settle(view, job)
    assert len(view.job_allocations("default", "web")) == 2


def test_evicted_work_is_placed_again_when_there_is_room() -> None:
    """B062."""
    low = make_job("low", type="batch", priority=20)
    high = make_job("high", type="batch", priority=80)
    view = FakeView(make_node(cpu=150), job=low)
    view.configuration = SchedulerConfiguration(preemption_config=PreemptionConfig(batch_scheduler_enabled=True))
    settle(view, low)
    view.put_job(high)
    settle(view, high)
    assert [alloc.job_id for alloc in view.wanted()] == ["high"]
    (waiting,) = view.evaluate(make_eval(job=low)).new_evaluations
    view.put_job(msgspec.structs.replace(high, stop=True))
    settle(view, high)
    view.evaluate(waiting)
    assert [(alloc.job_id, alloc.previous_allocation != "") for alloc in view.wanted()] == [("low", True)]


def test_a_job_with_all_at_once_says_so_in_its_plan() -> None:
    job = make_job(all_at_once=True)
    assert FakeView(make_node(), job=job).evaluate(make_eval(job=job)).plan.all_at_once


def test_a_completed_batch_job_is_not_run_again() -> None:
    """B088: not when nothing has changed; another meta is new work."""
    job = make_job(type="batch", count=2)
    view = FakeView(make_node(), job=job)
    settle(view, job)
    for alloc in view.wanted():
        view.put_alloc(alloc, client_status="complete")
    assert view.evaluate(make_eval(job=job)).plan.empty
    again = view.put_job(make_job(type="batch", count=2, meta={"run": "2"}))
    assert len(view.evaluate(make_eval(job=again)).plan.updates) == 2
    settle(view, again)
    assert sorted((a.job_version, a.client_status) for a in view.wanted()) == [(1, "running")] * 2


def test_a_failed_batch_job_runs_again_when_it_is_forced_to() -> None:
    """B088: `-force-reschedule` starts an allocation that its policy would not."""
    policy = ReschedulePolicy(attempts=0, unlimited=False)
    job = make_job(type="batch", groups=(make_group(reschedule_policy=policy),))
    view = FakeView(make_node(), job=job)
    settle(view, job)
    (failed,) = view.wanted()
    fail(view, failed.id)
    assert view.evaluate(make_eval(job=job)).plan.empty
    view.put_alloc(view.alloc(failed.id), desired_transition=DesiredTransition(force_reschedule=True))
    settle(view, job)
    assert [a.client_status for a in view.wanted() if a.id != failed.id] == ["running"]
