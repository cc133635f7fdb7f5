"""Restarting a job's allocations, a batch at a time."""

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, OTHER, alloc_stub, allocation, job_stub


@pytest.fixture
def web(agent: FakeAgent) -> FakeAgent:
    """An agent with a job of two running allocations, and one that has ended."""
    agent.on("GET /v1/jobs", [job_stub()])
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
    assert lepa("job", "restart", "-group", "other", "web").out == "No allocations to restart\n"


def test_nobody_can_be_asked_in_a_pipe(web: FakeAgent, lepa: Run) -> None:
    web.on(f"PUT /v1/client/allocation/{ALLOC}/restart", {"Index": 1})
    done = lepa("job", "restart", "-batch-wait=ask", "web")
    assert (done.code, "Nobody can be asked here" in done.error) == (1, True)
    assert "-on-error is ask, fail or continue" in lepa("job", "restart", "-on-error=shrug", "web").error
