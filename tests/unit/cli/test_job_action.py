"""`lepa job action`: which command runs where. The conversation itself is `lepa alloc exec`'s."""

from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import ALLOC, alloc_stub, allocation, job_stub

from lepa.cli import job_action

ACTION = {"Name": "warm", "Command": "/bin/echo", "Args": ["hi"], "TaskName": "server", "TaskGroupName": "page"}


@pytest.fixture
def said(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def converse(session: Any, namespace: str, path: str, query: dict[str, str], **options: Any) -> int:
        calls.append((path, query["action"], query["allocID"], query["task"], options["interactive"]))
        return 7

    monkeypatch.setattr(job_action, "converse", converse)
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web/actions", [ACTION])
    agent.on("GET /v1/job/web/allocations", [alloc_stub()])
    agent.on("GET /v1/allocations", [alloc_stub()])
    agent.on(f"GET /v1/allocation/{ALLOC}", allocation())
    return calls


def test_an_action_runs_in_the_newest_allocation_and_its_code_is_the_commands(said: list[Any], lepa: Run) -> None:
    assert lepa("job", "action", "-job=web", "-i=false", "warm").code == 7
    assert said == [("/v1/job/web/action", "warm", ALLOC, "server", False)]


def test_an_allocation_may_be_named(said: list[Any], lepa: Run) -> None:
    assert lepa("action", "-job=web", "-alloc=1111", "warm").code == 7
    assert said[0][2] == ALLOC


def test_what_is_not_there_or_not_clear_is_said(said: list[Any], agent: FakeAgent, lepa: Run) -> None:
    assert 'no action "cool" there; it has warm' in lepa("job", "action", "-job=web", "cool").error
    assert "-job" in lepa("job", "action", "warm").error
    agent.on("GET /v1/job/web/actions", [ACTION, {**ACTION, "TaskName": "other"}])
    assert "page/server, page/other" in lepa("job", "action", "-job=web", "warm").error
    assert lepa("job", "action", "-job=web", "-task=other", "warm").code == 7
    assert said == [("/v1/job/web/action", "warm", ALLOC, "other", True)]
