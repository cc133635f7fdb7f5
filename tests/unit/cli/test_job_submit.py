"""What starts from a job file."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import EVALUATION, alloc_stub, evaluation, unplaced

from lepa.model.plan import DesiredUpdates
from lepa.model.wire import to_builtins

TEXT = 'job "web" {\n  group "page" {\n    task "server" {\n      driver = "raw_exec"\n    }\n  }\n}\n'


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "web.nomad.hcl"
    file.write_text(TEXT)
    return str(file)


def registers(agent: FakeAgent, **answer: Any) -> None:
    agent.on("PUT /v1/jobs", {"EvalID": EVALUATION, "JobModifyIndex": 9, "Warnings": "", **answer})
    agent.on(f"GET /v1/evaluation/{EVALUATION}", evaluation())
    agent.on(f"GET /v1/evaluation/{EVALUATION}/allocations", [alloc_stub()])
    agent.on("GET /v1/job/web/deployment", None)


def test_run_sends_the_job_with_its_text(agent: FakeAgent, lepa: Run, path: str) -> None:
    registers(agent)
    assert lepa("run", "-detach", path).out == f"Job registration successful\nEvaluation ID: {EVALUATION}\n"
    body = agent.asked("PUT /v1/jobs")[0].body
    assert body["Job"]["ID"] == "web"
    assert body["Submission"]["Source"] == TEXT
    assert "EnforceIndex" not in body


def test_run_passes_its_flags_on(agent: FakeAgent, lepa: Run, path: str) -> None:
    registers(agent)
    lepa("run", "-detach", "-check-index=0", "-eval-priority", "70", "-preserve-counts", path)
    body = agent.asked("PUT /v1/jobs")[0].body
    assert (body["EnforceIndex"], body["JobModifyIndex"]) == (True, 0)
    assert (body["EvalPriority"], body["PreserveCounts"]) == (70, True)


def test_run_output_submits_nothing(agent: FakeAgent, lepa: Run, path: str) -> None:
    assert json.loads(lepa("run", "-output", path).out)["Job"]["ID"] == "web"
    assert agent.requests == []


def test_a_job_with_holes_is_not_sent(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    """B284: a variable without a value, and a marker that some tool was to fill in, are errors with their place."""
    file = tmp_path / "web.nomad.hcl"
    for text, message in (
        ('variable "nope" {}\n' + TEXT, "Unset variable"),
        (TEXT.replace('"raw_exec"', "[[ .nope ]]"), "4 |       driver = [[ .nope ]]"),
        (TEXT.replace('"raw_exec"', "var.nope"), "Undeclared variable"),
    ):
        file.write_text(text)
        for command in ("run", "plan"):
            found = lepa(command, str(file))
            assert found.code != 0
            assert message in found.error
    assert agent.requests == []


def test_what_is_shown_is_what_is_sent(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    """B288, B289, B290: a default is used, "%i" stays as it is, and what -output shows is what a run submits."""
    file = tmp_path / "web.nomad.hcl"
    template = '      template {\n        data = "${var.greeting} %i %d %%"\n        destination = "local/a"\n      }\n'
    body = TEXT.replace('"raw_exec"\n', '"raw_exec"\n' + template)
    file.write_text('variable "greeting" {\n  default = "hello"\n}\n' + body)
    registers(agent)
    shown = json.loads(lepa("run", "-output", str(file)).out)["Job"]
    assert shown["TaskGroups"][0]["Tasks"][0]["Templates"][0]["EmbeddedTmpl"] == "hello %i %d %%"
    lepa("run", "-detach", str(file))
    assert agent.asked("PUT /v1/jobs")[0].body["Job"] == shown


def test_the_namespace_of_the_file_wins(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    registers(agent)
    file = tmp_path / "other.hcl"
    file.write_text(TEXT.replace('group "page"', 'namespace = "own"\n  group "page"'))
    lepa("run", "-detach", "-namespace=flag", str(file))
    assert agent.asked("PUT /v1/jobs")[0].query["namespace"] == "own"


def test_a_conflicting_index_is_explained(agent: FakeAgent, lepa: Run, path: str) -> None:
    agent.on("PUT /v1/jobs", Reply(500, "Enforcing job modify index 3: job already exists"))
    done = lepa("run", "-check-index", "3", path)
    assert done.code == 1
    assert "plan again" in done.error
    assert lepa("run", "-check-index", "x", path).error.startswith("Error: -check-index is a number")


def test_a_refused_job_is_an_error(agent: FakeAgent, lepa: Run, path: str) -> None:
    agent.on("PUT /v1/jobs", Reply(500, "1 error occurred:\n\t* Task server has no config"))
    done = lepa("run", path)
    assert (done.code, done.error) == (
        1,
        "Error submitting job: 1 error occurred:\n\t* Task server has no config\n",
    )


def test_run_follows_what_it_began(agent: FakeAgent, lepa: Run, path: str) -> None:
    registers(agent, Warnings="1 warning(s):\n\n* odd")
    done = lepa("run", path)
    assert done.code == 0
    assert "* odd\n" in done.out
    assert 'Evaluation "33333333" finished with status "complete"' in done.out


def test_a_periodic_job_tells_when_it_is_due(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    file = tmp_path / "nightly.hcl"
    file.write_text(TEXT.replace('group "page"', 'periodic {\n    crons = ["@daily"]\n  }\n  group "page"'))
    agent.on("PUT /v1/jobs", {"EvalID": "", "JobModifyIndex": 9, "Warnings": ""})
    agent.on("PUT /v1/job/web/plan", {"NextPeriodicLaunch": "2026-05-29T00:00:00Z"})
    assert lepa("run", str(file)).out == (
        "Job registration successful\nApproximate next launch time: 2026-05-29T00:00:00Z (3h33m from now)\n"
    )


# Plan


def planned(**fields: Any) -> dict[str, Any]:
    updates = {"page": to_builtins(DesiredUpdates(place=1))}
    return {
        "Annotations": {"DesiredTGUpdates": updates, "PreemptedAllocs": []},
        "FailedTGAllocs": {},
        "JobModifyIndex": 7,
        "CreatedEvals": [],
        "Diff": {"Type": "Added", "ID": "web", "Fields": [], "Objects": [], "TaskGroups": []},
        "NextPeriodicLaunch": "0001-01-01T00:00:00Z",
        "Warnings": "",
        **fields,
    }


def test_plan_says_what_would_happen(agent: FakeAgent, lepa: Run, path: str, golden: Any) -> None:
    agent.on("PUT /v1/job/web/plan", planned())
    done = lepa("plan", path)
    assert done.code == 1
    golden("plan", done.out.replace(path, "web.nomad.hcl"))


def test_plan_without_differences_has_the_same_exit_code(agent: FakeAgent, lepa: Run, path: str) -> None:
    """B126."""
    agent.on("PUT /v1/job/web/plan", planned())
    with_the_diff = lepa("plan", path).code
    agent.on("PUT /v1/job/web/plan", planned(Diff=None))
    done = lepa("plan", "-diff=false", path)
    assert done.code == with_the_diff == 1
    assert done.out.startswith("Scheduler dry-run:")
    assert [request.body["Diff"] for request in agent.requests] == [True, False]


def test_plan_exits_with_0_when_nothing_is_placed_or_stopped(agent: FakeAgent, lepa: Run, path: str) -> None:
    updates = {"page": to_builtins(DesiredUpdates(ignore=2, in_place_update=1))}
    agent.on("PUT /v1/job/web/plan", planned(Annotations={"DesiredTGUpdates": updates, "PreemptedAllocs": None}))
    assert lepa("plan", path).code == 0


def test_plan_explains_what_has_no_room(agent: FakeAgent, lepa: Run, path: str, golden: Any) -> None:
    evicted = [alloc_stub(JobID="batch")]
    annotations = {**planned()["Annotations"], "PreemptedAllocs": evicted}
    answer = planned(
        FailedTGAllocs={"page": unplaced()},
        Annotations=annotations,
        NextPeriodicLaunch="2026-05-29T00:00:00Z",
        Warnings="1 warning(s):\n\n* odd",
    )
    agent.on("PUT /v1/job/web/plan", answer)
    golden("plan_unplaced", lepa("plan", path).out.replace(path, "web.nomad.hcl"))


def test_a_plan_that_fails_exits_with_255(agent: FakeAgent, lepa: Run, path: str, tmp_path: Path) -> None:
    agent.on("PUT /v1/job/web/plan", Reply(500, "no"))
    assert lepa("plan", path).code == 255
    assert lepa("plan", str(tmp_path / "none")).code == 255
    assert lepa("plan", "-nope", path).code == 255
    assert lepa("plan").code == 255


def test_plan_prints_the_apis_json(agent: FakeAgent, lepa: Run, path: str) -> None:
    agent.on("PUT /v1/job/web/plan", planned())
    assert json.loads(lepa("plan", "-json-output", path).out)["JobModifyIndex"] == 7
    assert lepa("plan", "-t", "{{.JobModifyIndex}}", path).out == "7\n"


# Validate


def test_validate_asks_the_servers(agent: FakeAgent, lepa: Run, path: str) -> None:
    agent.on("PUT /v1/validate/job", {"Error": "", "ValidationErrors": [], "Warnings": ""})
    assert lepa("validate", path).out == "Job validation successful\n"
    problem = {"Error": "2 errors occurred", "ValidationErrors": ["no group", "no task"], "Warnings": ""}
    agent.on("PUT /v1/validate/job", problem)
    done = lepa("validate", path)
    assert (done.code, done.error) == (1, "Job validation errors:\n  * no group\n  * no task\n")


def test_validate_works_without_an_agent(lepa: Run, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEPA_ADDR", "http://127.0.0.1:1")
    done = lepa("validate", path)
    assert done.code == 0
    assert "checked without the servers" in done.out
    empty = tmp_path / "empty.hcl"
    empty.write_text('job "web" {}\n')
    assert lepa("validate", str(empty)).code == 1
