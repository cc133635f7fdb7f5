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
