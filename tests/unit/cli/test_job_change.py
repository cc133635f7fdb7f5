"""Changing jobs that the servers know."""

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import DEPLOYMENT, EVALUATION, deployment, evaluation, job, job_stub


@pytest.fixture
def web(agent: FakeAgent) -> FakeAgent:
    """An agent with one job, whose evaluations are complete at once."""
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web", job())
    for call in ("DELETE /v1/job/web", *(f"PUT /v1/job/web/{verb}" for verb in ("revert", "scale", "evaluate"))):
        agent.on(call, {"EvalID": EVALUATION})
    agent.on("PUT /v1/job/web/periodic/force", {"EvalID": EVALUATION})
    agent.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(TriggeredBy="job-deregister"))
    agent.on(f"GET /v1/evaluation/{EVALUATION}/allocations", [])
    return agent


def body_of(agent: FakeAgent, call: str) -> Any:
    return agent.asked(call)[-1].body


def test_stop_stops_and_waits(web: FakeAgent, lepa: Run) -> None:
    done = lepa("job", "stop", "-purge", "-eval-priority=60", "web")
    assert done.code == 0
    assert 'finished with status "complete"' in done.out
    query = web.asked("DELETE /v1/job/web")[0].query
    assert (query["purge"], query["eval_priority"], query["namespace"]) == ("true", "60", "default")


def test_stop_takes_several_jobs(web: FakeAgent, lepa: Run) -> None:
    assert lepa("job", "stop", "-detach", "web", "web").out == f"Evaluation ID: {EVALUATION}\n" * 2


def test_a_prefix_is_not_stopped_unasked(web: FakeAgent, lepa: Run) -> None:
    done = lepa("job", "stop", "we")
    assert (done.code, web.asked("DELETE /v1/job/web")) == (1, [])
    assert "give -yes" in done.error
    assert lepa("job", "stop", "-yes", "-detach", "we").code == 0


@pytest.mark.parametrize(("answer", "stops"), [("y", True), ("n", False), ("", False)])
def test_a_person_is_asked(
    web: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch, answer: str, stops: bool
) -> None:
    monkeypatch.setattr("lepa.cli.job_change.confirmed", lambda question: answer == "y")
    lepa("job", "stop", "-detach", "we")
    assert bool(web.asked("DELETE /v1/job/web")) is stops


def test_start_runs_a_stopped_job_again(web: FakeAgent, lepa: Run) -> None:
    assert lepa("job", "start", "web").error == 'Error: job "web" is not stopped\n'
    web.on("GET /v1/job/web", job(Stop=True))
    web.on("PUT /v1/jobs", {"EvalID": EVALUATION})
    assert lepa("job", "start", "web").code == 0
    assert body_of(web, "PUT /v1/jobs")["Job"]["Stop"] is False


def test_revert_takes_a_version_or_a_tag(web: FakeAgent, lepa: Run) -> None:
    tag = {"Name": "good", "Description": "", "TaggedTime": 1}
    web.on("GET /v1/job/web/versions", {"Versions": [job(Version=3), job(Version=2, VersionTag=tag)]})
    for given in ("2", "good"):
        assert lepa("job", "revert", "-detach", "web", given).code == 0
        assert body_of(web, "PUT /v1/job/web/revert") == {"JobID": "web", "JobVersion": 2}
    assert "has no version 1; kept are 3, 2" in lepa("job", "revert", "web", "1").error
    assert 'has no version tagged "bad"' in lepa("job", "revert", "web", "bad").error


def test_scale_needs_a_group_only_where_there_are_several(web: FakeAgent, lepa: Run) -> None:
    assert lepa("job", "scale", "-detach", "web", "3").code == 0
    body = body_of(web, "PUT /v1/job/web/scale")
    assert (body["Count"], body["Target"]["Group"]) == (3, "page")
    groups = job()["TaskGroups"]
    web.on("GET /v1/job/web", job(TaskGroups=[*groups, {**groups[0], "Name": "other"}]))
    assert "has several groups (page, other)" in lepa("job", "scale", "web", "3").error
    assert lepa("job", "scale", "-detach", "web", "other", "0").code == 0
    for wrong in (("x",), ("a", "b", "3"), ("page", "-1")):
        assert "job scale wants [group] <count>" in lepa("job", "scale", "web", *wrong).error


def test_eval_can_force_what_waits(web: FakeAgent, lepa: Run) -> None:
    assert lepa("job", "eval", "-force-reschedule", "-detach", "web").code == 0
    assert body_of(web, "PUT /v1/job/web/evaluate")["EvalOptions"] == {"ForceReschedule": True}


def test_periodic_jobs_are_forced(web: FakeAgent, lepa: Run) -> None:
    assert lepa("job", "periodic", "force", "-detach", "web").out == f"Evaluation ID: {EVALUATION}\n"


def test_dispatch_sends_payload_and_meta(web: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(b"hello")
    answer = {"DispatchedJobID": "web/dispatch-1", "EvalID": EVALUATION}
    web.on("PUT /v1/job/web/dispatch", answer)
    done = lepa("job", "dispatch", "-detach", "-meta", "a=1", "-meta=b=2", "-idempotency-token=t", "web", str(payload))
    assert done.out == "Dispatched Job ID = web/dispatch-1\nEvaluation ID     = 33333333\n"
    body = body_of(web, "PUT /v1/job/web/dispatch")
    assert (base64.b64decode(body["Payload"]), body["Meta"]) == (b"hello", {"a": "1", "b": "2"})
    assert web.requests[-1].query["idempotency_token"] == "t"
    assert "Monitoring evaluation" in lepa("job", "dispatch", "web").out
    web.on("PUT /v1/job/web/dispatch", {**answer, "EvalID": ""})
    assert lepa("job", "dispatch", "web").out == "Dispatched Job ID = web/dispatch-1\n"


def test_dispatch_refuses_what_is_too_large_or_no_pair(web: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(b"x" * (16 * 1024 + 1))
    assert "Payload exceeds maximum size; 16385 > 16384" in lepa("job", "dispatch", "web", str(payload)).error
    assert "-meta wants key=value" in lepa("job", "dispatch", "-meta", "a", "web").error


def test_promote_promotes_the_latest_deployment(web: FakeAgent, lepa: Run) -> None:
    web.on("GET /v1/job/web/deployment", deployment())
    web.on(f"PUT /v1/deployment/promote/{DEPLOYMENT}", {"EvalID": EVALUATION})
    assert lepa("job", "promote", "-detach", "-group", "page", "web").code == 0
    body = body_of(web, f"PUT /v1/deployment/promote/{DEPLOYMENT}")
    assert (body["All"], body["Groups"]) == (False, ["page"])
    web.on("GET /v1/job/web/deployment", None)
    assert lepa("job", "promote", "web").error == 'Error: job "web" has no deployment\n'


def test_dispatch_may_wait_for_the_end(web: FakeAgent, lepa: Run) -> None:
    answer = {"DispatchedJobID": "web/dispatch-1", "EvalID": ""}
    web.on("PUT /v1/job/web/dispatch", answer)
    web.on("GET /v1/job/web/dispatch-1", job("web/dispatch-1", Status="dead"))
    web.on("GET /v1/job/web/dispatch-1/summary", {"Summary": {"g": {"Failed": 0, "Lost": 0}}})
    done = lepa("job", "dispatch", "-wait", "web")
    assert (done.code, done.out.splitlines()[-1]) == (0, 'Job "web/dispatch-1" finished with 0 failed allocations')
    web.on("GET /v1/job/web/dispatch-1/summary", {"Summary": {"g": {"Failed": 1, "Lost": 0}}})
    assert lepa("job", "dispatch", "-wait", "web").code == 1
