"""Routes of jobs."""

import threading

import pytest
from tests.builders import make_job

from lepa.api import jobs
from lepa.api.jobs import JOB_FILE_MAX, split_job_path
from lepa.kit.durations import SECOND
from lepa.model.explanation import JobExplanation
from lepa.rpc import requests as r

JOB = {"ID": "web", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]}


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("web", ("web", "")),
        ("web/plan", ("web", "plan")),
        ("parent%2Fdispatch-1", ("parent/dispatch-1", "")),
        ("parent/dispatch-1/allocations", ("parent/dispatch-1", "allocations")),
        ("parent%2Fperiodic-1/summary", ("parent/periodic-1", "summary")),
        ("web/periodic/force", ("web", "periodic/force")),
        ("a%20b/dispatch/payload", ("a b", "dispatch/payload")),
    ],
)
def test_an_id_may_hold_slashes(tail: str, expected: tuple[str, str]) -> None:
    assert split_job_path(tail) == expected


async def test_registering_sends_the_canonical_job(http, parts) -> None:
    parts.caller.answers["Job.Register"] = r.JobRegisterResponse(eval_id="e")
    body = {"job": JOB, "EnforceIndex": True, "JobModifyIndex": 3, "Submission": {"Source": "text", "Format": "hcl2"}}
    answer = await http.put("/v1/jobs?namespace=prod", json=body)
    assert (await answer.json())["EvalID"] == "e"
    asked = parts.caller.last()
    assert (asked.job.id, asked.job.name, asked.job.namespace, asked.job.type) == ("web", "web", "prod", "service")
    assert (asked.enforce_index, asked.job_modify_index, asked.namespace) == (True, 3, "prod")
    assert asked.submission.source == "text"
    assert asked.job.task_groups[0].restart_policy is not None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "Job must be specified"),
        ({"Job": None}, "Job must be specified"),
        ({"Job": {"Name": "x"}}, "Job ID hasn't been provided"),
        ({"Job": 3}, "Job must be a JSON object"),
        ({"Job": JOB | {"Priority": "high"}}, "Priority"),
    ],
)
async def test_bodies_without_a_proper_job_are_refused(http, body: dict[str, object], text: str) -> None:
    answer = await http.put("/v1/jobs", json=body)
    assert answer.status == 400
    assert text in await answer.text()


async def test_the_paths_id_and_the_jobs_have_to_agree(http) -> None:
    answer = await http.put("/v1/job/other", json={"Job": JOB})
    assert (answer.status, await answer.text()) == (400, "Job ID does not match name")


async def test_a_job_file_is_parsed(http) -> None:
    text = 'job "web" {\n group "g" {\n task "t" {\n driver = "raw_exec"\n }\n }\n}\n'
    job = await (await http.post("/v1/jobs/parse", json={"JobHCL": text})).json()
    assert (job["ID"], job["Priority"]) == ("web", None)
    job = await (await http.post("/v1/jobs/parse", json={"JobHCL": text, "Canonicalize": True})).json()
    assert (job["Priority"], job["Type"]) == (50, "service")


async def test_a_broken_job_file_is_told_with_its_place(http) -> None:
    answer = await http.post("/v1/jobs/parse", json={"JobHCL": "job {"})
    assert answer.status == 400
    assert "Failed to parse job: input.hcl:1," in await answer.text()
    assert (await http.post("/v1/jobs/parse", json={"JobHCL": ""})).status == 400


async def test_a_submission_can_be_parsed_again(http) -> None:
    """B094: with its flags as they were given."""
    text = 'variable "n" { type = list(string) }\nvariable "m" {}\njob "x" {\n datacenters = concat(var.n, [var.m])\n}'
    body = {"JobHCL": text, "Variables": 'm = "c"\nn = []', "VariableFlags": {"n": '["a","b"]'}}
    job = await (await http.post("/v1/jobs/parse", json=body)).json()
    assert job["Datacenters"] == ["a", "b", "c"]
    assert (await http.post("/v1/jobs/parse", json={"JobHCL": 'job "x" {}', "VariableFlags": None})).status == 200
    for wrong in ([], {"n": ["a"]}, {"n": "x" * (JOB_FILE_MAX + 1)}):
        answer = await http.post("/v1/jobs/parse", json=body | {"VariableFlags": wrong})
        assert (answer.status, "VariableFlags" in await answer.text()) == (400, True)


@pytest.mark.parametrize("name", ["JobHCL", "Variables"])
async def test_the_text_of_a_job_file_is_bounded(http, name: str) -> None:
    answer = await http.post("/v1/jobs/parse", json={"JobHCL": 'job "x" {}'} | {name: "é" * (JOB_FILE_MAX // 2 + 1)})
    assert (answer.status, await answer.text()) == (
        400,
        f"{name} has {JOB_FILE_MAX + 2} bytes; at most {JOB_FILE_MAX} are parsed here. Parse a larger file locally.",
    )
    answer = await http.post("/v1/jobs/parse", json={"JobHCL": 'job "x" {}'} | {name: 3})
    assert (answer.status, await answer.text()) == (400, f"{name} must be a text, not a number")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("jobs/parse", {"JobHCL": 'job "web" {}', "Canonicalize": True}),
        ("jobs", {"Job": JOB}),
        ("job/web/plan", {"Job": JOB}),
    ],
)
async def test_jobs_are_worked_out_beside_the_event_loop(http, monkeypatch, path: str, body: dict[str, object]) -> None:
    threads: list[int] = []

    def notes_its_thread(work):
        def noting(*arguments, **options):
            threads.append(threading.get_ident())
            return work(*arguments, **options)

        return noting

    monkeypatch.setattr(jobs.jobspec, "parse", notes_its_thread(jobs.jobspec.parse))
    monkeypatch.setattr(jobs.job_rules, "canonicalise", notes_its_thread(jobs.job_rules.canonicalise))
    await http.put(f"/v1/{path}", json=body)
    assert threads
    assert threading.get_ident() not in threads


async def test_a_pattern_that_would_hang_others_is_answered(http) -> None:
    text = 'job "x" {\n meta { a = regex_replace(join("", [for i in range(500) : "aaaa"]), "(a+)+!$", "") }\n}'
    answer = await http.post("/v1/jobs/parse", json={"JobHCL": text})
    assert (await answer.json())["Meta"] == {"a": "a" * 2_000}


async def test_files_cannot_be_read_through_the_api(http) -> None:
    answer = await http.post("/v1/jobs/parse", json={"JobHCL": 'job "x" {\n meta { a = file("/etc/passwd") }\n}'})
    assert answer.status == 400
    assert "root:" not in await answer.text()


async def test_a_missing_job_is_404(http) -> None:
    answer = await http.get("/v1/job/nope")
    assert (answer.status, await answer.text()) == (404, "job not found")
    assert (await http.get("/v1/job/nope/submission?version=0")).status == 404
    assert (await http.get("/v1/job/nope/submission")).status == 400


async def test_validation_answers_200_whatever_it_finds(http, parts) -> None:
    parts.caller.answers["Job.Validate"] = r.JobValidateResponse(error="bad", validation_errors=("bad",))
    answer = await http.put("/v1/validate/job", json={"Job": JOB})
    assert (answer.status, (await answer.json())["Error"]) == (200, "bad")
    answer = await http.put("/v1/validate/job", json={"Job": JOB | {"Priority": "x"}})
    assert answer.status == 200
    assert "Priority" in (await answer.json())["Error"]


async def test_stopping_carries_its_options(http, parts) -> None:
    parts.caller.answers["Job.Deregister"] = r.JobRegisterResponse(eval_id="e")
    await http.delete("/v1/job/a%2Fb?purge=true&eval_priority=70&no_shutdown_delay=1")
    asked = parts.caller.last()
    assert (asked.id, asked.purge, asked.eval_priority, asked.no_shutdown_delay) == ("a/b", True, 70, True)
    assert (await http.delete("/v1/job/a?eval_priority=101")).status == 400
    await http.delete("/v1/job/a?eval_priority=0&purge=false")
    assert (parts.caller.last().eval_priority, parts.caller.last().purge) == (0, False)


async def test_dispatching_takes_a_prefix_for_the_childs_id_beside_a_token(http, parts) -> None:
    """B090: the token in the query or in the body, where python-nomad puts it."""
    parts.caller.answers["Job.Dispatch"] = r.JobDispatchResponse()
    for query, body in (
        ("?idempotency_token=t", {}),
        ("", {"idempotency_token": "t"}),
        ("", {"IdempotencyToken": "t"}),
    ):
        await http.post(f"/v1/job/p/dispatch{query}", json={"IdPrefixTemplate": "run1", **body})
        asked = parts.caller.last()
        assert (asked.id_prefix_template, asked.idempotency_token) == ("run1", "t")


async def test_dispatching_decodes_the_payload_and_bounds_it(http, parts) -> None:
    parts.caller.answers["Job.Dispatch"] = r.JobDispatchResponse()
    await http.post("/v1/job/p/dispatch?idempotency_token=t", json={"Payload": "aGk=", "Meta": {"a": "b"}})
    asked = parts.caller.last()
    assert (asked.id, asked.payload, asked.meta, asked.idempotency_token) == ("p", b"hi", {"a": "b"}, "t")
    answer = await http.post("/v1/job/p/dispatch/payload", data=b"x" * 20_000)
    assert (answer.status, await answer.text()) == (400, "Payload exceeds maximum size; 20000 > 16384")


async def test_scaling_names_its_group(http, parts) -> None:
    parts.caller.answers["Job.Scale"] = r.JobRegisterResponse()
    await http.post("/v1/job/w/scale", json={"Count": 3, "Target": {"Group": "g"}, "Message": "m"})
    asked = parts.caller.last()
    assert (asked.id, asked.group, asked.count, asked.message) == ("w", "g", 3, "m")


async def test_statuses_take_the_wanted_jobs_from_a_body(http, parts) -> None:
    """B142: a wait that is asked for is kept."""
    parts.caller.answers["Job.Statuses"] = ()
    await http.post("/v1/jobs/statuses", json={"Jobs": [{"ID": "a", "Namespace": "n"}]})
    asked = parts.caller.last()
    assert (asked.jobs, asked.namespace) == ((("n", "a"),), "*")
    for verb in ("POST", "GET"):
        body = {"Jobs": [{"ID": "a", "Namespace": "n"}]} if verb == "POST" else None
        await http.request(verb, "/v1/jobs/statuses?index=7&wait=10s", json=body)
        assert (parts.caller.last().index, parts.caller.last().wait_ns) == (7, 10 * SECOND)
    assert (await http.post("/v1/jobs/statuses", json={"Jobs": []})).status == 400


async def test_a_wrong_verb_below_a_job_is_405(http) -> None:
    answer = await http.delete("/v1/job/x/plan")
    assert (answer.status, await answer.text()) == (405, "Invalid method")


async def test_versions_of_an_unknown_job_are_404(http, parts) -> None:
    parts.caller.answers["Job.Versions"] = r.JobVersions()
    assert (await http.get("/v1/job/x/versions")).status == 404
    parts.caller.answers["Job.Versions"] = r.JobVersions(versions=(make_job("x"),))
    assert (await (await http.get("/v1/job/x/versions")).json())["Versions"][0]["ID"] == "x"


async def test_a_version_is_tagged_and_untagged(http, parts) -> None:
    parts.caller.answers["Job.Tag"] = r.JobTagResponse(name="good", tagged_time=5, index=9)
    answer = await http.put("/v1/job/a%2Fb/versions/v%201/tag", json={"Version": 3, "Description": "works"})
    assert (answer.status, (await answer.json())["TaggedTime"]) == (200, 5)
    asked = parts.caller.last()
    assert (asked.id, asked.name, asked.version, asked.description, asked.remove) == ("a/b", "v 1", 3, "works", False)
    await http.post("/v1/job/web/versions/good/tag", json={"Version": 3, "Latest": True})
    assert parts.caller.last().version is None
    await http.delete("/v1/job/web/versions/good/tag")
    assert parts.caller.last().remove
    for body in ({"Version": "x"}, {"Version": -1}, {"Version": True}):
        assert (await http.put("/v1/job/web/versions/good/tag", json=body)).status == 400
    assert (await http.put("/v1/job/web/versions/good/other", json={})).status == 400


async def test_an_explanation_is_asked_for_by_group_and_number_of_nodes(http, parts) -> None:
    parts.caller.answers["Job.Explain"] = JobExplanation(job_id="web")
    answer = await http.get("/v1/job/web/explain?group=g&nodes=7")
    assert (answer.status, (await answer.json())["JobID"]) == (200, "web")
    assert (parts.caller.last().group, parts.caller.last().nodes_max) == ("g", 7)
    assert (await http.get("/v1/job/web/explain?nodes=999999")).status == 400
    parts.caller.answers["Job.Explain"] = None
    assert (await http.get("/v1/job/web/explain")).status == 404
