"""Pure: on which node a host volume is made, and why not on the others."""

from lepa.model.errors import invalid
from lepa.model.node import Node
from lepa.model.volume import HostVolume
from lepa.scheduler.feasible import constraint_check, constraint_text, is_ready, pool_matches
from lepa.state.snapshot import Snapshot


def choose_node(snapshot: Snapshot, wanted: HostVolume, *, register: bool) -> Node:
    """The node of a volume: the one it names, else of those that fit the one with the fewest. Raises LepaError."""
    if wanted.node_id:
        node = snapshot.node(wanted.node_id)
        if node is None:
            raise invalid(f'node "{wanted.node_id}" does not exist')
        if reason := _refusal(snapshot, node, wanted, register=register):
            raise invalid(f'could not place volume "{wanted.name}": node {node.name or node.id}: {reason}')
        return node
    reasons: dict[str, int] = {}
    fitting = []
    for node in snapshot.nodes():
        reason = _refusal(snapshot, node, wanted, register=register)
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            fitting.append(node)
    if not fitting:
        told = "; ".join(f"{reason} ({count} nodes)" for reason, count in sorted(reasons.items())) or "there is none"
        raise invalid(f'could not place volume "{wanted.name}": no node meets constraints: {told}')
    return min(fitting, key=lambda node: (len(snapshot.node_host_volumes(node.id)), node.id))


def _refusal(snapshot: Snapshot, node: Node, wanted: HostVolume, *, register: bool) -> str:
    if wanted.node_pool and not pool_matches(node.node_pool, wanted.node_pool):
        return f'node pool is not "{wanted.node_pool}"'
    if node.status != "ready" or (not register and not is_ready(node)):
        return "not ready or not eligible"
    if not register and f"plugins.host_volume.{wanted.plugin_id}.version" not in node.attributes:
        return f'missing host volume plugin "{wanted.plugin_id}"'
    for constraint in wanted.constraints:
        if not constraint_check(constraint).allows(node):
            return constraint_text(constraint)
    others = [v for v in snapshot.node_host_volumes(node.id) if v.id != wanted.id]
    present = node.host_volumes.get(wanted.name)
    if any(v.name == wanted.name for v in others) or (present is not None and present.id != wanted.id):
        return f'has a volume "{wanted.name}" already'
    return ""
