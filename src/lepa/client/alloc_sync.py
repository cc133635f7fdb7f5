"""Pure: allocations wanted on this node against those that run -> orders."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from lepa.model.allocation import Allocation


class Orders(NamedTuple):
    """fetch: ids whose newest form has to be asked for. forget: ids that the servers no longer know."""

    fetch: tuple[str, ...]
    forget: tuple[str, ...]


class Change(NamedTuple):
    """What to do with fetched allocations."""

    start: tuple[Allocation, ...]
    update: tuple[Allocation, ...]


def compare(wanted: Mapping[str, int], have: Mapping[str, int], since: int) -> Orders:
    """wanted, have: alloc_modify_index by id, of the servers and of this node. since: the index of the last comparison.

    An allocation that this node does not have and that has not changed since then ended long ago, and is left alone.
    """
    fetch = tuple(sorted(alloc_id for alloc_id, index in wanted.items() if index > have.get(alloc_id, since)))
    forget = tuple(sorted(alloc_id for alloc_id in have if alloc_id not in wanted))
    return Orders(fetch, forget)


def divide(fetched: tuple[Allocation, ...], running: Collection[str]) -> Change:
    """New allocations to start, and newer forms of those that run. Ended ones that are new here are left alone."""
    start = tuple(a for a in fetched if a.id not in running and not is_over(a))
    return Change(start, tuple(a for a in fetched if a.id in running))


def is_over(alloc: Allocation) -> bool:
    """Whether the allocation neither runs nor should."""
    return alloc.desired_status in {"stop", "evict"} or alloc.client_status in {"complete", "failed", "lost"}
