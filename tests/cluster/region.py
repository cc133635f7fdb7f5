"""A region on a test bed: three servers with an etcd each, formed by themselves, and nodes that know all of them.

`judged(load, witness)` is the scenario: callers go on while the faults inside happen; at its end everything is healed,
comes to rest, and is held to the invariants that `tests.cluster.checkers` knows.
"""

import contextlib
import itertools
import json
import os
import signal
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster import checkers
from tests.cluster.bed import NETWORK, PORTS, Bed, ClusterAgent, wait_until
from tests.cluster.cluster import Cluster
from tests.cluster.load import PRIVATE, SECRET, Load
from tests.cluster.machines import children

SERVERS = ("s1", "s2", "s3")
NODES = ("one", "two")
FIRST = 2
"""The first machine after the desk."""
TABLES = ("jobs", "nodes", "allocations", "evaluations", "deployments")
FORM_S = 60.0
GOSSIP_KEY = b64encode(b"the key of a region on a bed....").decode()
"""From it every server derives the key that encrypts variables."""
EPHEMERAL = 32_768
LISTENS = "0A"
"""A state in /proc/net/tcp."""
SPARE = {"descriptors": 40, "threads": 12}
"""By how much an agent may grow from one rest to the next: pools of threads, and connections. When all nodes have come
to one server it has 12 of them, and as many to the leader, where they were spread before."""


class Region(Cluster):
    """Servers and nodes by name."""

    def __init__(self, bed: Bed, servers: dict[str, ClusterAgent], nodes: dict[str, ClusterAgent]) -> None:
        self.bed = bed
        self.servers = servers
        self.nodes = nodes
        self.held: dict[str, dict[str, int]] = {}
        """What agents held when they had formed and nothing ran yet."""

    @property
    def agents(self) -> dict[str, ClusterAgent]:
        """Servers and nodes by name."""
        return self.servers | self.nodes

    # Servers

    @property
    def server(self) -> ClusterAgent:  # type: ignore[override]
        """A server that knows a leader."""
        return self.known_leader()

    def status_or_none(self, node: ClusterAgent) -> str:
        """What the servers think of a node, "" while they have not heard of it."""
        return next((str(seen["Status"]) for seen in self.server.get("/v1/nodes") if seen["Name"] == node.name), "")

    def leader_of(self, agent: ClusterAgent) -> str:
        """The host of the leader that a server knows, "" when it does not answer or knows none."""
        with contextlib.suppress(OSError, AssertionError, ValueError):
            answer = agent.request("GET", "/v1/status/leader", timeout_s=2.0)
            return str(answer.json).rpartition(":")[0] if answer.status == 200 else ""
        return ""

    def leader(self, *among: ClusterAgent, within_s: float = 20.0) -> ClusterAgent:
        """The leader that these servers (all that run when none is named) agree on."""

        def agreed() -> ClusterAgent | None:
            asked = among or [one for one in self.servers.values() if one.process is not None]
            hosts = {self.leader_of(one) for one in asked}
            return next((one for one in asked if hosts == {one.host}), None)

        found: ClusterAgent | None = None

        def look() -> bool:
            nonlocal found
            found = agreed()
            return found is not None

        wait_until(look, within_s)
        assert found is not None
        return found

    def known_leader(self) -> ClusterAgent:
        """The leader as soon as any server that runs knows it."""
        found: list[ClusterAgent] = []

        def look() -> bool:
            running = [one for one in self.servers.values() if one.process is not None]
            hosts = {self.leader_of(one) for one in running}
            found[:] = [one for one in running if one.host in hosts]
            return bool(found)

        wait_until(look, 30.0)
        return found[0]

    def followers(self) -> list[ClusterAgent]:
        """The servers that do not lead."""
        leader = self.leader()
        return [one for one in self.servers.values() if one is not leader]

    def addresses(self) -> list[str]:
        """Of the servers' APIs."""
        return [one.address for one in self.servers.values()]

    def members(self, asked: ClusterAgent) -> dict[str, str]:
        """Statuses of the servers by name, as one of them tells."""
        return {one["Name"].partition(".")[0]: one["Status"] for one in asked.get("/v1/agent/members")["Members"]}

    def state_of(self, agent: ClusterAgent) -> dict[str, Any]:
        """What a server has, whoever leads.

        The index of a summary is left out: it is not stored, and a server that has just read everything takes that
        revision for it.
        """
        found = {table: agent.get(f"/v1/{table}", stale="true") for table in TABLES}
        for job in found["jobs"]:
            del job["JobSummary"]["ModifyIndex"]
        return found

    @contextlib.contextmanager
    def stopped(self, agent: ClusterAgent, *, all_of_it: bool = False) -> Iterator[None]:
        """An agent, or everything on its machine, stands still."""
        pids = agent.machine.pids() if all_of_it else [agent.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            assert agent.process is not None
            for pid in (*pids, agent.process.pid):  # nsenter stops itself when what it has started is stopped
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    # Rest

    def recover(self) -> None:
        """Heal the network, start what was ended; all servers agree, and every node is ready."""
        self.bed.heal()
        for agent in (*self.servers.values(), *self.nodes.values()):
            if not agent.machine.is_on:
                self.bed.boot(agent, wait=False)
            elif agent.process is None:
                agent.spawn()
        self.leader(within_s=40.0)
        wait_until(lambda: all(self.status(node) == "ready" for node in self.nodes.values()), 40.0)
        for node_id in self.node_names():
            self.server.put(f"/v1/node/{node_id}/eligibility", {"Eligibility": "eligible"})

    def clear(self) -> None:
        """Purge all jobs; returns when no task runs anywhere, and the servers have forgotten what has ended."""
        for job in self.server.get("/v1/jobs"):
            self.server.delete(f"/v1/job/{job['ID']}", purge="true")
        wait_until(lambda: not self.tasks(), 40.0)
        self.server.put("/v1/system/gc")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.leaks(), 30.0, every_s=0.5)
        if leaks := self.leaks():
            names = {leak.partition(":")[0] for leak in leaks}
            open_now = [f"{name}: {connections(self.agents[name])}" for name in names]
            raise AssertionError("\n".join([*leaks, *open_now]))

    def leaks(self) -> list[str]:
        """V11, while nothing runs."""
        return checkers.leaks(self.held, self.holdings(), SPARE)

    def holdings(self) -> dict[str, dict[str, int]]:
        """What each agent and its machine hold now."""
        return {name: holdings(agent) for name, agent in self.agents.items()}

    def leaked_secrets(self) -> list[str]:
        """V10: in logs, command lines, lists and files."""
        agents, servers = self.agents.items(), self.servers.items()
        logs = ((f"the log of {name}", agent.log().encode()) for name, agent in agents)
        commands = (
            (f"the command line of process {pid} of {name}", _read(Path(f"/proc/{pid}/cmdline")))
            for name, agent in agents
            for pid in agent.machine.pids()
        )
        lists = ((f"a list of {name}", json.dumps(self.state_of(agent)).encode()) for name, agent in servers)
        kept = ((str(path), _read(path)) for _, agent in agents for path in _files(agent.data))
        return [
            *checkers.leaked_secrets([SECRET, PRIVATE], itertools.chain(logs, commands)),
            *checkers.leaked_secrets([SECRET], itertools.chain(lists, kept)),
        ]

    def unsettled(self) -> list[str]:
        """Evaluations and deployments that have not ended."""
        server = self.server
        found = [one["ID"] for one in server.get("/v1/evaluations") if one["Status"] in ("pending", "blocked")]
        return found + [one["ID"] for one in server.get("/v1/deployments") if one["Status"] == "running"]

    @contextlib.contextmanager
    def judged(self, *, witness: ClusterAgent | None = None, **load: Any) -> Iterator[Load]:
        """Callers go on while the body does harm; then all is healed and judged. witness: a server that is spared."""
        with Load(self.addresses(), witness.address if witness is not None else "", **load) as made:
            time.sleep(1.0)
            yield made
            self.recover()
            made.end_calls()
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not self.wrong(made), 30.0, every_s=0.5)
            present = self.present()
        told = [] if made.stream_broke or not made.events else checkers.wrong_stream(made.events, present)
        if wrong := [*self.wrong(made), *told, *made.complaints(), *self.leaked_secrets()]:
            raise AssertionError("\n".join(wrong[:40]))

    def wrong(self, load: Load) -> list[str]:
        """V1, V5 to V8 and V12, now."""
        server = self.server
        jobs = [server.get(f"/v1/job/{stub['ID']}") for stub in server.get("/v1/jobs") if "dispatch-" not in stub["ID"]]
        allocations = server.get("/v1/allocations", resources="true")
        nodes = [server.get(f"/v1/node/{node_id}") for node_id in self.node_names()]
        pending = [one["ID"] for one in server.get("/v1/evaluations") if one["Status"] == "pending"]
        return [
            *[f"evaluation {eval_id} is pending" for eval_id in pending],
            *checkers.lost_writes(load.acknowledged, [job["ID"] for job in jobs]),
            *checkers.wrong_counts(jobs, allocations),
            *checkers.overused(nodes, allocations),
            *checkers.strays(allocations, self.tasks()),
            *checkers.too_many_restarts(allocations, 0),
            *checkers.different_states({name: self.state_of(agent) for name, agent in self.servers.items()}),
        ]

    def present(self) -> dict[tuple[str, str], int]:
        """Modify indexes of jobs and allocations, by topic and key, for V9."""
        server = self.server
        jobs = {("Job", one["ID"]): one["ModifyIndex"] for one in server.get("/v1/jobs") if "load-" in one["ID"]}
        return jobs | {("Allocation", one["ID"]): one["ModifyIndex"] for one in server.get("/v1/allocations")}


def server_settings(**more: Any) -> dict[str, Any]:
    """One of three servers that form a cluster by themselves. Names and addresses are those of the bed."""
    hosts = [f"{NETWORK}.{FIRST + number}" for number in range(len(SERVERS))]
    return {
        "server": {
            "enabled": True,
            "bootstrap_expect": len(SERVERS),
            "retry_join": hosts,
            "encrypt": GOSSIP_KEY,
            "min_heartbeat_ttl": "1s",
            "heartbeat_grace": "4s",
            "failover_heartbeat_ttl": "8s",
        },
        **more,
    }


def node_settings() -> dict[str, Any]:
    """A node that is told of one server by `servers` and of the others by `server_join`."""
    first, *others = [f"{NETWORK}.{FIRST + number}" for number in range(len(SERVERS))]
    return {
        "client": {
            "enabled": True,
            "servers": [f"{first}:{PORTS['rpc']}"],
            "server_join": {"retry_join": others},
            "cpu_total_compute": 2_000,
            "memory_total_mb": 4_000,
        },
        "plugin": {"raw_exec": {"config": {"enabled": True}}},
    }


@contextlib.contextmanager
def region(folder: Path) -> Iterator[Region]:
    """A bed with three servers and two nodes that are ready."""
    with Bed(folder) as bed:
        servers = {name: bed.agent(name, server_settings(), start=False) for name in SERVERS}
        nodes = {name: bed.agent(name, node_settings(), start=False) for name in NODES}
        for agent in (*servers.values(), *nodes.values()):
            agent.spawn()
        made = Region(bed, servers, nodes)
        made.leader(within_s=FORM_S)
        wait_until(lambda: {made.status_or_none(node) for node in nodes.values()} == {"ready"}, FORM_S)
        made.held = made.holdings()
        yield made


def holdings(agent: ClusterAgent) -> dict[str, int]:
    """Descriptors and threads of an agent; processes, mounts and network namespaces of its machine."""
    process, machine = Path(f"/proc/{agent.pid}"), agent.machine
    named = Path(f"/proc/{machine.pid}/root/run/netns")
    return {
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "processes": len(machine.pids()),
        "mounts": machine.mounts,
        "network namespaces": len(list(named.iterdir())) if named.is_dir() else 0,
        "temporary files": len(list(agent.temporary.iterdir())),
    }


def connections(agent: ClusterAgent) -> str:
    """What an agent's connections are, for a person: how many to or from whom, by the port that is known."""
    process = Path(f"/proc/{agent.pid}")
    held = {os.readlink(path) for path in (process / "fd").iterdir()}
    found: Counter[str] = Counter()
    for row in (process / "net/tcp").read_text().splitlines()[1:]:
        words = row.split()
        if f"socket:[{words[9]}]" in held and words[3] != LISTENS:
            here, there = (_host_and_port(word) for word in words[1:3])
            found[f"to {there[0]}:{there[1]}" if here[1] >= EPHEMERAL else f"from {there[0]} to port {here[1]}"] += 1
    return ", ".join(f"{count} {what}" for what, count in found.most_common()) or "none"


def _host_and_port(text: str) -> tuple[str, int]:
    """An address of /proc/net/tcp, IPv4 in the machine's byte order."""
    host, _, port = text.partition(":")
    return ".".join(str(part) for part in int(host, 16).to_bytes(4, sys.byteorder)), int(port, 16)


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, those that are a task's secrets left out."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "secrets"]
        yield from (path for name in names if (path := Path(where, name)).is_file() and not path.is_symlink())


def _read(path: Path) -> bytes:
    """Its content, nothing when it is gone or cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def etcd_of(agent: ClusterAgent) -> int:
    """The etcd beside a server."""
    for pid in [agent.pid, *children(agent.pid)]:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "etcd":
                return pid
    raise AssertionError(f"{agent.name} has no etcd")
