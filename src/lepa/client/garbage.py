"""Pure: when ended allocations have to leave the disk, and how many at once."""

from typing import NamedTuple


class Limits(NamedTuple):
    """allocs: on the node, running ones included. disk_percent, inodes_percent: of the allocations' file system."""

    allocs: int = 50
    disk_percent: float = 80.0
    inodes_percent: float = 70.0


class Use(NamedTuple):
    """What there is: allocations of all states, and how full the file system is (percent; 0 where nobody can tell)."""

    allocs: int
    disk_percent: float
    inodes_percent: float


def reason(use: Use, limits: Limits) -> str:
    """Why ended allocations have to go, or ""."""
    if use.disk_percent > limits.disk_percent:
        return f"disk usage of {use.disk_percent:.0f} % is over gc_disk_usage_threshold of {limits.disk_percent:g} %"
    if use.inodes_percent > limits.inodes_percent:
        return (
            f"inode usage of {use.inodes_percent:.0f} % is over gc_inode_usage_threshold of {limits.inodes_percent:g} %"
        )
    if use.allocs > limits.allocs:
        return f"{use.allocs} allocations are more than gc_max_allocs of {limits.allocs}"
    return ""


def batch(use: Use, limits: Limits, parallel: int) -> int:
    """How many to remove before looking again: not more than are too many, where only their number is the reason."""
    disk_is_full = use.disk_percent > limits.disk_percent or use.inodes_percent > limits.inodes_percent
    return parallel if disk_is_full else max(1, min(parallel, use.allocs - limits.allocs))
