"""`lepa job tag …`."""

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import job_stub


def test_a_version_is_named(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("PUT /v1/job/web/versions/good one/tag", {"Name": "good one"})
    done = lepa("job", "tag", "apply", "-name", "good one", "-version=3", "-description", "works", "web")
    assert (done.code, done.out) == (0, 'Job version tag "good one" applied to version 3 of job "web"\n')
    asked = agent.asked("PUT /v1/job/web/versions/good one/tag")[0]
    assert asked.body == {"Description": "works", "Latest": False, "Version": 3}
    lepa("job", "tag", "apply", "-name", "good one", "web")
    assert agent.asked("PUT /v1/job/web/versions/good one/tag")[1].body == {"Description": "", "Latest": True}


def test_a_name_is_taken_away(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("DELETE /v1/job/web/versions/good/tag", {"Name": "good"})
    assert lepa("job", "tag", "unset", "-name=good", "web").out == 'Job version tag "good" removed from job "web"\n'


def test_the_name_has_to_be_given(agent: FakeAgent, lepa: Run) -> None:
    for verb in ("apply", "unset"):
        done = lepa("job", "tag", verb, "web")
        assert (done.code, "-name" in done.error) == (1, True)
