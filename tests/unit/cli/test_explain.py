"""`lepa job explain`."""

from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import ALLOC, EVALUATION, NODE, before, job_stub

from lepa.model.explanation import GroupExplanation, JobExplanation, NodeVerdict, RecordedDecision
from lepa.model.wire import to_builtins

NODES = (
    NodeVerdict(
        node_id=NODE,
        node_name="one",
        verdict="chosen",
        reasons=("it would be 5 % full by CPU and 2 % by memory",),
        score=0.25,
        scores={"binpack": 0.25},
        rank=1,
        running=1,
        placed=2,
    ),
    NodeVerdict(
        node_id="99999999-x",
        node_name="two",
        verdict="filtered",
        reasons=tuple(f"constraint {letter} does not hold" for letter in "abcd"),
    ),
)
FOUND = JobExplanation(
    job_id="web",
    groups=(
        GroupExplanation(
            name="page",
            summary="1 of 2 run; 1 of 7 nodes have room for it",
            verdicts={"chosen": 1, "filtered": 6},
            nodes=NODES,
            nodes_omitted=5,
        ),
        GroupExplanation(name="idle", summary="0 of 0 run"),
    ),
    recorded=(
        RecordedDecision(group="page", eval_id=EVALUATION, time=before(60), reasons=("1 node looked at",)),
        RecordedDecision(
            group="page",
            allocation_id=ALLOC,
            name="web.page[0]",
            node_id=NODE,
            node_name="one",
            eval_id=EVALUATION,
            time=before(90),
            reasons=("its node scored 0.25",),
        ),
    ),
)


@pytest.fixture
def web(agent: FakeAgent) -> FakeAgent:
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web/explain", to_builtins(FOUND))
    return agent


def test_nodes_and_decisions_in_words(web: FakeAgent, lepa: Run, golden: Any) -> None:
    golden("explain", lepa("job", "explain", "web").out)
    golden("explain_verbose", lepa("job", "explain", "-verbose", "web").out)


def test_what_is_shown_is_chosen(web: FakeAgent, lepa: Run) -> None:
    lepa("job", "explain", "-group=page", "-nodes=5", "web")
    assert web.asked("GET /v1/job/web/explain")[0].query == {"namespace": "default", "group": "page", "nodes": "5"}
    assert lepa("job", "explain", "-t", "{{(index .Groups 0).Name}}", "web").out == "page\n"
