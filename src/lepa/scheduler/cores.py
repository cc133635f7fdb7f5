"""Pure: which whole cores a task gets of those that are free.

Memory that belongs to another NUMA node of a machine is slower to reach. A task says how much that matters to it:

    none     any cores, the lowest numbers
    prefer   as few NUMA nodes as can be, the one that it fills best first
    require  one NUMA node, or not here
"""

from collections.abc import Sequence

from lepa.model.node import Node
from lepa.model.resources import Resources

PREFER, REQUIRE = "prefer", "require"


def choose_cores(node: Node, free: Sequence[int], asked: Resources) -> tuple[int, ...] | None:
    """Ids of the cores for a task, in order; None when the free ones do not do."""
    count, affinity = asked.cores, asked.numa.affinity if asked.numa is not None else ""
    if count > len(free):
        return None
    if affinity not in (PREFER, REQUIRE) or not count:
        return tuple(free[:count])
    groups = _by_numa_node(node, free)
    best = min((group for group in groups if len(group) >= count), key=lambda group: (len(group), group), default=None)
    if best is not None:
        return tuple(best[:count])
    if affinity == REQUIRE:
        return None
    joined = [core for group in sorted(groups, key=lambda group: (-len(group), group)) for core in group]
    return tuple(sorted(joined[:count]))


def _by_numa_node(node: Node, free: Sequence[int]) -> list[list[int]]:
    """The free cores of each NUMA node; all of them together where the node tells nothing."""
    count = int(node.attributes.get("numa.node.count") or 1)
    groups = [
        [core for core in free if core in members]
        for number in range(count)
        if (members := core_set(node.attributes.get(f"numa.node{number}.cores", "")))
    ]
    known = {core for group in groups for core in group}
    rest = [core for core in free if core not in known]
    return [group for group in (*groups, rest) if group]


def core_set(text: str) -> frozenset[int]:
    """ "0-3,8" as numbers."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
