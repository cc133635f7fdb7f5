"""The scheduler's door; and what `lepa.scheduler.view` promises is enough for it (`tests.fake_view`)."""

import subprocess
import sys

import pytest
from tests.builders import make_alloc, make_eval, make_job, make_node, make_resources
from tests.fake_view import FakeView, Ids

from lepa.model.allocation import Allocation
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.process import attempts_max, give_up, process, process_ahead


def run(view: FakeView, columns: NodeColumns, seed: int = 3):  # type: ignore[no-untyped-def]
    job = view.job("default", "web")
    return process(make_eval(job=job), view, now_ns=1, seed=seed, new_id=Ids(), columns=columns)


@pytest.mark.parametrize("job_type", ["service", "batch", "system", "sysbatch"])
def test_each_type_of_job_is_placed(job_type: str) -> None:
    view = FakeView(make_node("n1"), make_node("n2"), job=make_job(type=job_type, count=2))
    assert len(run(view, NodeColumns()).plan.updates) == 2


def test_the_same_arguments_give_the_same_outcome_whatever_the_columns_have_seen() -> None:
    view = FakeView(*(make_node(f"n{i}") for i in range(20)), job=make_job(count=10))
    used = NodeColumns()
    for number in (5, 50):
        other = FakeView(*(make_node(f"n{i}") for i in range(number)), job=make_job(count=3))
        run(other, used)
    assert run(view, used) == run(view, NodeColumns())
    assert run(view, used, seed=4).plan != run(view, used).plan


def test_what_is_under_way_to_a_node_counts_until_it_is_refused() -> None:
    view = FakeView(make_node("n1", cpu=1_000), job=make_job())
    columns = NodeColumns()
    under_way = [make_alloc("a", node_id="n1", allocated_resources=make_resources("web", cpu=950))]

    def placed(*allocs: Allocation) -> int:
        evaluation = make_eval(job=view.job("default", "web"))
        outcome = process_ahead(evaluation, view, allocs, now_ns=1, seed=3, new_id=Ids(), columns=columns)
        return len(outcome.plan.updates)

    assert [placed(), placed(*under_way), placed()] == [1, 0, 1]


def test_giving_up_leaves_a_blocked_evaluation() -> None:
    evaluation = make_eval(job=make_job())
    outcome = give_up(evaluation, FakeView(), now_ns=5, new_id=Ids())
    assert outcome.evaluation.status == "failed"
    assert outcome.evaluation.status_description == "maximum attempts reached (5)"
    (waiting,) = outcome.new_evaluations
    assert (waiting.status, waiting.triggered_by) == ("blocked", "max-plan-attempts")
    assert waiting.status_description == "created due to placement conflicts"
    assert outcome.evaluation.blocked_eval == waiting.id
    assert attempts_max(make_eval(job=make_job(type="batch"))) == 2


def test_reconciling_does_not_load_numpy() -> None:
    modules = "reconcile, feasible, ports, devices, alloc_sets, updates, plan_check"
    code = f"from lepa.scheduler import {modules}; import sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
