"""Pure: shares of overlay networks: each node that takes part in an overlay holds one subnet of its pool.

A share is given to the first who asks, the lowest that is free, and stays with its node until the node is purged or
forgotten. It is stored under its subnet, so that of two nodes that ask for the same one at once only one gets it. When
the pool has no more, shares of nodes that are gone, or down with nothing left to run, are taken back.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from lepa.model.errors import conflict, invalid
from lepa.model.overlay import OverlayLease, hardware_address
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES

NAME_MAX: Final = 63
SHARES_MAX: Final = 4_096
"""Nodes of one overlay: each keeps three entries of its kernel for each of the others."""
COMMON: Final = ("pool", "subnet_prefix", "vni", "port", "encrypted")
"""What all nodes of one overlay have to say alike."""

Block = ipaddress.IPv4Network


def lease_share(draft: Draft, wanted: OverlayLease) -> OverlayLease:
    """Give a node its share, or renew it with what is new of the node. Raises LepaError."""
    pool = _checked_pool(wanted)
    leases = list(draft.snapshot.overlay_leases())
    others = [each for each in leases if each.overlay == wanted.overlay and each.node_id != wanted.node_id]
    for other in others:
        _check_common(wanted, other)
    for other in leases:
        if other.overlay != wanted.overlay and ipaddress.IPv4Network(other.pool).overlaps(pool):
            raise conflict(f'overlay "{wanted.overlay}": pool {pool} overlaps that of "{other.overlay}", {other.pool}')
    own = [each for each in leases if each.overlay == wanted.overlay and each.node_id == wanted.node_id]
    fitting = [each.subnet for each in own if _fits(each, wanted)]
    subnet = fitting[0] if fitting else _free(draft, pool, wanted, others)
    lease = replace(wanted, subnet=subnet, hardware=hardware_address(subnet))
    for outgrown in own:
        if outgrown.subnet != subnet:
            draft.delete(keys.overlay_key(outgrown.overlay, outgrown.subnet), outgrown)
    present = draft.snapshot.overlay_lease(lease.overlay, subnet)
    if present is None or _plain(present) != _plain(lease):
        draft.put(keys.overlay_key(lease.overlay, subnet), lease, present)
    return lease


def release_shares(draft: Draft, node_id: str) -> None:
    """A node is gone for good."""
    for lease in draft.snapshot.overlay_leases_of_node(node_id):
        draft.erase(keys.overlay_key(lease.overlay, lease.subnet))


def _checked_pool(wanted: OverlayLease) -> Block:
    if not 0 < len(wanted.overlay) <= NAME_MAX:
        raise invalid(f"the name of an overlay has 1 to {NAME_MAX} characters, found {len(wanted.overlay)}")
    try:
        pool = ipaddress.IPv4Network(wanted.pool)
    except ValueError as error:
        raise invalid(f'overlay "{wanted.overlay}": pool: {error}; wanted a block such as 10.88.0.0/16') from error
    if not pool.prefixlen < wanted.subnet_prefix <= 30 or 2 ** (wanted.subnet_prefix - pool.prefixlen) > SHARES_MAX:
        raise invalid(
            f'overlay "{wanted.overlay}": pool {pool} cannot be cut into subnets /{wanted.subnet_prefix}: wanted 2 to '
            f"{SHARES_MAX} of them, none smaller than /30"
        )
    return pool


def _check_common(wanted: OverlayLease, other: OverlayLease) -> None:
    for name in COMMON:
        ours, theirs = getattr(wanted, name), getattr(other, name)
        if ours != theirs:
            raise conflict(
                f'overlay "{wanted.overlay}": this node says {name} = {ours}, node {other.node_name or other.node_id} '
                f"says {theirs}; all nodes of an overlay need the same"
            )


def _fits(lease: OverlayLease, wanted: OverlayLease) -> bool:
    subnet = ipaddress.IPv4Network(lease.subnet)
    return subnet.prefixlen == wanted.subnet_prefix and subnet.subnet_of(ipaddress.IPv4Network(wanted.pool))


def _free(draft: Draft, pool: Block, wanted: OverlayLease, others: Iterable[OverlayLease]) -> str:
    """The lowest share that nobody holds; else one of a node that does not need it any more."""
    taken = {each.subnet: each for each in others}
    for subnet in pool.subnets(new_prefix=wanted.subnet_prefix):
        if str(subnet) not in taken:
            return str(subnet)
    for subnet_text, lease in taken.items():
        if _abandoned(draft, lease.node_id):
            return subnet_text
    raise conflict(
        f'overlay "{wanted.overlay}": all {len(taken)} subnets of pool {pool} are held; purge nodes that are gone, or '
        "choose a larger pool"
    )


def _abandoned(draft: Draft, node_id: str) -> bool:
    node = draft.snapshot.node(node_id)
    if node is None:
        return True
    allocs = draft.snapshot.node_allocations(node_id)
    return node.status == "down" and all(alloc.client_status in TERMINAL_CLIENT_STATUSES for alloc in allocs)


def _plain(lease: OverlayLease) -> OverlayLease:
    return replace(lease, create_index=0, modify_index=0)
