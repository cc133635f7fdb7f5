"""The cluster as a whole."""

import os
import subprocess
import sys
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, OTHER, alloc_stub, allocation, job, job_stub

from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.wire import to_builtins
from lepa.rpc.requests import Member, Members

CONFIGURATION = "/v1/operator/scheduler/configuration"


def test_members_and_who_leads(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    tags = {"rpc_addr": "10.0.0.1", "port": "4647", "dc": "dc1", "region": "global", "build": "1.9.5", "raft_vsn": "3"}
    members = [Member(name="a.global", addr="10.0.0.1", port=4648, tags=tags), Member(name="b.global", addr="10.0.0.2")]
    agent.on("GET /v1/agent/members", to_builtins(Members(members=tuple(members))))
    agent.on("GET /v1/status/leader", "10.0.0.1:4647")
    golden("server_members", lepa("server", "members").out)
    assert "rpc_addr=10.0.0.1" in lepa("server", "members", "-detailed").out
    assert lepa("server-members", "-t", "{{len .}}").out == "2\n"


def test_how_servers_look_after_each_other(agent: FakeAgent, lepa: Run, golden: Any) -> None:
    path = "/v1/operator/autopilot/configuration"
    found = to_builtins(AutopilotConfiguration(min_quorum=3, modify_index=7))
    agent.on(f"GET {path}", found)
    golden("operator_autopilot_get_config", lepa("operator", "autopilot", "get-config").out)
    assert lepa("operator", "autopilot", "get-config", "-t", "{{.MaxTrailingLogs}}").out == "250\n"
    agent.on(f"PUT {path}", True)
    flags = ("-min-quorum=0", "-cleanup-dead-servers=true", "-last-contact-threshold", "1s")
    assert lepa("operator", "autopilot", "set-config", *flags).out == "Configuration updated!\n"
    asked = agent.asked(f"PUT {path}")[0]
    assert asked.body == {**found, "MinQuorum": 0, "CleanupDeadServers": True, "LastContactThreshold": "1s"}
    assert asked.query == {"cas": "7"}
    agent.on(f"PUT {path}", False)
    assert "changed meanwhile" in lepa("operator", "autopilot", "set-config", "-min-quorum=3").error


def test_peers(agent: FakeAgent, lepa: Run) -> None:
    server = {"Node": "a", "ID": "1", "Address": "10.0.0.1:4647", "Leader": True, "Voter": True, "RaftProtocol": "3"}
    agent.on("GET /v1/operator/raft/configuration", {"Servers": [server]})
    assert lepa("operator", "raft", "list-peers").out.split("\n")[1].split() == [
        "a",
        "1",
        "10.0.0.1:4647",
        "leader",
        "true",
        "3",
    ]


def test_a_certain_server_is_made_to_lead(agent: FakeAgent, lepa: Run) -> None:
    path = "PUT /v1/operator/raft/transfer-leadership"
    agent.on(path, {"From": {"ID": "a.global"}, "To": {"ID": "b.global"}, "Noop": False, "Err": None})
    moved = lepa("operator", "raft", "transfer-leadership", "-peer-id=b.global").out
    assert moved == 'Leadership transferred to "b.global"\n'
    agent.on(path, {"From": {"ID": "b.global"}, "To": {"ID": "b.global"}, "Noop": True, "Err": None})
    stays = lepa("operator", "raft", "transfer-leadership", "-peer-address=10.0.0.2:4647").out
    assert stays == '"b.global" leads already\n'
    assert [asked.query for asked in agent.asked(path)] == [{"id": "b.global"}, {"address": "10.0.0.2:4647"}]
    assert "-peer-id or by -peer-address" in lepa("operator", "raft", "transfer-leadership").error


def test_figures_of_the_agent(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/agent/self", {"stats": {"nomad": {"server": "true", "leader": "true"}}})
    assert lepa("agent-info").out == "nomad\n  leader = true\n  server = true\n"


def test_the_schedulers_configuration_is_read_and_changed(agent: FakeAgent, lepa: Run) -> None:
    agent.on(f"GET {CONFIGURATION}", {"SchedulerConfig": to_builtins(SchedulerConfiguration(modify_index=3))})
    agent.on(f"PUT {CONFIGURATION}", {"Updated": True})
    assert "Scheduler Algorithm               = binpack\n" in lepa("operator", "scheduler", "get-config").out
    flags = ("-scheduler-algorithm=spread", "-preempt-batch-scheduler", "-pause-eval-broker=false", "-check-index", "3")
    assert lepa("operator", "scheduler", "set-config", *flags).code == 0
    request = agent.requests[-1]
    assert request.query == {"cas": "3"}
    assert request.body["SchedulerAlgorithm"] == "spread"
    assert request.body["PreemptionConfig"]["BatchSchedulerEnabled"] is True
    assert request.body["PreemptionConfig"]["SystemSchedulerEnabled"] is True
    agent.on(f"PUT {CONFIGURATION}", {"Updated": False})
    assert "was changed meanwhile" in lepa("operator", "scheduler", "set-config").error
    assert "is binpack or spread" in lepa("operator", "scheduler", "set-config", "-scheduler-algorithm=x").error


def test_collection_and_summaries(agent: FakeAgent, lepa: Run) -> None:
    agent.on("PUT /v1/system/gc", Reply())
    agent.on("PUT /v1/system/reconcile/summaries", Reply())
    assert lepa("system", "gc").code == 0
    assert lepa("system", "reconcile", "summaries").code == 0


# Any request


def test_any_request(agent: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115
    agent.on("GET /v1/jobs", Reply(text="[1]"))
    done = lepa("operator", "api", "-verbose", "-H", "X-Own: 1", "-filter", "a", "/v1/jobs")
    assert done.out == "[1]"
    assert "< 200 OK" in done.error
    assert (agent.requests[0].headers["X-Own"], agent.requests[0].query) == ("1", {"filter": "a"})
    assert lepa("operator", "api", "-dryrun", "-X", "PUT", "/v1/x").out == f"curl -X PUT {agent.address}/v1/x\n"
    assert "-H wants name:value" in lepa("operator", "api", "-H", "x", "/v1/jobs").error
    assert lepa("operator", "api", "nope").code == 1


def test_a_body_comes_through_a_pipe(agent: FakeAgent) -> None:
    agent.on("PUT /v1/jobs", {"ok": True})
    script = "import sys; from lepa.cli.main import main; sys.exit(main(['operator', 'api', '/v1/jobs']))"
    env = {**os.environ, "LEPA_ADDR": agent.address}
    done = subprocess.run([sys.executable, "-c", script], input=b'{"Job": 1}', capture_output=True, env=env, timeout=30)
    assert done.stdout == b'{"ok": true}'
    assert agent.requests[0].body == {"Job": 1}


# Whatever an id names


@pytest.fixture
def known(agent: FakeAgent) -> FakeAgent:
    """An agent with a job and an allocation."""
    agent.on("GET /v1/jobs", [job_stub()])
    agent.on("GET /v1/job/web", job())
    for path, value in (("summary", {}), ("evaluations", []), ("deployment", None), ("allocations", [])):
        agent.on(f"GET /v1/job/web/{path}", value)
    agent.on("GET /v1/allocations", [alloc_stub()])
    agent.on(f"GET /v1/allocation/{ALLOC}", allocation())
    return agent


def test_status_finds_out_what_is_meant(known: FakeAgent, lepa: Run) -> None:
    known.on("PUT /v1/search", {"Matches": {"jobs": ["web"], "allocs": []}})
    assert lepa("status", "we").out.startswith("ID            = web\n")
    known.on("PUT /v1/search", {"Matches": {"allocs": [ALLOC]}})
    assert lepa("status", "-verbose", "1111").out.startswith(f"ID                  = {ALLOC}\n")
    assert lepa("status").out.startswith("ID   Type")


def test_status_names_several_and_none(known: FakeAgent, lepa: Run) -> None:
    known.on("PUT /v1/search", {"Matches": {"allocs": [ALLOC, OTHER], "jobs": ["1111"]}})
    assert lepa("status", "111").error.startswith("Several things have an id that begins")
    assert lepa("status", "1111").out.startswith("ID            = web\n")
    known.on("PUT /v1/search", {"Matches": {}})
    done = lepa("status", "zz")
    assert (done.code, done.error) == (1, 'Error: Nothing has an id that begins with "zz"\n')
