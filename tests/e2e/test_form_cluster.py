"""Servers that form a cluster by themselves: real agents, each with an etcd beside it.

Over lepa.agent.server_part, lepa.agent.cluster_service, lepa.agent.own_etcd, lepa.agent.store_peers, lepa.cli.snapshot,
and lepa.store.etcd_members.
"""

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.components import require
from tests.e2e.agents import LEPA, Agent, Answer, _free_port, eventually, free_ports, merged
from tests.etcd import etcd_servers

from lepa.model.tenancy import Namespace
from lepa.model.wire import to_msgpack
from lepa.store.archive import write
from lepa.store.protocol import Entry, Image

require("etcd", "etcd-server")

pytestmark = pytest.mark.timeout(300)

FORMED_S = 60.0


HOSTS = {name: f"127.0.0.{number}" for number, name in enumerate("abcd", 2)}
"""Each server has an address of its own and the same ports, as on machines of their own."""


MOVED = "127.0.0.9"


def machines(folder: Path, names: str, settings: Mapping[str, Any] | None = None) -> list[Agent]:
    """Agents that are only servers and know each other's addresses, not started."""
    ports = free_ports() | {"etcd": _free_port(), "etcd_peer": _free_port()}
    return [_machine(folder, name, [HOSTS[one] for one in names], ports, settings or {}) for name in names]


def _machine(
    folder: Path, name: str, joins: Sequence[str], ports: Mapping[str, int], settings: Mapping[str, Any]
) -> Agent:
    wanted = {
        "name": name,
        "server": {"bootstrap_expect": 3, "retry_join": list(joins)},
        "client": {"enabled": False},
        "dns": {"enabled": False},
        "consul_api": {"enabled": False},
    }
    return Agent(folder / name, dev=False, settings=merged(wanted, settings), ports=ports, host=HOSTS[name])


@contextlib.contextmanager
def closing(agents: Sequence[Agent]) -> Iterator[None]:
    """At the end all are stopped, and nothing is left."""
    try:
        yield
    finally:
        left = [each for agent in agents for each in agent.close()]
    assert left == [], "\n".join(agent.log() for agent in agents)
    for agent in agents:
        assert "Traceback" not in agent.log(), agent.log()


def leader(agent: Agent) -> str:
    with contextlib.suppress(OSError):
        answer = agent.request("GET", "/v1/status/leader")
        return str(answer.json) if answer.status == 200 else ""
    return ""


def formed(agents: Sequence[Agent]) -> None:
    """Wait until all know the same leader."""

    def agreed() -> bool:
        found = {leader(agent) for agent in agents}
        return len(found) == 1 and found != {""}

    eventually(agreed, FORMED_S)


def etcd_pid(agent: Agent) -> int:
    found = [each for each in agent.processes() if "--initial-cluster-token" in each and "setpriv" not in each]
    return int(found[0].split()[1]) if found else 0


def namespace(agent: Agent, name: str) -> bool:
    return agent.request("PUT", "/v1/namespaces", {"Name": name}).status == 200


def namespaces(agent: Agent) -> set[str]:
    return {one["Name"] for one in agent.get("/v1/namespaces")}


def voters(agent: Agent) -> set[str]:
    return {each["ID"] for each in agent.get("/v1/operator/raft/configuration")["Servers"] if each["Voter"]}


def health(agent: Agent) -> Answer:
    return agent.request("GET", "/v1/operator/autopilot/health")


def certificates(folder: Path) -> dict[str, Any]:
    """Settings with which servers speak TLS with each other, and so do their etcds."""
    subprocess.run([LEPA, "tls", "ca", "create"], cwd=folder, check=True, capture_output=True)
    addresses = [f"-additional-ipaddress={host}" for host in HOSTS.values()]
    subprocess.run([LEPA, "tls", "cert", "create", "-server", *addresses], cwd=folder, check=True, capture_output=True)
    files = {
        "ca_file": str(folder / "nomad-agent-ca.pem"),
        "cert_file": str(folder / "global-server-nomad.pem"),
        "key_file": str(folder / "global-server-nomad-key.pem"),
    }
    return {"tls": {"rpc": True, "verify_server_hostname": True, **files}}


def refused(agent: Agent) -> str:
    """Start an agent that will not; what it says."""
    agent.spawn()
    assert agent.wait() == 1, agent.log()
    agent.process = None
    return agent.log()


def cli(agent: Agent, *words: str | Path) -> str:
    done = subprocess.run([LEPA, *words], env=agent.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_lone_server_saves_and_restores_its_state(tmp_path: Path) -> None:
    (alone,) = machines(tmp_path, "a", {"server": {"bootstrap_expect": 1, "retry_join": []}})
    archive = tmp_path / "a.snap"
    with closing([alone]):
        alone.spawn()
        formed([alone])
        assert namespace(alone, "saved")
        assert cli(alone, "operator", "snapshot", "save", archive) == f"State file written to {archive}\n"
        assert archive.stat().st_mode & 0o077 == 0
        assert "namespaces  1" in cli(alone, "operator", "snapshot", "inspect", archive)
        assert json.loads(cli(alone, "operator", "snapshot", "inspect", "-json", archive))["Meta"]["Version"] == 1
        index = alone.request("GET", "/v1/namespaces").index
        assert namespace(alone, "later")

        damaged = archive.read_bytes()[:-9]
        answer = alone.request("PUT", "/v1/operator/snapshot", damaged)
        assert answer.status == 400
        assert "nothing was taken from it" in answer.text
        elsewhere = b"".join(write(Image(5, []), 0, "", "eu", ""))
        answer = alone.request("PUT", "/v1/operator/snapshot", elsewhere)
        assert (answer.status, answer.text) == (400, 'the snapshot is of the region "eu", and this region is "global"')
        assert namespaces(alone) == {"default", "saved", "later"}

        assert cli(alone, "operator", "snapshot", "restore", archive) == "Snapshot Restored\n"
        formed([alone])
        assert namespaces(alone) == {"default", "saved"}
        assert alone.request("GET", "/v1/namespaces").index > index + 1
        assert namespace(alone, "after")
        assert "a.global" in cli(alone, "operator", "raft", "list-peers")
        assert alone.get("/v1/operator/autopilot/health")["Healthy"] is True
        assert cli(alone, "operator", "autopilot", "health").startswith("Healthy: true\nFailureTolerance: 0\n")
        assert not list((alone.data / "server").glob("snapshot-*"))


def test_three_servers_form_a_cluster_and_keep_it(tmp_path: Path) -> None:
    a, b, c = agents = machines(tmp_path, "abc")
    archive = tmp_path / "a.snap"
    saved = [Entry("namespaces/one", to_msgpack(Namespace(name="one")), 900, 5_000)]
    archive.write_bytes(b"".join(write(Image(5_000, saved), 0, "", "", "")))
    with closing(agents):
        # two of three wait, say for whom, and do no harm
        a.spawn(), b.spawn()
        said = eventually(lambda: _said(a, "2 of 3"), FORMED_S)
        assert f"2 of 3 servers are here (a, b); {c.host}:{c.ports['rpc']} does not answer: connection refused" in said
        assert etcd_pid(a) == 0
        c.spawn()
        formed(agents)

        # the state of a server that was alone is moved in, whoever is asked
        assert cli(c, "operator", "snapshot", "restore", archive) == "Snapshot Restored\n"
        formed(agents)
        for agent in agents:
            eventually(lambda agent=agent: namespaces(agent) == {"default", "one"}, FORMED_S)
        one = next(each for each in a.get("/v1/namespaces") if each["Name"] == "one")
        assert (one["CreateIndex"], one["ModifyIndex"] > 5_000) == (900, True)

        assert namespace(b, "two")

        # all are killed; their etcds end with them; all is there again
        for agent in agents:
            agent.kill9()
        eventually(lambda: not any(map(etcd_pid, agents)), FORMED_S)
        for agent in agents:
            agent.spawn()
        formed(agents)
        assert namespaces(a) == namespaces(b) == namespaces(c) == {"default", "one", "two"}

        # one comes back with its data at another address
        b.stop()
        config = json.loads(b.config.read_text())
        b.host = MOVED
        b.configure({**config, "bind_addr": MOVED})
        b.spawn()
        formed(agents)
        assert "two" in namespaces(b)
        assert "joins anew" not in b.log()
        address = f"{MOVED}:{b.ports['rpc']}"
        eventually(lambda: address in {each["Address"] for each in a.get("/v1/operator/raft/configuration")["Servers"]})


def test_servers_that_are_lost_or_leave_are_replaced(tmp_path: Path) -> None:
    encrypted = certificates(tmp_path) | {"autopilot": {"server_stabilization_time": "1s", "min_quorum": 3}}
    a, b, c = agents = machines(tmp_path, "abc", encrypted)
    with closing(agents):
        for agent in agents:
            agent.spawn()
        formed(agents)
        assert namespace(b, "two")
        assert "ServerStabilizationTime = 1s" in re.sub(" +", " ", cli(b, "operator", "autopilot", "get-config"))

        # one loses everything and comes back under its name
        c.kill9()
        eventually(lambda: not etcd_pid(c), FORMED_S)
        shutil.rmtree(c.data)
        c.spawn()
        formed(agents)
        assert "two" in eventually(lambda: namespaces(c), FORMED_S)

        # another takes the place of one that is gone for good
        c.kill9()
        eventually(lambda: not etcd_pid(c), FORMED_S)
        d = _machine(tmp_path, "d", [a.host, b.host], a.ports, {**encrypted, "leave_on_terminate": True})
        with closing([d]):
            d.spawn()
            formed([a, b, d])
            assert namespace(d, "three")
            eventually(lambda: "votes in the cluster" in d.log(), FORMED_S)
            assert voters(a) == {"a.global", "b.global", "d.global"}
            # the one that was gone is told that it is no member any more, and joins anew
            c.spawn()
            formed([a, b, c, d])
            assert "removed from its cluster, joins anew" in c.log()
            assert "three" in eventually(lambda: namespaces(c), FORMED_S)
            eventually(lambda: voters(a) == {"a.global", "b.global", "c.global", "d.global"}, FORMED_S)

            # one leaves for good by itself, another is taken out by an operator
            assert d.stop() == 0
            eventually(lambda: voters(a) == {"a.global", "b.global", "c.global"}, FORMED_S)
            eventually(lambda: health(a).status == 200 and health(a).json["FailureTolerance"] == 1, FORMED_S)
            c.kill9()
            eventually(lambda: health(a).status == 429 and health(a).json["FailureTolerance"] == 0, FORMED_S)
            cli(b, "operator", "raft", "remove-peer", "-peer-id=c.global")
            assert voters(a) == {"a.global", "b.global"}
            eventually(lambda: health(a).status == 200, FORMED_S)

            # where an operator wants it so, one that is gone is taken out without being asked for
            c.spawn()
            eventually(lambda: voters(a) == {"a.global", "b.global", "c.global"}, FORMED_S)
            cli(b, "operator", "autopilot", "set-config", "-cleanup-dead-servers=true", "-min-quorum=2")
            c.kill9()
            eventually(lambda: voters(a) == {"a.global", "b.global"}, FORMED_S)
            eventually(lambda: health(a).status == 200, FORMED_S)


def _said(agent: Agent, words: str) -> str:
    """What it says instead of a list of jobs, once these words are in it."""
    with contextlib.suppress(OSError):
        text = agent.request("GET", "/v1/jobs").text
        return text if words in text else ""
    return ""


def test_the_data_of_another_cluster_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    a, strange = agents = machines(tmp_path, "ab")
    for agent, cluster in ((a, "first"), (strange, "second")):
        url = f"http://{agent.host}:{agent.ports['etcd']}"
        peer = f"http://{agent.host}:{agent.ports['etcd_peer']}"
        folder = agent.data / "server"
        (folder / "etcd" / "member").mkdir(parents=True)
        (agent.data / "agent.lock").touch()
        name = agent.folder.name
        record = {
            "name": name,
            "rpc_address": f"{agent.host}:{agent.ports['rpc']}",
            "peer_url": peer,
            "client_url": url,
        }
        (folder / "cluster.json").write_text(json.dumps({"cluster": cluster, "name": name, "peers": [record]}))
    with closing(agents):
        a.spawn()
        eventually(lambda: leader(a), FORMED_S)
        said = refused(strange)
        assert 'belongs to the cluster second, and "a" at' in said
        assert "begin with an empty data directory" in said
        assert (strange.data / "server" / "cluster.json").exists()


def test_two_servers_on_an_etcd_of_somebody_else(tmp_path: Path) -> None:
    with etcd_servers(tmp_path / "etcd") as (etcd,):
        given = {"bootstrap_expect": 0, "retry_join": [], "etcd": {"endpoints": [etcd.endpoint]}}
        a, b = agents = machines(tmp_path, "ab", {"server": given})
        with closing(agents):
            a.spawn(), b.spawn()
            formed(agents)
            assert namespace(a, "one")
            assert "one" in namespaces(b)
            assert a.get("/v1/operator/autopilot/health")["FailureTolerance"] == 0
            eventually(lambda: voters(a) == {"a.global", "b.global"}, FORMED_S)

            # the endpoints of something else are noticed, and nothing is begun there in this server's place
            b.stop()
            config = json.loads(b.config.read_text())
            config["server"]["etcd"]["prefix"] = "elsewhere/"
            b.configure(config)
            b.spawn()
            said = 'the etcd holds no state of lepa under "elsewhere/", where there should be one'
            eventually(lambda: _said(b, said), FORMED_S)
            assert a.stop() == b.stop() == 0
            (b.data / "server" / "cluster-id").write_text("another")
            config["server"]["etcd"]["prefix"] = "lepa/"
            b.configure(config)
            b.spawn()
            eventually(lambda: _said(b, "belongs to the cluster another, and the etcd holds"), FORMED_S)
