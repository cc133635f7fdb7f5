"""Restarting a job's allocations, a batch at a time."""

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, OTHER, alloc_stub, allocation, job, job_stub

from lepa.cli.job_restart import Restarts


@pytest.fixture
def web(agent: FakeAgent) -> FakeAgent:
    """An agent with a job of two running allocations, and one that has ended."""
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web", job())
    ended = alloc_stub("99999999-aaaa-4bbb-8ccc-000000000001", ClientStatus="complete")
    agent.on("GET /v1/job/web/allocations", [alloc_stub(), alloc_stub(OTHER), ended])
    for identifier in (ALLOC, OTHER):
        agent.on(f"PUT /v1/client/allocation/{identifier}/restart", {"Index": 0})
        agent.on(f"PUT /v1/allocation/{identifier}/stop", {"EvalID": "e"})
    return agent


def test_running_allocations_are_restarted_in_place(web: FakeAgent, lepa: Run) -> None:
    done = lepa("job", "restart", "-task", "server", "web")
    assert done.out == (
        'Restarting task \'server\' of allocation "11111111", group "page"\n'
        'Restarting task \'server\' of allocation "11112222", group "page"\n'
    )
    assert web.asked(f"PUT /v1/client/allocation/{ALLOC}/restart")[0].body == {"TaskName": "server", "AllTasks": False}


def test_a_failure_ends_it_unless_told_otherwise(web: FakeAgent, lepa: Run) -> None:
    web.on(f"PUT /v1/client/allocation/{ALLOC}/restart", Reply(500, "task is not running"))
    done = lepa("job", "restart", "web")
    assert (done.code, done.error) == (1, 'Error restarting allocation "11111111": task is not running\n')
    assert web.asked(f"PUT /v1/client/allocation/{OTHER}/restart") == []
    assert lepa("job", "restart", "-on-error=continue", "web").code == 1
    assert len(web.asked(f"PUT /v1/client/allocation/{OTHER}/restart")) == 1


def test_reschedule_waits_for_the_replacement(web: FakeAgent, lepa: Run) -> None:
    for identifier in (ALLOC, OTHER):
        web.on(f"GET /v1/allocation/{identifier}", allocation(identifier, NextAllocation="new"))
    web.on("GET /v1/allocation/new", allocation("new"))
    done = lepa("job", "restart", "-reschedule", "-batch-size=100%", "web")
    assert (done.code, done.out.count("Rescheduling")) == (0, 2)
    web.on("GET /v1/allocation/new", allocation("new", ClientStatus="failed"))
    assert 'its replacement "new" failed' in lepa("job", "restart", "-reschedule", "web").error


@pytest.mark.parametrize("absent", ["JobType", "JobVersion", "TaskStates"])
def test_a_list_that_leaves_things_out_is_enough_to_reschedule(web: FakeAgent, lepa: Run, absent: str) -> None:
    """B134: lists of older servers do not tell the type of a job."""
    bare = {key: value for key, value in alloc_stub().items() if key != absent}
    web.on("GET /v1/job/web/allocations", [bare])
    web.on(f"GET /v1/allocation/{ALLOC}", allocation(NextAllocation="new"))
    web.on("GET /v1/allocation/new", allocation("new"))
    done = lepa("job", "restart", "-reschedule", "web")
    assert (done.code, done.error) == (0, "")
    assert len(web.asked(f"PUT /v1/allocation/{ALLOC}/stop")) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-batch-size=0",), "-batch-size is a number above 0"),
        (("-batch-size=x%",), "-batch-size is a number above 0"),
        (("-batch-wait=x",), "-batch-wait: invalid duration"),
        (("-task=a", "-reschedule"), "-task cannot be combined"),
    ],
)
def test_wrong_flags_are_refused(web: FakeAgent, lepa: Run, flags: tuple[str, ...], message: str) -> None:
    assert message in lepa("job", "restart", *flags, "web").error


def test_nothing_to_restart_is_no_failure(web: FakeAgent, lepa: Run) -> None:
    web.on("GET /v1/job/web/allocations", [])
    assert lepa("job", "restart", "-group", "page", "web").out == "No allocations to restart\n"


def test_what_the_job_does_not_have_is_said_before_anything_is_restarted(web: FakeAgent, lepa: Run) -> None:
    assert 'the job has no group "other"; it has page' in lepa("job", "restart", "-group", "other", "web").error
    assert 'no task "db" is there; the tasks are server' in lepa("job", "restart", "-task", "db", "web").error
    web.on("GET /v1/job/web", job(Type="sysbatch"))
    assert 'type "sysbatch" are not allowed' in lepa("job", "restart", "-reschedule", "web").error


def test_yes_goes_on_after_failures_unless_told_otherwise(web: FakeAgent, lepa: Run) -> None:
    web.on(f"PUT /v1/client/allocation/{ALLOC}/restart", Reply(500, "task is not running"))
    assert lepa("job", "restart", "-yes", "web").code == 1
    assert len(web.asked(f"PUT /v1/client/allocation/{OTHER}/restart")) == 1
    assert lepa("job", "restart", "-yes", "-on-error=fail", "web").code == 1
    assert len(web.asked(f"PUT /v1/client/allocation/{OTHER}/restart")) == 1


Terminal = Callable[..., list[str]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Somebody at a terminal who answers so; what was asked."""

    def answers(*said: str) -> list[str]:
        asked, left = [], list(said)

        def answer(question: str) -> str:
            asked.append(question)
            return left.pop(0)

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr("builtins.input", answer)
        return asked

    return answers


def restarted(web: FakeAgent) -> int:
    return sum(len(web.asked(f"PUT /v1/client/allocation/{each}/restart")) for each in (ALLOC, OTHER))


@pytest.mark.parametrize(("answer", "count"), [("y", 2), ("n", 1), ("", 1), ("10ms", 2)])
def test_one_is_asked_between_batches(web: FakeAgent, lepa: Run, terminal: Terminal, answer: str, count: int) -> None:
    asked = terminal(answer)
    assert lepa("job", "restart", "-batch-wait=ask", "web").code == 0
    assert asked == ["1 of 2 restarted. Go on? [y/N/<wait duration>] "]
    assert restarted(web) == count


@pytest.mark.parametrize(("answer", "code", "count"), [("y", 0, 2), ("n", 1, 1)])
def test_an_interruption_asks_and_may_go_on(
    web: FakeAgent, lepa: Run, terminal: Terminal, answer: str, code: int, count: int
) -> None:
    asked = terminal(answer)
    before = signal.getsignal(signal.SIGINT)
    restart = Restarts.one

    def one(self: Restarts, stub: Any) -> bool:
        well = restart(self, stub)
        if stub["ID"] == ALLOC:
            signal.raise_signal(signal.SIGINT)
        return well

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Restarts, "one", one)
        assert lepa("job", "restart", "web").code == code
    assert asked == ["Interrupted with 1 of 2 restarted. Go on? [y/N/<wait duration>] "]
    assert restarted(web) == count
    assert signal.getsignal(signal.SIGINT) is before


def test_nobody_can_be_asked_in_a_pipe(web: FakeAgent, lepa: Run) -> None:
    web.on(f"PUT /v1/client/allocation/{ALLOC}/restart", {"Index": 1})
    done = lepa("job", "restart", "-batch-wait=ask", "web")
    assert (done.code, "Nobody can be asked here" in done.error) == (1, True)
    assert "-on-error is ask, fail or continue" in lepa("job", "restart", "-on-error=shrug", "web").error
