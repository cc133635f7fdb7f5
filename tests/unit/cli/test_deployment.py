"""Deployments."""

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import DEPLOYMENT, EVALUATION, alloc_stub, deployment, evaluation


@pytest.fixture
def deploying(agent: FakeAgent) -> FakeAgent:
    """An agent with one deployment under way."""
    agent.on("GET /v1/deployments", [deployment()])
    agent.on(f"GET /v1/deployment/{DEPLOYMENT}", deployment("failed"))
    for verb in ("fail", "pause", "promote"):
        agent.on(f"PUT /v1/deployment/{verb}/{DEPLOYMENT}", {"EvalID": EVALUATION, "RevertedJobVersion": None})
    agent.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(TriggeredBy="deployment-watcher"))
    agent.on(f"GET /v1/evaluation/{EVALUATION}/allocations", [])
    return agent


def test_the_list_and_one(deploying: FakeAgent, lepa: Run) -> None:
    assert lepa("deployment", "list").out.split("\n")[1].split()[:4] == ["44444444", "web", "1", "running"]
    assert lepa("deployment", "status", "4444").out.startswith("ID          = 44444444")
    assert lepa("deployment", "status", "-t", "{{.Status}}", "4444").out == "running\n"
    deploying.on(f"GET /v1/deployment/allocations/{DEPLOYMENT}", [alloc_stub()])
    assert "Allocations\n" in lepa("deployment", "status", "-verbose", "4444").out
    assert "which deployment?" in lepa("deployment", "status").error
    deploying.on("GET /v1/deployments", [])
    assert lepa("deployment", "list").out == "No deployments found\n"


def test_monitoring_a_failure_is_exit_code_1(deploying: FakeAgent, lepa: Run) -> None:
    assert lepa("deployment", "status", "-monitor", "-wait=1s", "4444").code == 1
    assert "-wait: invalid duration" in lepa("deployment", "status", "-monitor", "-wait=x", "4444").error
    assert "longer than nothing" in lepa("deployment", "status", "-monitor", "-wait=0s", "4444").error


def test_fail_tells_where_the_job_returns_to(deploying: FakeAgent, lepa: Run) -> None:
    assert lepa("deployment", "fail", "4444").code == 0
    deploying.on(f"PUT /v1/deployment/fail/{DEPLOYMENT}", {"EvalID": EVALUATION, "RevertedJobVersion": 0})
    out = lepa("deployment", "fail", "-detach", "4444").out
    assert out == f'Deployment "44444444" failed; back to version 0\nEvaluation ID: {EVALUATION}\n'


def test_pause_and_resume_are_one_call(deploying: FakeAgent, lepa: Run) -> None:
    assert lepa("deployment", "pause", "4444").out == 'Deployment "44444444" paused\n'
    assert lepa("deployment", "resume", "-detach", "4444").code == 0
    bodies = [each.body["Pause"] for each in deploying.asked(f"PUT /v1/deployment/pause/{DEPLOYMENT}")]
    assert bodies == [True, False]


def test_promote_takes_all_groups_or_some(deploying: FakeAgent, lepa: Run) -> None:
    lepa("deployment", "promote", "-detach", "4444")
    lepa("deployment", "promote", "-detach", "-group=a", "-group=b", "4444")
    bodies = [each.body for each in deploying.asked(f"PUT /v1/deployment/promote/{DEPLOYMENT}")]
    assert [(body["All"], body["Groups"]) for body in bodies] == [(True, []), (False, ["a", "b"])]


def test_nothing_waits_for_other_regions(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/deployments", [deployment()])
    agent.on(f"PUT /v1/deployment/unblock/{DEPLOYMENT}", Reply(400, "can't unblock deployment"))
    assert lepa("deployment", "unblock", "4444").error == "Error: can't unblock deployment\n"
    shown = lepa("deployment", "status", "-ui", "4444").error
    assert f"{agent.address}/ui/jobs/{deployment()['JobID']}@default" in shown
