"""Looking at jobs."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import NOW_NS, Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import alloc_stub, deployment, evaluation, job, job_stub, summary, unplaced

from lepa.kit.durations import SECOND, rfc3339


@pytest.fixture
def web(agent: FakeAgent) -> FakeAgent:
    """An agent with one service job."""
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web", job())
    agent.on("GET /v1/job/web/summary", summary())
    agent.on("GET /v1/job/web/evaluations", [evaluation()])
    agent.on("GET /v1/job/web/deployment", deployment())
    agent.on("GET /v1/job/web/deployments", [deployment()])
    agent.on("GET /v1/job/web/allocations", [alloc_stub()])
    return agent


def test_the_list_of_jobs(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    stopped = job_stub("old", Status="dead", Stop=True)
    nightly = job_stub("nightly", Type="batch", Periodic=True, Namespace="ops")
    agent.on("GET /v1/jobs", [job_stub(), nightly, stopped])
    golden("job_list", lepa("job", "status").out)
    assert lepa("job", "status", "-namespace", "*").out.split("\n")[2].split()[:2] == ["nightly", "ops"]


def test_no_jobs_are_a_sentence(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [])
    assert lepa("job", "status").out == "No running jobs\n"


def test_one_job(web: FakeAgent, lepa: Run, golden: Any) -> None:
    golden("job_status", lepa("job", "status", "-evals", "web").out)
    assert "Allocations" not in lepa("job", "status", "-short", "web").out
    lepa("job", "status", "-all-allocs", "web")
    assert web.asked("GET /v1/job/web/allocations")[-1].query["all"] == "true"


def test_a_template_shapes_one_job(web: FakeAgent, lepa: Run) -> None:
    """B130."""
    done = lepa("job", "status", "-t", "{{.ID}}", "web")
    assert (done.code, done.out, done.error) == (0, "web\n", "")


def test_what_waits_for_room_is_explained_once(web: FakeAgent, lepa: Run) -> None:
    failed = evaluation(FailedTGAllocs={"page": unplaced(), "other": unplaced()})
    web.on("GET /v1/job/web/evaluations", [failed, evaluation("blocked", ID="5")])
    out = lepa("job", "status", "web").out
    assert out.count("Placement Failure\n") == 1
    assert out.count('Dimension "memory" exhausted') == 2


def test_groups_that_are_rescheduled_later_have_one_header(web: FakeAgent, lepa: Run) -> None:
    """B135."""
    follow_ups = [
        evaluation("pending", ID=f"{number}" * 8 + "-x", WaitUntil=rfc3339(NOW_NS + number * 30 * SECOND))
        for number in (1, 2, 3)
    ]
    past = evaluation(ID="past", WaitUntil=rfc3339(NOW_NS - SECOND))
    web.on("GET /v1/job/web/evaluations", [past, *follow_ups])
    failed = [
        alloc_stub(f"{group}-{number}", TaskGroup=group, ClientStatus="failed", FollowupEvalID=follow_up["ID"])
        for group, follow_up in zip("abc", follow_ups, strict=True)
        for number in range(2)
    ]
    web.on("GET /v1/job/web/allocations", [*failed, alloc_stub(FollowupEvalID="past"), alloc_stub()])
    out = lepa("job", "status", "web").out
    assert out.count("Future Rescheduling Attempts\n") == out.count("Eval Time") == 1
    assert (
        "Future Rescheduling Attempts\n"
        "Task Group  Eval ID   Eval Time\n"
        "a           11111111  30s from now\n"
        "b           22222222  1m from now\n"
        "c           33333333  1m30s from now\n"
    ) in out
    web.on("GET /v1/job/web/evaluations", [past])
    assert "Rescheduling" not in lepa("job", "status", "web").out


def test_what_waits_no_more_is_not_explained(web: FakeAgent, lepa: Run) -> None:
    """B012: a later evaluation placed everything and the blocked one was canceled."""
    failed = evaluation(FailedTGAllocs={"page": unplaced()})
    web.on("GET /v1/job/web/evaluations", [failed, evaluation("canceled", ID="5"), evaluation(ID="6")])
    assert "Placement Failure" not in lepa("job", "status", "web").out


def test_a_parent_shows_its_children(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    parent = job_stub("nightly", Periodic=True)
    child = job_stub("nightly/periodic-1", Status="dead")

    def listed(request: Any) -> Any:
        return (
            [child]
            if request.query["prefix"] == "nightly/periodic-"
            else [parent] * (request.query["prefix"] == "nightly")
        )

    agent.on("GET /v1/jobs", listed)
    agent.on("GET /v1/job/nightly", job("nightly", Periodic={"Enabled": True}))
    agent.on("GET /v1/job/nightly/summary", {"Children": {"Pending": 0, "Running": 1, "Dead": 4}})
    golden("job_status_periodic", lepa("job", "status", "nightly").out)


def test_allocations_and_deployments_of_a_job(web: FakeAgent, lepa: Run) -> None:
    assert lepa("job", "allocs", "web").out.split("\n")[1].startswith("11111111  22222222  page")
    assert lepa("job", "deployments", "web").out.split("\n")[1].split()[:4] == ["44444444", "web", "1", "running"]
    assert "Deployed" in lepa("job", "deployments", "-latest", "web").out
    assert json.loads(lepa("job", "deployments", "-json", "web").out)[0]["JobID"] == "web"
    web.on("GET /v1/job/web/deployments", [])
    assert lepa("job", "deployments", "web").out == "No deployments found\n"


def test_inspect_prints_the_job_or_its_file(web: FakeAgent, lepa: Run) -> None:
    assert json.loads(lepa("inspect", "web").out)["Job"]["ID"] == "web"
    assert lepa("job", "inspect", "-t", "{{.ID}}", "web").out == "web\n"
    submission = {"Source": "job {}\n", "VariableFlags": {"n": "1"}, "Variables": "m = 2\n"}
    web.on("GET /v1/job/web/submission", submission)
    assert lepa("job", "inspect", "-hcl", "web").out == "job {}\n\n"
    web.on("GET /v1/job/web/submission", Reply(404, "job source not found"))
    assert "was not kept with it" in lepa("job", "inspect", "-hcl", "web").error


def test_inspect_prints_values_as_a_variable_file_has_them(web: FakeAgent, lepa: Run) -> None:
    """B094, B095."""
    source = 'variable "s" { type = string }\nvariable "l" { type = list(string) }\nvariable "n" {}\njob "web" {}\n'
    flags = {"s": "a\nb", "l": '["a", "b"]'}
    web.on("GET /v1/job/web/submission", {"Source": source, "VariableFlags": flags, "Variables": "n = 1\ns = 5\n"})
    out = lepa("job", "inspect", "-hcl", "-with-vars", "web").out
    assert out.endswith('# Variables\nl = ["a", "b"]\nn = 1\ns = "a\\nb"\n')
    web.on("GET /v1/job/web/submission", {"Source": "not {", "VariableFlags": {"n": "1"}, "Variables": "m = 2\n"})
    assert lepa("job", "inspect", "-hcl", "-with-vars", "web").out.endswith("# Variables\nm = 2\nn = 1\n")


def test_history_tells_versions_and_differences(web: FakeAgent, lepa: Run, golden: Any) -> None:
    tag = {"Name": "good", "Description": "works", "TaggedTime": 1}
    versions = [job(Version=1, Stable=True, VersionTag=tag), job(Version=0)]
    field = {"Type": "Edited", "Name": "Priority", "Old": "50", "New": "60", "Annotations": None}
    diff = {"Type": "Edited", "ID": "web", "Fields": [field], "Objects": None, "TaskGroups": None}
    web.on("GET /v1/job/web/versions", {"Versions": versions, "Diffs": [diff]})
    golden("job_history", lepa("job", "history", "-p", "web").out)
    assert web.requests[-1].query["diffs"] == "true"
    assert lepa("job", "history", "-version", "0", "-t", "{{len .}}", "web").out == "1\n"
    assert lepa("job", "history", "-version", "7", "web").error == "Error: version 7 is not kept; kept are 1, 0\n"
    assert '"ID": "web"' in lepa("job", "history", "-full", "web").out
    assert lepa("job", "inspect", "-version", "9", "web").error.endswith("kept are 1, 0\n")
