"""Two regions, joined by gossip: each has its own jobs, and either answers for the other.

Modules: lepa.agent.gossip_part.
"""

import base64
import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import LEPA, Agent, eventually, running
from tests.e2e.jobs import shell_job
from tests.serf_agent import HOST, RealSerf

KEY, NEXT_KEY = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
JOB = """
job "{id}" {{
  {region}
  group "main" {{
    update {{
      min_healthy_time = "0s"
    }}
    task "main" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", "echo here; while :; do sleep 0.05; done"]
      }}
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"""


def of_region(region: str, **server: Any) -> dict[str, Any]:
    alone = {"bootstrap_expect": 1, "gossip_profile": "lan"}
    return {"region": region, "name": f"{region}-1", "server": alone | server}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Agent]]:
    folder = tmp_path_factory.mktemp("regions")
    with running(folder / "eu", settings=of_region("eu", encrypt=KEY)) as eu:
        joining = of_region("us", encrypt=KEY, retry_join=[f"{HOST}:{eu.ports['serf']}"], retry_interval="1s")
        with running(folder / "us", settings=joining) as us:
            for agent in (eu, us):
                eventually(lambda agent=agent: agent.get("/v1/regions") == ["eu", "us"])
            yield eu, us


def lepa(agent: Agent, *words: object, code: int = 0, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [LEPA, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env=agent.environment() | {"LEPA_ADDR": agent.address} | dict(env or {}),
    )
    assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def statuses(agent: Agent) -> dict[str, str]:
    return {member["Name"]: member["Status"] for member in agent.get("/v1/agent/members")["Members"]}


def test_servers_of_both_regions_are_members_everywhere(both: tuple[Agent, Agent]) -> None:
    eu, us = both
    for agent in both:
        members = {member["Name"]: member for member in agent.get("/v1/agent/members")["Members"]}
        assert members.keys() == {"eu-1.eu", "us-1.us"}
        tags = members["us-1.us"]["Tags"]
        assert (tags["role"], tags["region"], tags["port"]) == ("nomad", "us", str(us.ports["rpc"]))
        assert members["us-1.us"]["Port"] == us.ports["serf"]
        assert members["us-1.us"]["ProtocolCur"] == 2
    figures = eu.get("/v1/agent/self")["stats"]["serf"]
    assert (figures["members"], figures["failed"], figures["encrypted"]) == ("2", "0", "true")
    listed = lepa(eu, "server", "members").splitlines()
    assert [line.split()[0:1] + line.split()[3:5] + line.split()[-1:] for line in listed[1:]] == [
        ["eu-1.eu", "alive", "true", "eu"],
        ["us-1.us", "alive", "true", "us"],
    ]


def test_a_job_of_another_region_is_run_seen_and_stopped_from_here(both: tuple[Agent, Agent], tmp_path: Path) -> None:
    eu, us = both
    file = tmp_path / "far.hcl"
    file.write_text(JOB.format(id="far", region=""))
    assert "Job registration successful" in lepa(eu, "job", "run", "-detach", "-region", "us", file)
    (allocation,) = us.running("far")
    alloc_id = allocation["ID"]
    assert "far" in lepa(eu, "status", "-region", "us")
    assert "No running jobs" in lepa(eu, "status"), "regions share no jobs"
    assert alloc_id[:8] in lepa(eu, "status", "far", env={"NOMAD_REGION": "us"})
    assert [node["Name"] for node in eu.get("/v1/nodes", region="us")] == ["us-1"]
    assert [node["Name"] for node in eu.get("/v1/nodes")] == ["eu-1"]
    # Streams, files and commands inside a task
    eventually(lambda: lepa(eu, "alloc", "logs", "-region", "us", alloc_id, "main") == "here\n")
    assert "main" in lepa(eu, "alloc", "fs", "-region", "us", alloc_id, "/")
    assert lepa(eu, "alloc", "exec", "-region", "us", alloc_id, "echo", "inside") == "inside\n"
    stream = subprocess.run(
        ["curl", "-sN", "--max-time", "2", f"{eu.address}/v1/event/stream?region=us&topic=Job:far&index=1"],
        capture_output=True,
        text=True,
    ).stdout
    events = [
        event for line in stream.splitlines() if line.startswith("{") for event in json.loads(line).get("Events", [])
    ]
    assert "JobRegistered" in {event["Type"] for event in events}
    # A blocking query of the other region wakes when that region changes
    answer = eu.request("GET", "/v1/job/far", query={"region": "us"})
    assert answer.json["Region"] == "us"
    lepa(eu, "job", "stop", "-detach", "-region", "us", "-purge", "far")
    changed = eu.request("GET", "/v1/jobs", query={"region": "us", "index": answer.index, "wait": "20s"})
    assert changed.index > answer.index
    eventually(lambda: us.get("/v1/jobs") == [])


def test_a_job_that_names_its_region_goes_there(both: tuple[Agent, Agent], tmp_path: Path) -> None:
    eu, us = both
    file = tmp_path / "named.hcl"
    file.write_text(JOB.format(id="named", region='region = "us"'))
    assert "create" in lepa(eu, "job", "plan", file, code=1)
    said = lepa(eu, "job", "run", file)
    assert 'finished with status "complete"' in said, "it is followed in its region"
    us.running("named")
    assert us.get("/v1/job/named")["Region"] == "us"
    assert eu.get("/v1/jobs") == []
    eu.put("/v1/jobs", {"Job": shell_job("body", Region="us")})
    us.running("body")
    for name in ("named", "body"):
        us.purge(name)


def test_there_is_no_path_to_a_region_that_nobody_knows(both: tuple[Agent, Agent], tmp_path: Path) -> None:
    eu, _ = both
    file = tmp_path / "lost.hcl"
    file.write_text(JOB.format(id="lost", region='region = "mars"'))
    for answer in (
        eu.request("GET", "/v1/jobs", query={"region": "mars"}),
        eu.request("PUT", "/v1/jobs", {"Job": shell_job("lost", Region="mars")}),
        eu.request("DELETE", "/v1/job/lost", query={"region": "mars"}),
    ):
        assert (answer.status, answer.text) == (500, "No path to region")
    assert "No path to region" in lepa(eu, "job", "run", file, code=1)
    assert lepa(eu, "status", "-region", "mars", code=1) == "Error: No path to region\n"


def test_keys_are_rotated_on_all_servers(both: tuple[Agent, Agent]) -> None:
    eu, us = both
    keyring = ("operator", "gossip", "keyring")
    assert lepa(eu, *keyring, "list").split() == ["Key", "Servers", KEY, "2/2"]
    lepa(eu, *keyring, "install", NEXT_KEY)
    assert set(lepa(us, *keyring, "list").split()[2:]) == {KEY, NEXT_KEY, "2/2"}
    said = lepa(us, *keyring, "remove", KEY, code=1)
    assert said.count("removing the primary key is not allowed") == 2
    lepa(us, *keyring, "use", NEXT_KEY)
    lepa(us, *keyring, "remove", KEY)
    for agent in both:
        assert agent.get("/v1/agent/keyring/list") == {"Messages": {}, "Keys": {NEXT_KEY: 2}, "NumNodes": 2}
        kept = agent.data / "server" / "serf.keyring"
        assert json.loads(kept.read_text()) == [NEXT_KEY]
        assert KEY not in agent.log()
        assert NEXT_KEY not in agent.log()
    assert "base64" in lepa(eu, *keyring, "install", "nonsense!", code=1)
    assert statuses(eu) == {"eu-1.eu": "alive", "us-1.us": "alive"}


def test_what_is_wrong_is_said(both: tuple[Agent, Agent], tmp_path: Path) -> None:
    """A wrong key, an address that does not answer, a port that is another one, and the same region twice."""
    eu, _ = both
    with running(tmp_path / "lone", settings=of_region("eu") | {"name": "lone"}) as lone:
        there = f"{HOST}:{eu.ports['serf']}"
        said = lepa(lone, "server", "join", there, code=1)
        assert f"Error joining: {there}: gossip is encrypted there and not here" in said
        said = lepa(eu, "server", "join", f"{HOST}:{lone.ports['serf']}", code=1)
        assert "gossip is encrypted here and not there" in said
        assert "cannot be reached: Connection refused" in lepa(lone, "server", "join", f"{HOST}:1", code=1)
        assert "is this the gossip port" in lepa(lone, "server", "join", f"{HOST}:{eu.ports['http']}", code=1)
        assert "gossip is not encrypted here" in lepa(lone, "operator", "gossip", "keyring", "list", code=1)
        said = lepa(lone, "server", "force-leave", "nobody", code=1)
        assert said == 'Error: no server is called "nobody" or "nobody.eu"\n'
        with running(tmp_path / "twin", settings=of_region("eu") | {"name": "twin"}) as twin:
            said = lepa(twin, "server", "join", f"{HOST}:{lone.ports['serf']}")
            assert 'Warning: lone.eu: also of region "eu", but this server keeps its state alone' in said
            eventually(lambda: 'twin.eu: also of region "eu"' in lone.log())
        assert statuses(eu) == {"eu-1.eu": "alive", "us-1.us": "alive"}


async def test_the_real_serf_lists_our_servers_and_ours_list_it(tmp_path: Path) -> None:
    """A member with the tags of a Nomad server is one of us; any other is not let in."""
    tags = ("role=nomad", "region=mars", "dc=dc1", "port=4647", "build=1.9.5", "raft_vsn=3", "vsn=1")
    options = tuple(word for tag in tags for word in ("-tag", tag))
    settings = of_region("eu") | {"name": "ours", "leave_on_terminate": True}
    with running(tmp_path / "ours", settings=settings) as ours:
        there = f"{HOST}:{ours.ports['serf']}"
        async with RealSerf("theirs.mars", tmp_path, options=options) as theirs, RealSerf("web", tmp_path) as web:
            await theirs.run("join", there)
            seen = await theirs.members()
            assert seen.keys() == {"theirs.mars", "ours.eu"}
            assert seen["ours.eu"]["tags"]["role"] == "nomad"
            eventually(lambda: statuses(ours) == {"ours.eu": "alive", "theirs.mars": "alive"})
            assert "theirs.mars" in lepa(ours, "server", "members")
            assert ours.get("/v1/regions") == ["eu", "mars"]
            web.ask("join", there)
            eventually(lambda: '"web" is no server: its tag role is ""' in ours.log())
            assert "web" not in statuses(ours)
            theirs.end(signal.SIGKILL)
            eventually(lambda: statuses(ours)["theirs.mars"] == "failed", 30.0)
            assert ours.get("/v1/regions") == ["eu"]
            lepa(ours, "server", "force-leave", "theirs.mars")
            assert statuses(ours)["theirs.mars"] == "left"
            theirs.start()
            await theirs.run("join", there)
            eventually(lambda: statuses(ours)["theirs.mars"] == "alive")
            ours.stop()
            assert (await theirs.statuses())["ours.eu"] == "left", "leave_on_terminate"


def test_a_server_that_comes_back_joins_those_it_knew(tmp_path: Path) -> None:
    with running(tmp_path / "eu", settings=of_region("eu")) as eu:
        with running(tmp_path / "us", settings=of_region("us")) as us:
            us.put("/v1/agent/join", None, address=f"{HOST}:{eu.ports['serf']}")
            eventually(lambda: eu.get("/v1/regions") == ["eu", "us"])
            us.kill9()
            us.start()
            eventually(lambda: us.get("/v1/regions") == ["eu", "us"])
            assert re.search("joined former members reached=1", us.log())


def test_a_server_that_cannot_join_says_so_or_does_not_start(tmp_path: Path) -> None:
    refused = f"{HOST}:1: cannot be reached: Connection refused"
    in_vain = of_region("eu", retry_join=[f"{HOST}:1"], retry_max=2, retry_interval="100ms")
    for name, settings, said in (
        ("waits", in_vain, f"no server could be joined in 2 attempts (retry_max), so the agent ends: {refused}"),
        ("stops", of_region("eu", start_join=[f"{HOST}:1"]), f"cannot join other servers: {refused}"),
    ):
        agent = Agent(tmp_path / name, settings=settings)
        agent.spawn()
        assert agent.wait() == 1
        assert said in agent.log()
        assert agent.close() == []


def test_a_node_that_finds_no_server_ends_after_as_many_attempts_as_it_may_make(tmp_path: Path) -> None:
    join = {"retry_join": [f"{HOST}:1"], "retry_max": 1}
    settings = {"server": {"enabled": False}, "client": {"enabled": True, "server_join": join}}
    agent = Agent(tmp_path / "node", settings=settings)
    agent.spawn()
    assert agent.wait() == 1
    assert "no server could be joined in 1 attempt (retry_max), so the agent ends: no server can" in agent.log()
    assert agent.close() == []
