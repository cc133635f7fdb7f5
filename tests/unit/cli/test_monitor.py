"""Following an evaluation and its deployment."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import (
    DEPLOYMENT,
    EVALUATION,
    alloc_stub,
    deployment,
    evaluation,
    job_stub,
    unplaced,
)

from lepa.cli import session as sessions
from lepa.cli.terminal import Terminal

STOP = ("job", "stop", "web")
NEXT = EVALUATION.replace("33333333", "55555555")


def one_after_another(*answers: Any) -> Callable[[object], Any]:
    """Each answer once, the last one for ever."""
    left: Iterator[Any] = iter(answers)
    current = [None]

    def answer(_: object) -> Any:
        current[0] = next(left, current[0])
        return current[0]

    return answer


@pytest.fixture
def stopping(agent: FakeAgent) -> FakeAgent:
    """An agent with a job to stop, whose evaluation is followed."""
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("DELETE /v1/job/web", {"EvalID": EVALUATION})
    agent.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(TriggeredBy="job-deregister"))
    agent.on(f"GET /v1/evaluation/{EVALUATION}/allocations", [])
    return agent


def test_the_whole_story_in_a_pipe(stopping: FakeAgent, lepa: Run, golden: Any) -> None:
    stopping.on(
        f"GET /v1/evaluation/{EVALUATION}",
        one_after_another(evaluation("pending"), evaluation(DeploymentID=DEPLOYMENT)),
    )
    stopping.on(f"GET /v1/evaluation/{EVALUATION}/allocations", one_after_another([], [alloc_stub()]))
    stopping.on(
        f"GET /v1/deployment/{DEPLOYMENT}",
        one_after_another(deployment(), deployment(), deployment("successful")),
    )
    done = lepa(*STOP)
    assert done.code == 0
    golden("monitor", done.out)


def test_a_failed_deployment_is_exit_code_1(stopping: FakeAgent, lepa: Run) -> None:
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(DeploymentID=DEPLOYMENT))
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", deployment("failed"))
    assert lepa(*STOP).code == 1


def test_no_room_is_exit_code_2(stopping: FakeAgent, lepa: Run) -> None:
    failed = evaluation(FailedTGAllocs={"page": unplaced()}, BlockedEval=NEXT, TriggeredBy="job-deregister")
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", failed)
    done = lepa(*STOP)
    assert done.code == 2
    assert 'Task Group "page" (failed to place 2 allocations):' in done.out
    assert 'Evaluation "55555555" waiting for additional capacity to place remainder' in done.out


def test_no_room_at_first_is_forgiven_when_the_deployment_succeeds(stopping: FakeAgent, lepa: Run) -> None:
    failed = evaluation(FailedTGAllocs={"page": unplaced()}, DeploymentID=DEPLOYMENT)
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", failed)
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", one_after_another(deployment(), deployment("successful")))
    assert lepa(*STOP).code == 0


def test_a_failed_evaluation_is_exit_code_1(stopping: FakeAgent, lepa: Run) -> None:
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation("failed", StatusDescription="too many tries"))
    assert lepa(*STOP).code == 1


def test_the_next_evaluation_is_followed(stopping: FakeAgent, lepa: Run) -> None:
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(NextEval=NEXT, TriggeredBy="job-deregister"))
    stopping.on(f"GET /v1/evaluation/{NEXT}", evaluation("canceled", ID=NEXT))
    stopping.on(f"GET /v1/evaluation/{NEXT}/allocations", [])
    done = lepa(*STOP)
    assert done.code == 1
    assert 'Monitoring evaluation "55555555"' in done.out


def test_the_deployment_of_a_new_version_is_found_by_the_job(stopping: FakeAgent, lepa: Run) -> None:
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation())
    stopping.on("GET /v1/job/web/deployment", deployment("failed"))
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", deployment("failed"))
    assert lepa(*STOP).code == 1
    older = {**deployment("failed"), "JobModifyIndex": 2}
    stopping.on("GET /v1/job/web/deployment", older)
    assert lepa(*STOP).code == 0


def test_a_terminal_is_drawn_over(stopping: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Terminal(sys.stdout, sys.stderr, colour=True, live=True)
    monkeypatch.setattr(sessions, "terminal", lambda **_: live)
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(DeploymentID=DEPLOYMENT))
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", one_after_another(deployment(), deployment("successful")))
    done = lepa(*STOP)
    assert done.code == 0
    assert 'Deployment "44444444" successful' in done.out
    assert "… Deployment" not in done.out.split("successful")[-1]


def test_a_terminal_is_drawn_again_only_when_something_changed(
    stopping: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    live = Terminal(sys.stdout, sys.stderr, colour=True, live=True)
    monkeypatch.setattr(sessions, "terminal", lambda **_: live)
    monkeypatch.setattr("rich.live.Live.update", lambda _, text, refresh: drawn.append(text.plain))
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(DeploymentID=DEPLOYMENT))
    same = [deployment()] * 5
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", one_after_another(*same, deployment("successful")))
    assert lepa(*STOP).code == 0
    assert [text.split()[0] for text in drawn] == ["…", "✓"]


def test_who_leaves_a_deployment_is_told_that_it_goes_on(
    stopping: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_: float) -> None:
        raise KeyboardInterrupt

    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(DeploymentID=DEPLOYMENT))
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", deployment())
    monkeypatch.setattr(sessions, "open_session", lambda nomad, out: sessions.Session(nomad, out, sleep=leave))
    done = lepa(*STOP)
    assert done.code == 130
    assert "The deployment goes on; follow it again with `lepa deployment status -monitor 44444444`" in done.error


def test_a_deployment_tells_why_allocations_are_unhealthy(stopping: FakeAgent, lepa: Run) -> None:
    state = {"Failed": True, "Events": [{"Type": "Terminated", "DisplayMessage": "Exit Code: 1"}]}
    failed = alloc_stub(DeploymentStatus={"Healthy": False}, TaskStates={"web": state})
    stopping.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(DeploymentID=DEPLOYMENT))
    stopping.on(f"GET /v1/deployment/{DEPLOYMENT}", deployment("failed", unhealthy_allocs=1))
    stopping.on(f"GET /v1/deployment/allocations/{DEPLOYMENT}", [failed, alloc_stub()])
    done = lepa(*STOP)
    assert (done.code, done.out.count('Allocation "11111111", task "web": Exit Code: 1')) == (1, 1)
