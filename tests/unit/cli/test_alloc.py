"""Looking at allocations and steering them."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, EVALUATION, NODE, OTHER, alloc_stub, allocation, evaluation, job_stub

from lepa.model.service import CheckQueryResult
from lepa.model.wire import to_builtins

USE = {"Tasks": {"server": {"ResourceUsage": {"CpuStats": {"TotalTicks": 12.4}, "MemoryStats": {"RSS": 20 << 20}}}}}


@pytest.fixture
def placed(agent: FakeAgent) -> FakeAgent:
    """An agent with one running allocation."""
    agent.on("GET /v1/allocations", [alloc_stub()])
    agent.on(f"GET /v1/allocation/{ALLOC}", allocation())
    agent.on(f"GET /v1/client/allocation/{ALLOC}/stats", USE)
    return agent


def test_one_allocation(placed: FakeAgent, lepa: Run, golden: Any) -> None:
    golden("alloc_status", lepa("alloc", "status", "1111").out)


def test_an_allocation_in_short(placed: FakeAgent, lepa: Run, golden: Any) -> None:
    golden("alloc_status_short", lepa("alloc", "status", "-short", "1111").out)


def test_verbose_shows_how_nodes_scored(placed: FakeAgent, lepa: Run) -> None:
    scored = [{"NodeID": NODE, "Scores": {"binpack": 0.5}, "NormScore": 0.5}]
    placed.on(f"GET /v1/allocation/{ALLOC}", allocation(Metrics={"ScoreMetaData": scored}))
    assert "Node      binpack  Final score\n22222222  0.5      0.5" in lepa("alloc", "status", "-verbose", ALLOC).out


def test_a_node_that_cannot_be_asked_hides_only_the_present_use(placed: FakeAgent, lepa: Run) -> None:
    placed.on(f"GET /v1/client/allocation/{ALLOC}/stats", Reply(404, "No path to node"))
    assert "100 MHz  64 MiB  300 MiB" in lepa("alloc", "status", ALLOC).out


def test_replaced_and_evicted_allocations_say_so(placed: FakeAgent, lepa: Run) -> None:
    more = {
        "NextAllocation": OTHER,
        "FollowupEvalID": EVALUATION,
        "PreemptedByAllocation": OTHER,
        "RescheduleTracker": {"Events": [{}]},
    }
    placed.on(f"GET /v1/allocation/{ALLOC}", allocation(**more))
    out = lepa("alloc", "status", ALLOC).out
    for line in ("Replacement Alloc ID", "Reschedule Eval ID", "Reschedule Attempts  = 1", "Evicted By"):
        assert line in out


def test_all_allocations_are_printed_as_json(placed: FakeAgent, lepa: Run) -> None:
    assert json.loads(lepa("alloc", "status", "-json").out)[0]["ID"] == ALLOC
    assert "which allocation?" in lepa("alloc", "status").error


def test_stop_follows_the_evaluation(placed: FakeAgent, lepa: Run) -> None:
    placed.on(f"PUT /v1/allocation/{ALLOC}/stop", {"EvalID": EVALUATION})
    placed.on(f"GET /v1/evaluation/{EVALUATION}", evaluation(TriggeredBy="alloc-stop"))
    placed.on(f"GET /v1/evaluation/{EVALUATION}/allocations", [])
    assert lepa("alloc", "stop", "-detach", "1111").out == f"Evaluation ID: {EVALUATION}\n"
    assert 'finished with status "complete"' in lepa("alloc", "stop", "-no-shutdown-delay", "1111").out
    assert placed.asked(f"PUT /v1/allocation/{ALLOC}/stop")[1].query["no_shutdown_delay"] == "true"


def test_restart_and_signal_name_the_task(placed: FakeAgent, lepa: Run) -> None:
    restart, signal = (f"/v1/client/allocation/{ALLOC}/{verb}" for verb in ("restart", "signal"))
    placed.on(f"PUT {restart}", {"Index": 0})
    placed.on(f"PUT {signal}", {"Index": 0})
    for words, body in (
        (("restart", "1111"), {"TaskName": "", "AllTasks": False}),
        (("restart", "1111", "server"), {"TaskName": "server", "AllTasks": False}),
        (("restart", "-all-tasks", "1111"), {"TaskName": "", "AllTasks": True}),
        (("signal", "1111"), {"Signal": "SIGKILL", "Task": ""}),
        (("signal", "-s", "SIGHUP", "-task=server", "1111"), {"Signal": "SIGHUP", "Task": "server"}),
    ):
        assert lepa("alloc", *words).code == 0
        assert placed.requests[-1].body == body
    assert lepa("alloc", "restart", "1111", "nope").error == (
        'Error: allocation "11111111" has no task "nope"; it has server\n'
    )
    assert "cannot be named together" in lepa("alloc", "restart", "-all-tasks", "1111", "server").error


def test_checks_are_a_table(placed: FakeAgent, lepa: Run, golden: Any) -> None:
    result = CheckQueryResult(service="web", check="alive", mode="healthiness", status="success", output="ok (200)")
    placed.on(f"GET /v1/client/allocation/{ALLOC}/checks", {"x": to_builtins(result)})
    golden("alloc_checks", lepa("alloc", "checks", "-verbose", "1111").out)
    placed.on(f"GET /v1/client/allocation/{ALLOC}/checks", {})
    assert lepa("alloc", "checks", "1111").out == "No checks found\n"


def test_a_job_stands_for_its_newest_running_allocation(placed: FakeAgent, lepa: Run) -> None:
    placed.on("GET /v1/jobs", [job_stub()])
    ended = alloc_stub(OTHER, ClientStatus="complete", CreateIndex=99)
    placed.on("GET /v1/job/web/allocations", [alloc_stub(), ended])
    placed.on(f"GET /v1/client/fs/logs/{ALLOC}", Reply(chunks=(b"hi\n",)))
    assert lepa("logs", "-job", "web").out == "hi\n"
    assert "no running allocations in group" in lepa("logs", "-job", "-group=other", "web").error
    assert "-group is for -job" in lepa("logs", "-group=page", "1111").error


def test_one_of_several_tasks_has_to_be_named(placed: FakeAgent, lepa: Run) -> None:
    made = allocation()
    tasks = made["Job"]["TaskGroups"][0]["Tasks"]
    made["Job"]["TaskGroups"][0]["Tasks"] = [*tasks, {**tasks[0], "Name": "side"}]
    placed.on(f"GET /v1/allocation/{ALLOC}", made)
    assert "has several tasks: name one of server, side" in lepa("logs", "1111").error
