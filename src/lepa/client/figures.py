"""Pure: figures of a node and of its allocations under Nomad's names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from lepa.model.allocation import Allocation, TaskState
from lepa.model.node import Node
from lepa.model.stats import AllocResourceUsage, DiskStats, Figure, HostStats, MemoryStats, TaskCPUStats
from lepa.model.usage import allocation_usage, node_capacity

Labels = Mapping[str, str]

STATUSES: Final = ("pending", "running", "complete", "failed")


class Placed(NamedTuple):
    """An allocation of the node, and its status as the node sees it."""

    allocation: Allocation
    status: str


def node_labels(node: Node) -> dict[str, str]:
    """How figures of a node are labelled."""
    return {
        "node_id": node.id,
        "host": node.name,
        "datacenter": node.datacenter,
        "node_class": node.node_class or "none",
        "node_pool": node.node_pool,
        "node_status": node.status,
        "node_scheduling_eligibility": node.scheduling_eligibility,
    }


def node_figures(node: Node, placed: Sequence[Placed], stats: HostStats | None) -> Iterator[Figure]:
    """What the node has given away, how many allocations it has, and (with stats) what its host uses."""
    labels = node_labels(node)
    counts = {status: sum(each.status == status for each in placed) for status in STATUSES}
    for status in STATUSES:
        yield f"nomad.client.allocations.{status}", counts[status], labels
    yield "nomad.client.allocations.terminal", counts["complete"] + counts["failed"], labels
    yield "nomad.client.allocations.blocked", 0, labels
    leaving = sum(bool(each.allocation.desired_transition.migrate) and each.status == "running" for each in placed)
    yield "nomad.client.allocations.migrating", leaving, labels
    capacity = node_capacity(node)
    used = [allocation_usage(each.allocation) for each in placed if each.status in ("pending", "running")]
    for name, total, given in (
        ("cpu", capacity.cpu, sum(usage.cpu for usage in used)),
        ("memory", capacity.memory, sum(usage.memory for usage in used)),
        ("disk", capacity.disk, sum(usage.disk for usage in used)),
    ):
        yield f"nomad.client.allocated.{name}", given, labels
        yield f"nomad.client.unallocated.{name}", total - given, labels
    if stats is not None:
        yield from _host(stats, labels)


def _host(stats: HostStats, labels: Labels) -> Iterator[Figure]:
    yield "nomad.client.uptime", stats.uptime, labels
    yield "nomad.client.host.cpu.total_ticks", stats.cpu_ticks_consumed, labels
    for cpu in stats.cpu:
        of_cpu = {**labels, "cpu": cpu.cpu}
        yield "nomad.client.host.cpu.total", cpu.total_percent, of_cpu
        yield "nomad.client.host.cpu.total_percent", cpu.total_percent, of_cpu
        yield "nomad.client.host.cpu.user", cpu.user, of_cpu
        yield "nomad.client.host.cpu.system", cpu.system, of_cpu
        yield "nomad.client.host.cpu.idle", cpu.idle, of_cpu
    if stats.memory is not None:
        for name in ("total", "available", "used", "free"):
            yield f"nomad.client.host.memory.{name}", getattr(stats.memory, name), labels
    disks: list[DiskStats] = [*stats.disk_stats, *([stats.alloc_dir_stats] if stats.alloc_dir_stats else [])]
    for disk in disks:
        of_disk = {**labels, "disk": disk.device or disk.mountpoint}
        yield "nomad.client.host.disk.size", disk.size, of_disk
        yield "nomad.client.host.disk.used", disk.used, of_disk
        yield "nomad.client.host.disk.available", disk.available, of_disk
        yield "nomad.client.host.disk.used_percent", disk.used_percent, of_disk
        yield "nomad.client.host.disk.inodes_percent", disk.inodes_used_percent, of_disk


def allocation_figures(node: Node, alloc: Allocation, usage: AllocResourceUsage) -> Iterator[Figure]:
    """What the tasks of an allocation were given and what they use."""
    given = alloc.allocated_resources.tasks if alloc.allocated_resources is not None else {}
    for task, measured in usage.tasks.items():
        labels = task_labels(node, alloc, task)
        use, share = measured.resource_usage, given.get(task)
        if share is not None:
            yield "nomad.client.allocs.cpu.allocated", share.cpu.cpu_shares, labels
            yield "nomad.client.allocs.memory.allocated", share.memory.memory_mb * 1024 * 1024, labels
            most = max(share.memory.memory_max_mb, share.memory.memory_mb)
            yield "nomad.client.allocs.memory.max_allocated", most * 1024 * 1024, labels
        if use is not None and use.cpu_stats is not None:
            yield from _cpu(use.cpu_stats, labels)
        if use is not None and use.memory_stats is not None:
            yield from _memory(use.memory_stats, labels)


def task_labels(node: Node, alloc: Allocation, task: str) -> dict[str, str]:
    """How figures of a task are labelled."""
    return {
        "alloc_id": alloc.id,
        "host": node.name,
        "job": alloc.job_id,
        "exported_job": alloc.job_id,
        "namespace": alloc.namespace,
        "task": task,
        "task_group": alloc.task_group,
    }


def _cpu(cpu: TaskCPUStats, labels: Labels) -> Iterator[Figure]:
    yield "nomad.client.allocs.cpu.total_percent", cpu.percent, labels
    yield "nomad.client.allocs.cpu.total_ticks", cpu.total_ticks, labels
    yield "nomad.client.allocs.cpu.user", cpu.user_mode, labels
    yield "nomad.client.allocs.cpu.system", cpu.system_mode, labels
    yield "nomad.client.allocs.cpu.throttled_time", cpu.throttled_time, labels
    yield "nomad.client.allocs.cpu.throttled_periods", cpu.throttled_periods, labels


def _memory(memory: MemoryStats, labels: Labels) -> Iterator[Figure]:
    for name in ("rss", "cache", "swap", "usage", "max_usage", "kernel_usage", "kernel_max_usage"):
        yield f"nomad.client.allocs.memory.{name}", getattr(memory, name), labels


# What happens to tasks


def happenings(node: Node, before: Allocation | None, after: Allocation) -> Iterator[tuple[str, Labels]]:
    """Counters that a report moves: tasks that began to run, ended, failed, were started again or ran out of memory.

    before: what was reported of the allocation last.
    """
    known = before.task_states if before is not None else {}
    if before is None:
        yield "nomad.client.allocations.start", node_labels(node)
    for task, state in after.task_states.items():
        labels = task_labels(node, after, task)
        for name in _changes(known.get(task, TaskState()), state):
            yield f"nomad.client.allocs.{name}", labels


def _changes(before: TaskState, after: TaskState) -> Iterator[str]:
    if after.state == "running" != before.state:
        yield "running"
    if after.state == "dead" != before.state:
        yield "failed" if after.failed else "complete"
    yield from ("restart" for _ in range(before.restarts, after.restarts))
    known = before.events[-1].time if before.events else 0
    for event in after.events:
        if event.time > known and event.details.get("oom_killed") == "true":
            yield "oom_killed"
