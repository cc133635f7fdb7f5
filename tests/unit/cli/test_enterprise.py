"""Verbs of Nomad's Enterprise edition."""

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("quota", "apply", "q.hcl"), "PUT /v1/quota"),
        (("quota", "delete", "q"), "DELETE /v1/quota/q"),
        (("quota", "init"), "GET /v1/quotas"),
        (("quota", "inspect", "-json", "q"), "GET /v1/quota/q"),
        (("quota", "list"), "GET /v1/quotas"),
        (("quota", "status", "q"), "GET /v1/quota/q"),
        (("recommendation", "apply", "r"), "PUT /v1/recommendations/apply"),
        (("recommendation", "dismiss", "r"), "DELETE /v1/recommendations"),
        (("recommendation", "info", "r"), "GET /v1/recommendation/r"),
        (("recommendation", "list", "-job=web"), "GET /v1/recommendations"),
        (("sentinel", "list"), "GET /v1/sentinel/policies"),
        (("sentinel", "apply", "-level=hard", "p"), "PUT /v1/sentinel/policy/p"),
        (("sentinel", "delete", "p"), "DELETE /v1/sentinel/policy/p"),
        (("sentinel", "read", "p"), "GET /v1/sentinel/policy/p"),
        (("operator", "utilization"), "POST /v1/operator/utilization"),
        (("alloc", "pause", "-state=run", "a"), "PUT /v1/client/allocation/a/pause"),
    ],
)
def test_the_agent_is_asked_and_its_refusal_explained(
    agent: FakeAgent, lepa: Run, words: tuple[str, ...], call: str
) -> None:
    agent.on(call, Reply(501, "Nomad Enterprise only endpoint"))
    done = lepa(*words)
    assert (done.code, done.out) == (1, "")
    assert done.error.startswith("Error: Nomad Enterprise only endpoint: this belongs to")


def test_other_failures_are_told_as_they_are(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/quotas", Reply(403, "Permission denied"))
    assert lepa("quota", "list").error == "Error: Permission denied\n"


def test_there_is_no_licence(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/operator/license", Reply(204))
    assert lepa("license", "get").out == "lepa needs no licence\n"
