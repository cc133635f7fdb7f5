"""When a job is pending, running or dead."""

import pytest
from tests.builders import make_alloc, make_eval, make_group, make_job

from lepa.model.policies import ParameterizedJobConfig, PeriodicConfig
from lepa.state.job_tally import JobTally, TallyEdit, group_summaries, job_status


def tally(*client_statuses: str, evals: tuple[str, ...] = (), desired: str = "run") -> JobTally:
    edit = TallyEdit(JobTally())
    for at, status in enumerate(client_statuses):
        edit.count_allocation(make_alloc(f"a{at}", client_status=status, desired_status=desired), 1)
    for status in evals:
        edit.count_evaluation(make_eval(status=status), 1)
    return edit.finish()


@pytest.mark.parametrize(
    ("job", "counts", "status"),
    [
        (make_job(), tally(), "pending"),
        (make_job(), tally(evals=("pending",)), "pending"),
        (make_job(), tally(evals=("blocked",)), "pending"),
        (make_job(), tally("pending"), "running"),
        (make_job(), tally("running", "failed", evals=("complete",)), "running"),
        (make_job(), tally("unknown"), "running"),
        (make_job(), tally("failed", evals=("pending",)), "pending"),
        (make_job(), tally("complete", "failed", "lost", evals=("complete", "failed", "canceled")), "dead"),
        (make_job(), tally(evals=("complete",)), "dead"),
        (make_job(), tally("running", desired="stop", evals=("complete",)), "dead"),
        (make_job(stop=True), tally(evals=("pending",)), "dead"),
        (make_job(stop=True), tally("running"), "running"),
        (make_job(type="system"), tally(), "running"),
        (make_job(type="system", stop=True), tally(), "dead"),
        (make_job(periodic=PeriodicConfig()), tally(), "running"),
        (make_job(parameterized_job=ParameterizedJobConfig()), tally(), "running"),
        (make_job(parameterized_job=ParameterizedJobConfig(), stop=True), tally(), "dead"),
        (make_job(parameterized_job=ParameterizedJobConfig(), dispatched=True), tally("complete"), "dead"),
    ],
)
def test_status_follows_from_what_is_there(job: object, counts: JobTally, status: str) -> None:
    assert job_status(job, counts) == status  # type: ignore[arg-type]


def test_counting_and_taking_away_leaves_nothing() -> None:
    edit = TallyEdit(tally("running", "failed", evals=("pending",)))
    for at, status in enumerate(("running", "failed")):
        edit.count_allocation(make_alloc(f"a{at}", client_status=status), -1)
    edit.count_evaluation(make_eval(status="pending"), -1)
    assert edit.finish() == JobTally()


def test_a_summary_has_all_groups_and_what_is_left_of_others() -> None:
    job = make_job(groups=(make_group("web"), make_group("db")))
    edit = TallyEdit(JobTally())
    edit.count_allocation(make_alloc("a", task_group="web", client_status="pending"), 1)
    edit.count_allocation(make_alloc("b", task_group="old", client_status="complete"), 1)
    summaries = group_summaries(job, edit.finish(), {"db": 2})
    assert list(summaries) == ["web", "db", "old"]
    assert (summaries["web"].starting, summaries["db"].queued, summaries["old"].complete) == (1, 2, 1)
