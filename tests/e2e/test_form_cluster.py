"""Servers that form a cluster by themselves: real agents, each with an etcd beside it.

Over lepa.agent.server_part, lepa.agent.own_etcd, lepa.agent.store_peers, lepa.store.etcd_process and
lepa.store.etcd_members.
"""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.components import require
from tests.e2e.agents import Agent, _free_port, eventually, free_ports, merged

require("etcd", "etcd-server")

FORMED_S = 40.0


def server(folder: Path, name: str, joins: Sequence[int], settings: Mapping[str, Any] | None = None) -> Agent:
    """An agent that is only a server, not started. joins: internal ports of others."""
    ports = free_ports() | {"etcd": _free_port(), "etcd_peer": _free_port()}
    wanted = {
        "name": name,
        "server": {"bootstrap_expect": 3, "retry_join": [f"127.0.0.1:{port}" for port in joins]},
        "client": {"enabled": False},
        "dns": {"enabled": False},
        "consul_api": {"enabled": False},
    }
    return Agent(folder / name, dev=False, settings=merged(wanted, settings or {}), ports=ports)


def joined(agents: Sequence[Agent]) -> None:
    """Let each know the internal ports of all."""
    for agent in agents:
        config = json.loads(agent.config.read_text())
        config["server"]["retry_join"] = [f"127.0.0.1:{one.ports['rpc']}" for one in agents]
        agent.configure(config)


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


def refused(agent: Agent) -> str:
    """Start an agent that will not; what it says."""
    agent.spawn()
    assert agent.wait() == 1, agent.log()
    agent.process = None
    return agent.log()


def test_three_servers_form_a_cluster_and_keep_it(tmp_path: Path) -> None:
    a, b, c = agents = [server(tmp_path, name, ()) for name in "abc"]
    joined(agents)
    with closing(agents):
        # two of three wait, say for whom, and do no harm
        a.spawn(), b.spawn()
        said = eventually(lambda: _waiting(a), FORMED_S)
        assert "2 of 3 servers are here (a, b)" in said
        assert f"127.0.0.1:{c.ports['rpc']} does not answer: connection refused" in said
        assert etcd_pid(a) == 0
        c.spawn()
        formed(agents)
        assert namespace(a, "one")
        assert namespaces(c) == {"default", "one"}

        # an etcd that dies is started again
        first = etcd_pid(b)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: etcd_pid(b) not in (0, first), FORMED_S)
        assert eventually(lambda: namespace(b, "two"), FORMED_S)

        # all are killed; their etcds end with them; all is there again
        for agent in agents:
            agent.kill9()
        eventually(lambda: not any(map(etcd_pid, agents)), FORMED_S)
        for agent in agents:
            agent.spawn()
        formed(agents)
        assert namespaces(a) == namespaces(b) == namespaces(c) == {"default", "one", "two"}

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
        d = server(tmp_path, "d", [a.ports["rpc"], b.ports["rpc"]])
        with closing([d]):
            d.spawn()
            formed([a, b, d])
            assert namespace(d, "three")
            eventually(lambda: "votes in the cluster" in d.log(), FORMED_S)
            # the one that was gone is told that it is no member any more, and joins anew
            c.spawn()
            formed([a, b, c, d])
            assert "removed from its cluster, joins anew" in c.log()
            assert "three" in eventually(lambda: namespaces(c), FORMED_S)


def _waiting(agent: Agent) -> str:
    with contextlib.suppress(OSError):
        text = agent.request("GET", "/v1/jobs").text
        return text if "2 of 3" in text else ""
    return ""


def test_the_data_of_another_cluster_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    a, strange = server(tmp_path, "a", ()), server(tmp_path, "b", ())
    agents = [a, strange]
    joined(agents)
    for agent, cluster in ((a, "first"), (strange, "second")):
        url = f"http://127.0.0.1:{agent.ports['etcd']}"
        peer = f"http://127.0.0.1:{agent.ports['etcd_peer']}"
        folder = agent.data / "server"
        (folder / "etcd" / "member").mkdir(parents=True)
        (agent.data / "agent.lock").touch()
        name = agent.folder.name
        record = {"name": name, "rpc_address": f"127.0.0.1:{agent.ports['rpc']}", "peer_url": peer, "client_url": url}
        (folder / "cluster.json").write_text(json.dumps({"cluster": cluster, "name": name, "peers": [record]}))
    with closing(agents):
        a.spawn()
        eventually(lambda: leader(a), FORMED_S)
        said = refused(strange)
        assert 'belongs to the cluster second, and "a" at' in said
        assert "begin with an empty data directory" in said
        assert (strange.data / "server" / "cluster.json").exists()
