"""Which object is meant, and how answers are shaped."""

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, NODE, OTHER, alloc_stub, allocation, job, job_stub, node, node_stub


def test_a_prefix_is_enough(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/allocations", [alloc_stub()])
    agent.on(f"GET /v1/allocation/{ALLOC}", allocation())
    assert lepa("alloc", "status", "-t", "{{.ID}}", "1111-").out == f"{ALLOC}\n"
    assert agent.asked("GET /v1/allocations")[0].query == {"prefix": "1111-"}
    assert agent.asked(f"GET /v1/allocation/{ALLOC}")[0].query == {"namespace": "default"}


def test_several_candidates_are_listed(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/allocations", [alloc_stub(), alloc_stub(OTHER)])
    done = lepa("alloc", "status", "1111")
    assert done.code == 1
    assert done.error.startswith("Prefix matched multiple allocations\n\nID ")
    assert OTHER in done.error


def test_an_exact_name_beats_longer_ones(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [job_stub("web"), job_stub("web-two")])
    agent.on("GET /v1/job/web", job())
    assert lepa("job", "status", "-t", "{{.ID}}", "web").out == "web\n"
    assert lepa("job", "status", "we").error.startswith("Prefix matched multiple jobs")


def test_ids_of_jobs_are_part_of_a_path(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [job_stub("nightly/periodic-1 a", Namespace="other")])
    agent.on("GET /v1/job/nightly/periodic-1 a", job("nightly/periodic-1 a"))
    assert lepa("job", "status", "-namespace=*", "-t", "{{.ID}}", "nightly").code == 0
    assert agent.requests[-1].query["namespace"] == "other"


@pytest.mark.parametrize("given", ["zz", "nothing here", "g" * 40])
def test_what_is_no_id_is_refused_before_asking(agent: FakeAgent, lepa: Run, given: str) -> None:
    done = lepa("alloc", "status", given)
    assert (done.code, agent.requests) == (1, [])
    assert "is no allocation id" in done.error


def test_nothing_found_is_a_sentence(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [])
    agent.on("GET /v1/nodes", [])
    assert lepa("job", "status", "nope").error == (
        'Error: No job(s) with prefix or ID "nope" found; `lepa job status` lists them\n'
    )
    assert lepa("node", "status", "nope").error == 'Error: No node(s) with prefix or id "nope" found\n'


def test_nodes_are_found_by_name(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/nodes", lambda request: [] if request.query.get("prefix") else [node_stub()])
    agent.on(f"GET /v1/node/{NODE}", node())
    assert lepa("node", "status", "-t", "{{.Name}}", "box").out == "box\n"


def test_json_and_template_exclude_each_other(agent: FakeAgent, lepa: Run) -> None:
    done = lepa("job", "status", "-json", "-t", "{{.}}")
    assert (done.code, done.error) == (1, "Error: -json and -t exclude each other: give one of them\n")


def test_a_wrong_template_names_its_mistake(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [])
    assert lepa("job", "status", "-t", "{{.ID").error == "Error: -t: line 1: action is not closed by }}\n"
    assert lepa("job", "status", "-t", "{{len .}}").out == "0\n"


def test_refusals_are_the_agents_own_words(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", Reply(403, "Permission denied"))
    assert lepa("job", "status").error == "Error: Permission denied\n"


def test_flags_and_environment_say_where_to_ask_and_as_whom(
    agent: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_TOKEN", "from-nomad")
    agent.on("GET /v1/jobs", [])
    lepa("job", "status", "-region", "eu", "-namespace=n")
    lepa("job", "status", "-token=own")
    first, second = agent.requests
    assert first.query == {"namespace": "n", "region": "eu"}
    assert (first.headers["X-Nomad-Token"], second.headers["X-Nomad-Token"]) == ("from-nomad", "own")


def test_colours_can_be_forced_and_forbidden(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web", job())
    for path in ("summary", "evaluations", "deployment", "allocations"):
        agent.on(f"GET /v1/job/web/{path}", {} if path == "summary" else None)
    assert "\x1b[1m" in lepa("job", "status", "-force-color", "web").out
    assert "\x1b[" not in lepa("job", "status", "-no-color", "web").out


def test_without_an_agent_the_way_to_start_one_is_told(lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEPA_ADDR", "http://127.0.0.1:1")
    done = lepa("node", "status")
    assert done.code == 1
    assert "start one with `lepa agent -dev`" in done.error
