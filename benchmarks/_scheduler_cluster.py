"""The cluster of the scheduler's benchmarks: Nomad's own (14,000 MHz, 32,000 MB, racks, two datacenters)."""

from collections.abc import Iterable, Sequence
from time import perf_counter

import numpy as np

from lepa.model.allocation import Allocation
from lepa.model.constraint import Constraint, Spread
from lepa.model.deployment import Deployment
from lepa.model.job import Job, TaskGroup
from lepa.model.node import (
    DriverInfo,
    LegacyNodeCpuResources,
    Node,
    NodeDiskResources,
    NodeMemoryResources,
    NodeResources,
)
from lepa.model.operator import SchedulerConfiguration
from lepa.model.resources import Resources
from lepa.model.task import Task
from lepa.model.tenancy import NodePool
from lepa.model.usage import NodeUsage, usage_of
from lepa.scheduler.columns import Mask, NodeColumns


def make_cluster(nodes: int, racks: int) -> "Cluster":
    """Empty nodes, with their columns read once."""
    cluster = Cluster([_node(number, racks) for number in range(nodes)])
    cluster.columns.refresh(cluster)
    return cluster


def _node(number: int, racks: int) -> Node:
    driver = DriverInfo(detected=True, healthy=True)
    return Node(
        id=f"00000000-0000-0000-0000-{number:012d}",
        name=f"node-{number}",
        datacenter=f"dc{number % 2 + 1}",
        status="ready",
        attributes={"kernel.name": "linux", "cpu.arch": "amd64"},
        meta={"rack": f"r{number % racks}"},
        drivers={"exec": driver},
        computed_class=f"r{number % racks}",
        node_resources=NodeResources(
            cpu=LegacyNodeCpuResources(cpu_shares=14_000, total_cpu_cores=4),
            memory=NodeMemoryResources(memory_mb=32_000),
            disk=NodeDiskResources(disk_mb=100_000),
        ),
    )


def make_job(
    count: int, *, spreads: tuple[Spread, ...] = (), constraints: tuple[Constraint, ...] = (), job_id: str = "bench"
) -> Job:
    """A service of one group of one small task."""
    task = Task(name="t", driver="exec", resources=Resources(cpu=100, memory_mb=128))
    group = TaskGroup(name="g", count=count, tasks=(task,), spreads=spreads)
    return Job(id=job_id, name=job_id, datacenters=("dc1", "dc2"), constraints=constraints, task_groups=(group,))


class Cluster:
    """A `lepa.scheduler.view.View` that never changes but for its one job."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.index = 1
        self.columns = NodeColumns()
        self._nodes = {node.id: node for node in nodes}
        self._job: Job | None = None

    def put_job(self, job: Job) -> Job:
        """Let this be the job."""
        self._job = job
        return job

    def job(self, namespace: str, job_id: str) -> Job | None:
        return self._job

    def job_version(self, namespace: str, job_id: str, version: int) -> Job | None:
        return self._job

    def job_allocations(self, namespace: str, job_id: str) -> Sequence[Allocation]:
        return ()

    def node_allocations(self, node_id: str) -> Sequence[Allocation]:
        return ()

    def node_usage(self, node_id: str) -> NodeUsage:
        return usage_of(self.node_allocations(node_id))

    def node(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def nodes(self) -> Iterable[Node]:
        return self._nodes.values()

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        return None

    def node_pool(self, name: str) -> NodePool | None:
        return None

    def scheduler_configuration(self) -> SchedulerConfiguration:
        return SchedulerConfiguration()

    def touched_nodes(self, since: int) -> frozenset[str] | None:
        return frozenset()


def place_plainly(cluster: Cluster, placements: int, feasible: Mask | None = None) -> float:
    """Seconds of the straightforward way: score every node in numpy, take the best, do it again."""
    capacity, used = cluster.columns.capacity[:3], cluster.columns.used[:3].copy()
    ask = np.array([100.0, 128.0, 300.0])
    collisions = np.zeros(capacity.shape[1])
    closed = np.zeros(capacity.shape[1], np.bool_) if feasible is None else ~feasible
    start = perf_counter()
    for _ in range(placements):
        after = used + ask[:, None]
        free = 1.0 - after[:2] / capacity[:2]
        score = (20.0 - np.exp(np.log(10.0) * free).sum(axis=0)) / 18.0
        crowded = collisions > 0
        score[crowded] = (score[crowded] - (collisions[crowded] + 1) / placements) / 2
        score[closed | (after > capacity).any(axis=0)] = -np.inf
        best = int(score.argmax())
        used[:, best] += ask
        collisions[best] += 1
    return perf_counter() - start
