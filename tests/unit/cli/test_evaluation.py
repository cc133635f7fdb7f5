"""Evaluations."""

from typing import Any

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import EVALUATION, NODE, alloc_stub, evaluation, unplaced


def test_the_list(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    failed = evaluation(FailedTGAllocs={"page": unplaced()}, NodeID=NODE)
    listed = Reply(text=__import__("json").dumps([evaluation("pending"), failed]), headers={"X-Nomad-NextToken": "t"})
    agent.on("GET /v1/evaluations", listed)
    golden("eval_list", lepa("eval", "list", "-job", "web", "-per-page=2").out)
    assert agent.requests[0].query == {"job": "web", "per_page": "2", "reverse": "true"}
    agent.on("GET /v1/evaluations", [])
    assert lepa("eval", "list").out == "No evals found\n"


def test_one(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    made = evaluation(FailedTGAllocs={"page": unplaced()}, BlockedEval=NODE, RelatedEvals=[evaluation("blocked")])
    agent.on("GET /v1/evaluations", [made])
    agent.on(f"GET /v1/evaluation/{EVALUATION}", made)
    agent.on(f"GET /v1/evaluation/{EVALUATION}/allocations", [alloc_stub()])
    golden("eval_status", lepa("eval", "status", "3333").out)
    assert lepa("eval", "status", "-t", "{{.ID}}", "3333").out == f"{EVALUATION}\n"
    assert lepa("eval", "status", "-monitor", "3333").code == 2
    assert lepa("eval", "status").code == 1


def test_evaluations_are_deleted(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/evaluations", [evaluation()])
    agent.on(f"GET /v1/evaluation/{EVALUATION}", evaluation())
    agent.on("DELETE /v1/evaluations", {"Count": 1})
    assert lepa("eval", "delete", "-yes", "3333").out == "Successfully deleted 1 evaluation\n"
    assert agent.asked("DELETE /v1/evaluations")[0].body == {"EvalIDs": [EVALUATION]}
    agent.on("GET /v1/evaluations/count", {"Count": 12})
    agent.on("DELETE /v1/evaluations", {"Count": 12})
    assert lepa("eval", "delete", "-yes", "-filter", "x is empty").out == "Successfully deleted 12 evaluations\n"
    agent.on("GET /v1/evaluations/count", {"Count": 0})
    assert lepa("eval", "delete", "-yes", "-filter", "x is empty").out == "No evaluations match\n"
    assert "name evaluations" in lepa("eval", "delete").error
    assert "-yes" in lepa("eval", "delete", "3333").error
