"""`lepa top`: what it asks, what it shows, and its screen under keys.

Covers lepa.cli.top, lepa.cli.top_view and lepa.cli.top_app.
"""

from typing import Any

import pytest
from tests.unit.cli import objects
from tests.unit.cli.conftest import NOW_NS, Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, NODE, OTHER, alloc_stub, job_stub, node, node_stub
from textual.widgets import DataTable, Static

from lepa.cli import top_view as view
from lepa.cli.top_app import TopApp
from lepa.model.errors import LepaError
from lepa.model.wire import to_builtins

USE = {
    "ResourceUsage": {"CpuStats": {"TotalTicks": 42.4}, "MemoryStats": {"Usage": 10 * view.MIB}},
}


def stub(identifier: str = ALLOC, **fields: Any) -> dict[str, Any]:
    return {**alloc_stub(identifier), "AllocatedResources": to_builtins(objects.GIVEN), **fields}


def look(**changes: Any) -> view.Look:
    made = node()
    listed = {**node_stub(), "NodeResources": made["NodeResources"], "ReservedResources": made["ReservedResources"]}
    first = view.Look(
        nodes=[listed],
        jobs=[job_stub(), job_stub("old", Status="dead")],
        allocations=[stub(), stub(OTHER), stub("ended", ClientStatus="complete")],
        hosts={NODE: {"CPUTicksConsumed": 300, "Memory": {"Used": view.MIB, "Total": 4 * view.MIB}}},
        usages={OTHER: USE},
        leader="10.0.0.1:4647",
        now_ns=NOW_NS,
    )
    return first._replace(**changes)


def test_what_uses_most_comes_first_and_what_has_ended_is_left_out() -> None:
    rows = view.allocation_rows(look())
    assert [row[0] for row in rows] == [OTHER[:8], ALLOC[:8]]
    assert rows[0][5:7] == ("42/100 MHz", "10.0 MiB/64.0 MiB")
    assert rows[1][5:7] == ("-/100 MHz", "-/64.0 MiB")
    assert [row[0] for row in view.job_rows(look())] == ["web"]


def test_nodes_tell_what_was_given_and_what_is_used() -> None:
    (row,) = view.node_rows(look())
    assert row[5] == "2"
    assert row[6].startswith("200/")
    assert (row[7], row[9]) == ("300 MHz", "1.0 MiB/4.0 MiB")
    (silent,) = view.node_rows(look(hosts={}))
    assert (silent[7], silent[9]) == ("-", "-")


def test_jobs_with_trouble_come_first() -> None:
    unplaced = job_stub("zebra", JobSummary={"Summary": {"g": {"Queued": 2}}})
    assert [row[0] for row in view.job_rows(look(jobs=[job_stub(), unplaced]))] == ["zebra", "web"]


def test_one_look_is_printed_in_a_pipe(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    whole = look()
    agent.on("GET /v1/nodes", whole.nodes)
    agent.on("GET /v1/jobs", whole.jobs)
    agent.on("GET /v1/allocations", whole.allocations)
    agent.on("GET /v1/client/stats", whole.hosts[NODE])
    agent.on(f"GET /v1/client/allocation/{ALLOC}/stats", USE)
    agent.on(f"GET /v1/client/allocation/{OTHER}/stats", Reply(404, "No path to node"))
    agent.on("GET /v1/status/leader", "10.0.0.1:4647")
    golden("top", lepa("top").out)
    assert agent.asked("GET /v1/jobs")[0].query["namespace"] == "*"
    assert lepa("top", "-once", "-namespace=blue").code == 0
    assert agent.asked("GET /v1/jobs")[1].query["namespace"] == "blue"


def test_an_interval_has_a_least(agent: FakeAgent, lepa: Run) -> None:
    assert "-interval is at least" in lepa("top", "-interval=1ms").error
    assert "-interval:" in lepa("top", "-interval=soon").error


@pytest.fixture
def quiet() -> TopApp:
    return TopApp(look, interval_s=60.0)


def shown(app: TopApp, name: str) -> int:
    return app.query_one(f"#table-{name}", DataTable).row_count


async def settle(app: TopApp, pilot: Any) -> None:
    await app.workers.wait_for_complete()
    await pilot.pause()


async def test_the_screen_shows_filters_and_pauses(quiet: TopApp) -> None:
    async with quiet.run_test(size=(140, 30)) as pilot:
        await settle(quiet, pilot)
        assert [shown(quiet, name) for name in ("Allocations", "Jobs", "Nodes")] == [2, 1, 1]
        assert "1 of 1 nodes ready" in str(quiet.query_one("#summary", Static).render())
        await pilot.press("slash", *"1111222")
        await pilot.pause()
        assert shown(quiet, "Allocations") == 1
        await pilot.press("escape")
        await pilot.pause()
        assert shown(quiet, "Allocations") == 2
        await pilot.press("p")
        assert "PAUSED" in str(quiet.query_one("#summary", Static).render())
        await pilot.press("q")
    assert quiet.return_value is None


async def test_a_look_that_fails_is_told_and_the_last_one_stays() -> None:
    answers: list[Any] = [look(), LepaError("no_leader", "no agent answers at http://x")]

    def ask() -> view.Look:
        answer = answers.pop(0)
        if isinstance(answer, LepaError):
            raise answer
        found: view.Look = answer
        return found

    app = TopApp(ask, interval_s=60.0)
    async with app.run_test(size=(140, 30)) as pilot:
        await settle(app, pilot)
        app.refresh_look()
        await settle(app, pilot)
        assert "no agent answers" in str(app.query_one("#summary", Static).render())
        assert shown(app, "Allocations") == 2
