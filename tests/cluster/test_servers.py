"""Three servers with an etcd each, and two nodes: servers die, stall and are cut off, and nothing is lost or doubled.

Rows of the list of faults (docs/explanation/server.md): R1, R2, R3, R7, R8, R9 and R22 in their short form.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.bed import wait_until
from tests.cluster.region import Region, region
from tests.e2e.jobs import shell_job


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Region]:
    with region(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.fixture(autouse=True)
def _orderly(here: Region) -> Iterator[None]:
    """Each test finds a whole region without jobs."""
    yield
    here.recover()
    here.clear()


def test_every_server_tells_the_same_of_all_servers_and_every_agent_answers(here: Region) -> None:
    leader = here.leader()
    addresses = sorted(f"{agent.host}:4647" for agent in here.servers.values())
    for agent in here.servers.values():
        wait_until(lambda agent=agent: here.members(agent) == dict.fromkeys(here.servers, "alive"))
        assert sorted(agent.get("/v1/status/peers")) == addresses
        assert agent.get("/v1/status/leader") == f"{leader.host}:4647"
        assert agent.get("/v1/agent/self")["stats"]["nomad"]["leader"] == str(agent is leader).lower()
    for node in here.nodes.values():
        wait_until(lambda node=node: set(node.get("/v1/agent/servers")) == set(addresses))
    said = here.followers()[0].lepa("server", "members")
    assert sorted(line.split()[0] for line in said.splitlines()[1:]) == [f"{name}.global" for name in here.servers]
    (led,) = [line for line in said.splitlines() if " true " in line]
    assert led.startswith(f"{leader.name}.global")


def test_r1_the_leader_is_killed_while_work_is_placed(here: Region) -> None:
    witness, other = here.followers()
    with here.judged(witness=witness) as load:
        victim = here.leader()
        victim.kill9()
        began = time.monotonic()
        here.leader(witness, other)
        assert time.monotonic() - began < 10.0
        time.sleep(3.0)
        victim.spawn()
    assert len(load.acknowledged) > 10
    print(f"longest gap between acknowledged writes: {load.longest_gap_s:.1f} s")


def test_r2_a_follower_is_killed_and_comes_back(here: Region) -> None:
    witness, victim = here.followers()
    with here.judged(witness=witness) as load:
        victim.kill9()
        wait_until(lambda: here.members(witness)[victim.name] == "failed", 15.0)
        before = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > before + 5)
        victim.spawn()
        began = time.monotonic()
        index = here.known_leader().request("GET", "/v1/jobs").index
        wait_until(lambda: _index(victim) >= index, 20.0)
        print(f"caught up after {time.monotonic() - began:.1f} s; longest gap {load.longest_gap_s:.1f} s")
        wait_until(lambda: here.members(witness)[victim.name] == "alive", 15.0)
    assert load.longest_gap_s < 5.0


def _index(agent: Any) -> int:
    """Index of what a server has, 0 while it does not answer."""
    with contextlib.suppress(OSError, KeyError):
        answer = agent.request("GET", "/v1/jobs?stale", timeout_s=2.0)
        return int(answer.index) if answer.status == 200 else 0
    return 0


def test_r3_all_servers_are_killed_at_once_and_have_the_same_state_again(here: Region) -> None:
    here.server.run(shell_job("lasting", count=4))
    here.running_by_node("lasting", 4)
    wait_until(lambda: not here.unsettled())
    before, tasks = here.state_of(here.server), here.tasks()
    for agent in here.servers.values():
        agent.kill9()
    time.sleep(1.0)
    assert here.tasks() == tasks
    for agent in here.servers.values():
        agent.spawn()
    began = time.monotonic()
    here.leader(within_s=30.0)
    print(f"a leader after {time.monotonic() - began:.1f} s")
    wait_until(lambda: all(here.status(node) == "ready" for node in here.nodes.values()), 30.0)
    assert here.tasks() == tasks
    after = here.state_of(here.server)
    for table in ("jobs", "allocations", "evaluations", "deployments"):
        assert after[table] == before[table]
    here.check_at_rest()
    here.server.run(shell_job("after", count=2))
    here.running_by_node("after", 2)


def test_services_of_a_node_that_was_lost_while_all_servers_were_away_are_withdrawn(here: Region) -> None:
    """B214."""
    apart = [{"Operand": "distinct_hosts", "LTarget": "", "RTarget": "true"}]
    service = {"Name": "found", "Provider": "nomad", "AddressMode": "host"}
    here.server.run(shell_job("found", count=2, group={"Services": [service]}, Constraints=apart))
    by_node = {name: one["ID"] for name, (one,) in here.running_by_node("found", 2).items()}

    def instances() -> set[str]:
        return {one["AllocID"] for one in here.server.get("/v1/service/found")}

    wait_until(lambda: instances() == set(by_node.values()))
    for agent in here.servers.values():
        agent.kill9()
    here.bed.power_off(here.nodes["two"])
    for agent in here.servers.values():
        agent.spawn()
    here.leader(within_s=40.0)
    wait_until(lambda: here.status(here.nodes["two"]) == "down", 40.0)
    wait_until(lambda: instances() == {by_node["one"]})


def test_r7_a_node_that_lost_its_power_is_replaced_and_none_runs_twice(here: Region) -> None:
    """B203: a machine that comes back asks the servers before it starts anything of what it had."""
    starts = here.bed.folder / "starts"
    script = f"echo $NOMAD_ALLOC_ID >> {starts}; exec sleep 1000"
    moves = {"Unlimited": True, "Delay": 5_000_000_000, "DelayFunction": "constant"}
    with here.judged(witness=here.followers()[0], setters=1) as load:
        here.server.run(shell_job("moved", script, count=6, group={"ReschedulePolicy": moves}))
        load.acknowledged.append("moved")
        placed = here.running_by_node("moved", 6)
        victim = here.nodes[max(placed, key=lambda name: len(placed[name]))]
        here.bed.power_off(victim)
        began = time.monotonic()
        wait_until(lambda: here.status(victim) == "down", 30.0)
        wait_until(lambda: victim.name not in here.running_by_node("moved", 6), 30.0)
        print(f"replaced after {time.monotonic() - began:.1f} s")
    started = starts.read_text().split()
    assert len(started) == len(set(started)) >= 6 + len(placed[victim.name])


@pytest.mark.parametrize("cut", ["both ways", "what it is sent"])
def test_r8_the_leader_is_cut_off(here: Region, cut: str) -> None:
    """The others elect one of them; the old one refuses writes and reads, but for stale ones."""
    victim = here.leader()
    witness, other = here.followers()
    with here.judged(witness=witness, jobs=cut == "both ways"):
        everyone = [*here.servers.values(), *here.nodes.values()]
        for agent in everyone:
            if agent is not victim and cut == "both ways":
                here.bed.cut(victim, agent)
            if agent is not victim:
                here.bed.cut(agent, victim)
        new = here.leader(witness, other, within_s=30.0)
        assert new is not victim
        new.run(shell_job("meanwhile"))
        refused = victim.request("GET", "/v1/jobs", timeout_s=15.0)
        assert refused.status == 500
        assert "No cluster leader" in refused.text
        refused = victim.request("PUT", "/v1/jobs", {"Job": shell_job("never")}, timeout_s=15.0)
        assert refused.status == 500
        stale = victim.request("GET", "/v1/jobs?stale")
        assert stale.status == 200
        assert int(stale.headers["x-nomad-lastcontact"]) > 1_000
        assert "meanwhile" not in {job["ID"] for job in stale.json}
        here.bed.heal()
        began = time.monotonic()
        here.leader(within_s=30.0)
        wait_until(lambda: "meanwhile" in {job["ID"] for job in victim.get("/v1/jobs", stale="true")}, 30.0)
        print(f"converged {time.monotonic() - began:.1f} s after healing")
    assert "never" not in {job["ID"] for job in here.server.get("/v1/jobs")}


def test_r8_a_follower_is_cut_off_from_the_servers_and_its_nodes_go_elsewhere(here: Region) -> None:
    witness, victim = here.followers()
    with here.judged(witness=witness, jobs=False) as load:
        here.bed.isolate(victim, *[one for one in here.servers.values() if one is not victim])
        wait_until(lambda: here.members(witness)[victim.name] == "failed", 15.0)
        refused = victim.request("GET", "/v1/jobs", timeout_s=15.0)
        assert (refused.status, refused.text) == (500, "No cluster leader")
        here.server.run(shell_job("elsewhere", count=4))
        load.acknowledged.append("elsewhere")
        here.running_by_node("elsewhere", 4, 30.0)
        assert all(here.status(node) == "ready" for node in here.nodes.values())


def test_r8_a_node_is_cut_off_from_all_servers(here: Region) -> None:
    with here.judged(witness=here.followers()[0], setters=1, jobs=False) as load:
        here.server.run(shell_job("two", count=4))
        load.acknowledged.append("two")
        here.running_by_node("two", 4)
        node = here.nodes["two"]
        here.bed.isolate(node, *here.servers.values())
        wait_until(lambda: here.status(node) == "down", 30.0)
        wait_until(lambda: "two" not in here.running_by_node("two", 4), 30.0)


@pytest.mark.parametrize("what", ["the agent", "its machine"])
def test_r9_a_leader_that_stood_still_serves_nothing_old_and_writes_nothing(here: Region, what: str) -> None:
    victim = here.leader()
    witness, other = here.followers()
    with here.judged(witness=witness, jobs=False):
        with here.stopped(victim, all_of_it=what == "its machine"):
            new = here.leader(witness, other, within_s=30.0)
            assert new is not victim
            new.run(shell_job("unseen"))
        for _ in range(20):
            answer = victim.request("GET", "/v1/job/unseen", timeout_s=15.0)
            assert answer.status in (200, 500), answer.text
            assert answer.status == 200 or "No cluster leader" in answer.text
        here.leader()
