"""Two regions on machines of their own, and servers that die: gossip over a real network."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.bed import PORTS, Bed, ClusterAgent, node_of, wait_until
from tests.e2e.jobs import shell_job

NODE = {"enabled": True, "cpu_total_compute": 2_000, "memory_total_mb": 2_000}
RAW_EXEC = {"raw_exec": {"config": {"enabled": True}}}
DETECTED_S = 7.5
"""Seven seconds on the LAN profile, and half a second for a busy test machine."""


def server_of(region: str, *joined: ClusterAgent, node: bool = False) -> dict[str, Any]:
    server = {
        "enabled": True,
        "bootstrap_expect": 1,
        "gossip_profile": "lan",
        "retry_join": [agent.host for agent in joined],
        "retry_interval": "1s",
    }
    return {"region": region, "server": server} | ({"client": NODE, "plugin": RAW_EXEC} if node else {})


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path / "bed") as made:
        yield made


def statuses(agent: ClusterAgent) -> dict[str, str]:
    return {member["Name"]: member["Status"] for member in agent.get("/v1/agent/members")["Members"]}


def sees(agents: tuple[ClusterAgent, ...], wanted: dict[str, str]) -> bool:
    return all(statuses(agent) == wanted for agent in agents)


def test_either_region_goes_on_while_the_way_between_them_is_cut(bed: Bed) -> None:
    eu = bed.agent("eu", server_of("eu", node=True))
    us = bed.agent("us", server_of("us", eu))
    far_node = bed.agent("far", node_of(us) | {"region": "us"})
    bed.isolate(eu, far_node)  # only the servers of regions need a way to each other
    wait_until(lambda: sees((eu, us), {"eu.eu": "alive", "us.us": "alive"}))
    (eu.machine.folder / "far.hcl").write_text(
        'job "far" {\n group "main" {\n task "main" {\n driver = "raw_exec"\n'
        'config {\n command = "/bin/sh"\n args = ["-c", "echo here; while :; do sleep 0.05; done"]\n }\n'
        "resources {\n cpu = 20\n memory = 16\n }\n }\n }\n}\n"
    )
    assert "successful" in eu.lepa("job", "run", "-region", "us", "-detach", eu.machine.folder / "far.hcl")
    (far,) = us.running("far")
    assert "far" in eu.lepa("status", "-region", "us")
    assert "No running jobs" in eu.lepa("status")
    wait_until(lambda: eu.lepa("alloc", "logs", "-region", "us", far["ID"], "main") == "here\n")
    assert eu.lepa("alloc", "exec", "-region", "us", far["ID"], "hostname") == "far\n"
    assert "main" in eu.lepa("alloc", "fs", "-region", "us", far["ID"], "/")

    bed.isolate(eu, us)
    wait_until(lambda: statuses(eu)["us.us"] == "failed" and statuses(us)["eu.eu"] == "failed", 30.0)
    answer = eu.request("GET", "/v1/jobs", query={"region": "us"})
    assert (answer.status, answer.text) == (500, "No path to region")
    assert eu.get("/v1/regions") == ["eu"]
    for agent, name in ((eu, "near"), (us, "other")):
        agent.run(shell_job(name))
        agent.running(name)
    assert [alloc["ID"] for alloc in us.running("far")] == [far["ID"]], "it was left alone"

    bed.heal()
    wait_until(lambda: sees((eu, us), {"eu.eu": "alive", "us.us": "alive"}), 60.0)
    assert {job["ID"] for job in eu.get("/v1/jobs", region="us")} == {"far", "other"}
    assert {job["ID"] for job in us.get("/v1/jobs", region="eu")} == {"near"}


def test_a_server_that_loses_its_power_is_found_within_seven_seconds(bed: Bed) -> None:
    """Three members; the machine is gone, so nothing on it refuses a connection."""
    one = bed.agent("one", server_of("one"))
    two = bed.agent("two", server_of("two", one))
    three = bed.agent("three", server_of("three", one))
    everybody = {f"{name}.{name}": "alive" for name in ("one", "two", "three")}
    wait_until(lambda: sees((one, two, three), everybody))
    began = time.monotonic()
    bed.power_off(three)
    wait_until(lambda: sees((one, two), everybody | {"three.three": "failed"}), 20.0)
    assert time.monotonic() - began <= DETECTED_S
    bed.boot(three)
    wait_until(lambda: sees((one, two, three), everybody))
    assert one.get("/v1/regions") == ["one", "three", "two"]
    assert f"address={three.host}:{PORTS['serf']}" in one.log()
