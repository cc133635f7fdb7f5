"""A cluster on a test bed: one server, some nodes, and what must always be true of them.

`Cluster.check_at_rest` holds the cluster to it once nothing moves any more: live allocations of each group are as many
as the job says, with the names 0 to count - 1 once each; ports of a node are given once; and a task runs on a machine
exactly when an allocation says so.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.bed import SERVER, Bed, ClusterAgent, node_of, wait_until

NODES = ("one", "two", "three")
LIVE = {"pending", "running"}


class Cluster:
    """A server, its nodes by name, and the bed that they are on."""

    def __init__(self, bed: Bed, server: ClusterAgent, nodes: Mapping[str, ClusterAgent]) -> None:
        self.bed = bed
        self.server = server
        self.nodes = nodes

    def node_names(self) -> dict[str, str]:
        """Names of nodes by id."""
        return {node["ID"]: node["Name"] for node in self.server.get("/v1/nodes")}

    def status(self, node: ClusterAgent) -> str:
        """What the server thinks of a node."""
        return next(str(seen["Status"]) for seen in self.server.get("/v1/nodes") if seen["Name"] == node.name)

    def where(self, allocation: Mapping[str, Any]) -> ClusterAgent:
        """The node of an allocation."""
        return self.nodes[allocation["NodeName"]]

    def running_by_node(self, job_id: str, count: int, within_s: float = 20.0) -> dict[str, list[Any]]:
        """Wait until `count` allocations of a job run; they by the name of their node."""
        found: dict[str, list[Any]] = {}
        for allocation in self.server.running(job_id, count, within_s):
            found.setdefault(allocation["NodeName"], []).append(allocation)
        return found

    # Between tests

    def recover(self) -> None:
        """Heal the network, start what was ended, let every node take work."""
        self.bed.heal()
        for agent in (self.server, *self.nodes.values()):
            if not agent.machine.is_on:
                self.bed.boot(agent)
            self.bed.plug(agent)
            if agent.process is None:
                agent.start()
        wait_until(lambda: all(self.status(node) == "ready" for node in self.nodes.values()), 30.0)
        for node_id in self.node_names():
            self.server.put(f"/v1/node/{node_id}/eligibility", {"Eligibility": "eligible"})

    def clear(self) -> None:
        """Purge all jobs; returns when no task runs anywhere."""
        for job in self.server.get("/v1/jobs"):
            self.server.delete(f"/v1/job/{job['ID']}", purge="true")
        wait_until(lambda: not self.tasks())

    # What must be true

    def check_at_rest(self, within_s: float = 20.0) -> None:
        """Wait until nothing moves; then everything must be in order."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.disorder(), within_s)
        if disorder := self.disorder():
            raise AssertionError("; ".join(disorder))

    def disorder(self) -> list[str]:
        """What is not as it should be at rest."""
        allocations = [alloc for alloc in self.server.get("/v1/allocations?resources=true") if _wanted(alloc)]
        return [*self._wrong_counts(allocations), *self._doubled_ports(allocations), *self._strays(allocations)]

    def _wrong_counts(self, allocations: Iterable[Any]) -> Iterator[str]:
        live: dict[tuple[str, str], list[str]] = {}
        for alloc in allocations:
            live.setdefault((alloc["JobID"], alloc["TaskGroup"]), []).append(alloc["Name"])
        for stub in self.server.get("/v1/jobs"):
            job = self.server.get(f"/v1/job/{stub['ID']}")
            if job["Type"] != "service" or job["Stop"]:
                continue
            for group in job["TaskGroups"]:
                wanted = [f"{job['ID']}.{group['Name']}[{number}]" for number in range(group["Count"])]
                if sorted(wanted) != (found := sorted(live.get((job["ID"], group["Name"]), []))):
                    yield f"{job['ID']}: wanted {wanted}, found {found}"

    def _doubled_ports(self, allocations: Iterable[Any]) -> Iterator[str]:
        used = Counter(
            (alloc["NodeName"], port["Value"])
            for alloc in allocations
            for port in ((alloc["AllocatedResources"] or {}).get("Shared") or {}).get("Ports") or ()
        )
        for (node, port), times in used.items():
            if times > 1:
                yield f"port {port} of {node} was given {times} times"

    def _strays(self, allocations: Iterable[Any]) -> Iterator[str]:
        wanted = {(alloc["NodeName"], alloc["ID"]) for alloc in allocations if alloc["ClientStatus"] == "running"}
        runs = self.tasks()
        yield from (f"allocation {alloc_id} has no task on {node}" for node, alloc_id in wanted - runs)
        yield from (f"a task of allocation {alloc_id} runs on {node}" for node, alloc_id in runs - wanted)

    def tasks(self) -> set[tuple[str, str]]:
        """Node name and allocation id of everything that runs as part of a task."""
        pids = [(node.name, pid) for node in self.nodes.values() for pid in node.machine.pids()]
        return {(name, alloc_id) for name, pid in pids for alloc_id in _ids(pid)}

    def first_process(self, allocation: Mapping[str, Any]) -> int:
        """The oldest process of an allocation on its machine; 0 when there is none."""
        pids = [pid for pid in self.where(allocation).machine.pids() if allocation["ID"] in _ids(pid)]
        return min(pids, key=_started_at, default=0)


def _wanted(alloc: Mapping[str, Any]) -> bool:
    return alloc["DesiredStatus"] == "run" and alloc["ClientStatus"] in LIVE


def _started_at(pid: int) -> int:
    """Clock ticks since the host's start; one that has ended meanwhile counts as new."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return sys.maxsize


def _ids(pid: int) -> list[str]:
    """The allocation that a process belongs to, if any."""
    mark = b"NOMAD_ALLOC_ID="
    with contextlib.suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return [entry.removeprefix(mark).decode() for entry in entries if entry.startswith(mark)]
    return []


@contextlib.contextmanager
def cluster(folder: Path, **settings: Any) -> Iterator[Cluster]:
    """A bed with a server and three nodes that are ready. settings: more of the server's configuration."""
    with Bed(folder) as bed:
        server = bed.agent("server", {**SERVER, **settings})
        nodes = {name: bed.agent(name, node_of(server), start=False) for name in NODES}
        for node in nodes.values():
            node.spawn()
        for node in nodes.values():
            node.wait_until_well()
        yield Cluster(bed, server, nodes)
