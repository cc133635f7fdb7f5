"""Pure: what allocations occupy on a node, and what a node has to give.

An allocation *occupies* CPU, memory, disk, devices and cores until it is told to stop or its client says that it has
ended; it *holds its ports* until its client says so, because a process that is still shutting down still listens.
"""

from collections.abc import Iterable
from typing import NamedTuple

from lepa.model.allocation import Allocation
from lepa.model.job import TaskGroup
from lepa.model.node import Node
from lepa.model.policies import TaskLifecycle
from lepa.model.resources import AllocatedResources

ENDED_CLIENT_STATUSES = frozenset({"complete", "failed", "lost"})
STOPPED_DESIRED_STATUSES = frozenset({"stop", "evict"})


class Usage(NamedTuple):
    """CPU in MHz, memory and disk in MiB, and a number of whole cores."""

    cpu: int = 0
    memory: int = 0
    disk: int = 0
    cores: int = 0

    def fits(self, room: "Usage") -> bool:
        """Whether there is room for it in every dimension."""
        return not self.exhausted(room)

    def exhausted(self, room: "Usage") -> str:
        """The first dimension without enough room, in the words of AllocMetric, or ""."""
        for dimension, asked, left in zip(_DIMENSIONS, self, room, strict=True):
            if asked > left:
                return dimension
        return ""

    def plus(self, other: "Usage") -> "Usage":
        """The sum in every dimension."""
        return Usage(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def minus(self, other: "Usage") -> "Usage":
        """The difference in every dimension; may be negative."""
        return Usage(self[0] - other[0], self[1] - other[1], self[2] - other[2], self[3] - other[3])


class NodeUsage(NamedTuple):
    """What the allocations of a node occupy together, and how many of them do."""

    used: Usage = Usage()
    running: int = 0

    def changed(self, before: Allocation | None, after: Allocation | None) -> "NodeUsage":
        """The same after one allocation of the node has become another; None: it was not there, or is gone."""
        used, running = self
        if before is not None and occupies(before):
            used, running = used.minus(allocation_usage(before)), running - 1
        if after is not None and occupies(after):
            used, running = used.plus(allocation_usage(after)), running + 1
        return NodeUsage(used, running)


def usage_of(allocs: Iterable[Allocation]) -> NodeUsage:
    """What some allocations of one node occupy."""
    total = NodeUsage()
    for alloc in allocs:
        total = total.changed(None, alloc)
    return total


_DIMENSIONS = ("cpu", "memory", "disk", "cores")


def is_stopped(alloc: Allocation) -> bool:
    """Whether the servers want it to stop or be evicted."""
    return alloc.desired_status in STOPPED_DESIRED_STATUSES


def has_ended(alloc: Allocation) -> bool:
    """Whether its client says that it has ended, or its client is lost."""
    return alloc.client_status in ENDED_CLIENT_STATUSES


def occupies(alloc: Allocation) -> bool:
    """Whether it uses CPU, memory, disk, devices and cores of its node."""
    return alloc.client_status not in ENDED_CLIENT_STATUSES and alloc.desired_status not in STOPPED_DESIRED_STATUSES


def allocation_usage(alloc: Allocation) -> Usage:
    """What an allocation occupies, the peak over its life cycle."""
    return resources_usage(alloc.allocated_resources)


def resources_usage(resources: AllocatedResources) -> Usage:
    """What was given, the peak over the life cycle of its tasks."""
    if len(resources.tasks) == 1 and not any(resources.task_lifecycles.values()):
        (given,) = resources.tasks.values()
        cpu = given.cpu
        return Usage(cpu.cpu_shares, given.memory.memory_mb, resources.shared.disk_mb, len(cpu.reserved_cores))
    tasks = []
    for name, given in resources.tasks.items():
        usage = Usage(given.cpu.cpu_shares, given.memory.memory_mb, 0, len(given.cpu.reserved_cores))
        tasks.append((resources.task_lifecycles.get(name), usage))
    return _peak(tasks)._replace(disk=resources.shared.disk_mb)


def group_usage(group: TaskGroup, core_mhz: int = 0) -> Usage:
    """What one allocation of a group asks for on a node whose cores have `core_mhz` MHz each."""
    tasks = []
    for task in group.tasks:
        asked = task.resources
        cpu = asked.cores * core_mhz if asked.cores else asked.cpu
        tasks.append((task.lifecycle, Usage(cpu, asked.memory_mb, 0, asked.cores)))
    return _peak(tasks)._replace(disk=group.ephemeral_disk.size_mb)


def _peak(tasks: Iterable[tuple[TaskLifecycle | None, Usage]]) -> Usage:
    """The most that is used at one time: sidecars all along; beside them prestart, then main, then poststop tasks."""
    always, before, main, after = Usage(), Usage(), Usage(), Usage()
    for lifecycle, usage in tasks:
        if lifecycle is None or (lifecycle.hook == "poststart" and not lifecycle.sidecar):
            main = main.plus(usage)
        elif lifecycle.sidecar:
            always = always.plus(usage)
        elif lifecycle.hook == "prestart":
            before = before.plus(usage)
        else:
            after = after.plus(usage)
    return always.plus(Usage(*map(max, before, main, after)))


def node_capacity(node: Node) -> Usage:
    """What a node has for jobs: everything less what its operator keeps back."""
    has, kept = node.node_resources, node.reserved_resources
    return Usage(
        has.cpu.cpu_shares - kept.cpu.cpu_shares,
        has.memory.memory_mb - kept.memory.memory_mb,
        has.disk.disk_mb - kept.disk.disk_mb,
        len(free_core_ids(node, ())),
    )


def core_mhz(node: Node) -> int:
    """MHz of one core of a node, for tasks that ask for whole cores."""
    return node.node_resources.cpu.cpu_shares // max(1, node.node_resources.cpu.total_cpu_cores)


def free_core_ids(node: Node, allocs: Iterable[Allocation]) -> tuple[int, ...]:
    """Ids of the cores that tasks may still reserve beside `allocs`, in ascending order."""
    cpu = node.node_resources.cpu
    taken = set(node.reserved_resources.cpu.reserved_cpu_cores)
    for alloc in allocs:
        for task in alloc.allocated_resources.tasks.values():
            taken.update(task.cpu.reserved_cores)
    return tuple(core for core in sorted(cpu.reservable_cpu_cores) if core not in taken)
