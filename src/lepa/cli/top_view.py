"""Pure: what `lepa top` shows: rows about nodes, jobs and allocations, from what the API answers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lepa.cli.output import Json, ago, paint, short, size, table

NODES = ("Node", "Name", "Pool", "Status", "Eligible", "Allocs", "CPU Given", "CPU Used", "Memory Given", "Memory Used")
JOBS = ("Job", "Namespace", "Type", "Status", "Queued", "Starting", "Running", "Failed", "Lost")
ALLOCATIONS = ("Alloc", "Job", "Group", "Node", "Status", "CPU", "Memory", "Age")
MIB = 1024 * 1024
LIVE = ("pending", "running")

Row = tuple[str, ...]


class Look(NamedTuple):
    """Answers of one look. hosts, usages: by node and allocation, of those that were asked and answered."""

    nodes: Sequence[Json]
    jobs: Sequence[Json]
    allocations: Sequence[Json]
    hosts: Mapping[str, Json]
    usages: Mapping[str, Json]
    leader: str
    now_ns: int


def summary(look: Look) -> str:
    """One line about the whole cluster."""
    ready = sum(node["Status"] == "ready" for node in look.nodes)
    running = sum(job["Status"] == "running" for job in look.jobs)
    live = sum(alloc["ClientStatus"] == "running" for alloc in look.allocations)
    leader = f"leader {look.leader}" if look.leader else "no leader"
    return (
        f"{ready} of {len(look.nodes)} nodes ready   {running} of {len(look.jobs)} jobs running   "
        f"{live} allocations running   {leader}"
    )


def node_rows(look: Look) -> list[Row]:
    """One a node, by name."""
    given = _given(look.allocations)
    return [_node(node, given.get(node["ID"], (0, 0, 0)), look.hosts.get(node["ID"])) for node in _by_name(look.nodes)]


def _by_name(nodes: Iterable[Json]) -> list[Json]:
    return sorted(nodes, key=lambda node: (str(node["Name"]), str(node["ID"])))


def _given(allocations: Iterable[Json]) -> dict[str, tuple[int, int, int]]:
    """Allocations that live, and the MHz and MiB that they were given, by node."""
    found: dict[str, tuple[int, int, int]] = {}
    for alloc in allocations:
        if alloc["ClientStatus"] in LIVE:
            count, cpu, memory = found.get(alloc["NodeID"], (0, 0, 0))
            more_cpu, more_memory = shares(alloc)
            found[alloc["NodeID"]] = count + 1, cpu + more_cpu, memory + more_memory
    return found


def shares(alloc: Json) -> tuple[int, int]:
    """MHz and MiB that the tasks of an allocation were given."""
    tasks = ((alloc.get("AllocatedResources") or {}).get("Tasks") or {}).values()
    return (
        sum(task["Cpu"]["CpuShares"] for task in tasks),
        sum(task["Memory"]["MemoryMB"] for task in tasks),
    )


def _node(node: Json, given: tuple[int, int, int], host: Json | None) -> Row:
    count, cpu, memory = given
    resources, kept = node.get("NodeResources") or {}, node.get("ReservedResources") or {}
    cpu_total = _of(resources, "Cpu", "CpuShares") - _of(kept, "Cpu", "CpuShares")
    memory_total = _of(resources, "Memory", "MemoryMB") - _of(kept, "Memory", "MemoryMB")
    used_cpu, used_memory = "-", "-"
    if host is not None:
        used_cpu = f"{host.get('CPUTicksConsumed', host.get('CpuTicksConsumed', 0)):.0f} MHz"
        used = host.get("Memory") or {}
        used_memory = f"{size(used.get('Used', 0))}/{size(used.get('Total', 0))}"
    return (
        short(node["ID"]),
        node["Name"],
        node["NodePool"],
        "draining" if node["Drain"] else node["Status"],
        "yes" if node["SchedulingEligibility"] == "eligible" else "no",
        str(count),
        f"{cpu}/{cpu_total} MHz",
        used_cpu,
        f"{size(memory * MIB)}/{size(memory_total * MIB)}",
        used_memory,
    )


def _of(resources: Json, part: str, key: str) -> int:
    return int((resources.get(part) or {}).get(key, 0))


def job_rows(look: Look) -> list[Row]:
    """One a job that is not dead, those with trouble first."""
    rows = [(_trouble(job), _job(job)) for job in look.jobs if job["Status"] != "dead"]
    return [row for _, row in sorted(rows, key=lambda pair: (-pair[0], pair[1]))]


def _counts(job: Json) -> dict[str, int]:
    groups = ((job.get("JobSummary") or {}).get("Summary") or {}).values()
    names = ("Queued", "Starting", "Running", "Failed", "Lost")
    return {name: sum(group.get(name, 0) for group in groups) for name in names}


def _trouble(job: Json) -> int:
    counts = _counts(job)
    return counts["Queued"] + counts["Starting"]


def _job(job: Json) -> Row:
    kind = (
        job["Type"] + ("/periodic" if job["Periodic"] else "") + ("/parameterized" if job["ParameterizedJob"] else "")
    )
    return (job["ID"], job["Namespace"], kind, job["Status"], *map(str, _counts(job).values()))


def allocation_rows(look: Look) -> list[Row]:
    """One a living allocation, those that use most CPU first."""
    names = {node["ID"]: node["Name"] for node in look.nodes}
    living = [alloc for alloc in look.allocations if alloc["ClientStatus"] in LIVE]
    rows = [(_ticks(look, alloc), _allocation(look, alloc, names)) for alloc in living]
    return [row for _, row in sorted(rows, key=lambda pair: (-pair[0], pair[1][1:3], pair[1][0]))]


def _usage(look: Look, alloc: Json) -> Json:
    return (look.usages.get(alloc["ID"]) or {}).get("ResourceUsage") or {}


def _ticks(look: Look, alloc: Json) -> float:
    return float((_usage(look, alloc).get("CpuStats") or {}).get("TotalTicks", 0.0))


def _allocation(look: Look, alloc: Json, names: Mapping[str, str]) -> Row:
    cpu, memory = shares(alloc)
    usage = _usage(look, alloc)
    stats = usage.get("MemoryStats") or {}
    known = bool(usage)
    used = size(stats.get("Usage") or stats.get("RSS") or 0) if known else "-"
    return (
        short(alloc["ID"]),
        alloc["JobID"],
        alloc["TaskGroup"],
        names.get(alloc["NodeID"], short(alloc["NodeID"])),
        alloc["ClientStatus"],
        f"{_ticks(look, alloc):.0f}/{cpu} MHz" if known else f"-/{cpu} MHz",
        f"{used}/{size(memory * MIB)}",
        ago(alloc["CreateTime"], look.now_ns).removesuffix(" ago"),
    )


def text(look: Look) -> str:
    """All of it as three tables, for a pipe."""
    parts = [summary(look)]
    for title, header, rows in (
        ("Nodes", NODES, node_rows(look)),
        ("Jobs", JOBS, job_rows(look)),
        ("Allocations", ALLOCATIONS, allocation_rows(look)),
    ):
        parts.append(f"{paint(title, 'bold')}\n{table(header, rows) if rows else 'None'}")
    return "\n\n".join(parts)
