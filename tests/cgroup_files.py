"""What an OCI runtime writes into the files of a task's control groups, in either version of the hierarchy.

The tables are those of the runtime-spec (config-linux) for v1, and of crun(1), "CGROUP v2", for v2. They stand here as
what our bundles are held against; we do not write these files ourselves.
"""

from collections.abc import Mapping
from typing import Any

V1_FILES = {
    ("memory", "limit"): "memory.limit_in_bytes",
    ("memory", "swap"): "memory.memsw.limit_in_bytes",
    ("memory", "reservation"): "memory.soft_limit_in_bytes",
    ("cpu", "shares"): "cpu.shares",
    ("cpu", "period"): "cpu.cfs_period_us",
    ("cpu", "quota"): "cpu.cfs_quota_us",
    ("cpu", "cpus"): "cpuset.cpus",
    ("pids", "limit"): "pids.max",
}
"""(part, member) of `linux.resources` -> file of v1, whose value is the same."""


def v1_files(resources: Mapping[str, Any]) -> dict[str, str]:
    """File -> its content."""
    members = ((V1_FILES.get((part, name)), value) for part, each in _parts(resources) for name, value in each.items())
    return {file: str(value) for file, value in members if file is not None}


def v2_files(resources: Mapping[str, Any]) -> dict[str, str]:
    """File -> its content. Swap is counted without memory, and quota and period share a file."""
    memory, cpu = resources.get("memory", {}), resources.get("cpu", {})
    found = {"pids.max": resources["pids"]["limit"]}
    if "limit" in memory:
        found |= {"memory.max": memory["limit"], "memory.swap.max": memory["swap"] - memory["limit"]}
    if "reservation" in memory:
        found["memory.low"] = memory["reservation"]
    if "shares" in cpu:
        found["cpu.weight"] = 1 + (cpu["shares"] - 2) * 9999 // 262142
    if "quota" in cpu:
        found["cpu.max"] = f"{cpu['quota']} {cpu['period']}"
    if "cpus" in cpu:
        found["cpuset.cpus"] = cpu["cpus"]
    return {file: str(value) for file, value in found.items()}


def _parts(resources: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(part, members) for part, members in resources.items() if isinstance(members, Mapping)]
