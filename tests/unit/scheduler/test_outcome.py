"""How an evaluation is closed."""

from tests.builders import make_eval, make_group, make_job, make_node
from tests.fake_view import FakeView

from lepa.model.constraint import Constraint


def test_everything_placed_completes_the_evaluation() -> None:
    job = make_job(count=2)
    outcome = FakeView(make_node(), job=job).evaluate(make_eval(job=job))
    assert outcome.evaluation.status == "complete"
    assert outcome.evaluation.queued_allocations == {"web": 0}
    assert outcome.evaluation.failed_tg_allocs == {}
    assert outcome.new_evaluations == ()


def test_what_could_not_be_placed_waits_in_a_blocked_evaluation() -> None:
    job = make_job(count=5)
    view = FakeView(make_node(cpu=250, computed_class="v1:c"), job=job)
    done, (waiting,) = view.evaluate(make_eval(job=job)).evaluation, tuple(view.evaluations.values())[1:]
    assert done.status == "complete"
    assert done.blocked_eval == waiting.id
    assert done.queued_allocations == {"web": 3}
    assert done.failed_tg_allocs["web"].coalesced_failures == 2
    assert (waiting.status, waiting.triggered_by, waiting.previous_eval) == ("blocked", "queued-allocs", done.id)
    assert waiting.status_description == "created to place remaining allocations"
    assert waiting.class_eligibility == {"v1:c": True}
    assert waiting.queued_allocations == {"web": 3}
    assert waiting.snapshot_index == done.snapshot_index


def test_a_blocked_evaluation_that_fails_again_waits_again() -> None:
    job = make_job(count=5)
    view = FakeView(make_node(cpu=250), job=job)
    view.evaluate(make_eval(job=job))
    blocked = next(e for e in view.evaluations.values() if e.status == "blocked")
    outcome = view.evaluate(blocked)
    assert outcome.new_evaluations == ()
    assert (outcome.evaluation.id, outcome.evaluation.status) == (blocked.id, "blocked")
    assert outcome.evaluation.previous_eval == blocked.previous_eval
    view.put_node(make_node("more"))
    outcome = view.evaluate(blocked)
    assert outcome.evaluation.status == "complete"
    assert outcome.evaluation.queued_allocations == {"web": 0}


def test_constraints_on_unique_properties_escape_classes() -> None:
    group = make_group(constraints=(Constraint(ltarget="${node.unique.name}", operand="=", rtarget="x"),))
    job = make_job(groups=(group,))
    view = FakeView(make_node(), job=job)
    (waiting,) = view.evaluate(make_eval(job=job)).new_evaluations
    assert waiting.escaped_computed_class


def test_annotations_are_made_when_they_are_asked_for() -> None:
    job = make_job(count=2)
    view = FakeView(make_node(), job=job)
    assert view.evaluate(make_eval(job=job), apply=False).evaluation.plan_annotations is None
    outcome = view.evaluate(make_eval(job=job, annotate_plan=True), apply=False)
    assert outcome.evaluation.plan_annotations is not None
    assert outcome.evaluation.plan_annotations["DesiredTGUpdates"]["web"]["Place"] == 2
    assert outcome.evaluation.plan_annotations["PreemptedAllocs"] == []
