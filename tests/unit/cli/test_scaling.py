"""`lepa scaling policy …` and `lepa job scaling-events`."""

from typing import Any

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import before, job_stub

POLICY = "55555555-aaaa-4bbb-8ccc-000000000001"
TARGET = {"Namespace": "default", "Job": "web", "Group": "web"}
STUB = {"ID": POLICY, "Enabled": True, "Type": "horizontal", "Target": TARGET}


def test_policies_are_a_table(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    agent.on("GET /v1/scaling/policies", [STUB])
    golden("scaling_policy_list", lepa("scaling", "policy", "list", "-job=web", "-type=horizontal").out)
    assert agent.requests[0].query == {"job": "web", "type": "horizontal"}
    agent.on("GET /v1/scaling/policies", [])
    assert lepa("scaling", "policy", "list").out == "No policies found\n"


def test_one_policy(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    agent.on("GET /v1/scaling/policies", [STUB])
    agent.on(f"GET /v1/scaling/policy/{POLICY}", {**STUB, "Min": 1, "Max": 5, "Policy": {"cooldown": "1m"}})
    golden("scaling_policy_info", lepa("scaling", "policy", "info", "5555").out)
    assert lepa("scaling", "policy", "info", "-t", "{{.Max}}", "5555").out == "5\n"


def test_several_policies_or_none(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/scaling/policies", [STUB, {**STUB, "ID": "5555ffff"}])
    assert "Prefix matched multiple scaling policies" in lepa("scaling", "policy", "info", "5555").error
    agent.on("GET /v1/scaling/policies", [])
    assert "No scaling policies" in lepa("scaling", "policy", "info", "5555").error


def test_events_are_listed_newest_first(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    agent.on("GET /v1/jobs", [job_stub()])
    event = {"Count": 3, "PreviousCount": 1, "Error": False, "Message": "more", "EvalID": "e1", "Meta": {"a": "b"}}
    older = {**event, "Time": before(100), "Count": None, "Message": "only said", "EvalID": None, "Meta": {}}
    events = [{**event, "Time": before(10)}, older]
    agent.on("GET /v1/job/web/scale", {"TaskGroups": {"web": {"Events": events}, "idle": {"Events": None}}})
    golden("scaling_events", lepa("job", "scaling-events", "web").out)
    golden("scaling_events_verbose", lepa("job", "scaling-events", "-verbose", "web").out)
    agent.on("GET /v1/job/web/scale", {"TaskGroups": {}})
    assert lepa("job", "scaling-events", "web").out == "No events found\n"
