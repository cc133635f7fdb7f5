"""Pure: what nodes and those who run them write: registration, status, drains, eligibility."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from lepa.kit.durations import SECOND, rfc3339
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.evaluation import Evaluation
from lepa.model.node import DrainMetadata, DrainSpec, DrainStrategy, Node, NodeEvent
from lepa.model.node_class import computed_class
from lepa.model.tenancy import NodePool
from lepa.state import keys
from lepa.state.commands.catalog import withdraw_all_of_node
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_node
from lepa.state.commands.overlays import release_shares

EVENTS_KEPT: Final = 10
STATUSES: Final = ("initializing", "ready", "down", "disconnected")

NODE_NOT_FOUND: Final = "node not found"
POOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def register_node(draft: Draft, node: Node) -> tuple[Node, tuple[Evaluation, ...]]:
    """Store what a node says of itself, keeping what operators and servers know of it.

    Raises LepaError(denied) when the id belongs to a node with another secret.
    """
    _check_node(node)
    present = draft.node(node.id)
    if present is not None and present.secret_id and present.secret_id != node.secret_id:
        raise LepaError("denied", "node secret ID does not match. Not registering node.", node_id=node.id)
    written = replace(
        node,
        node_pool=node.node_pool or "default",
        computed_class=computed_class(node),
        status=_registered_status(present, node),
        status_updated_at=draft.now_ns // SECOND,
    )
    if present is None:
        written = _with_event(draft, written, "Cluster", "Node registered")
    else:
        written = _with_history(draft, written, present)
    if present is not None and _says_the_same(present, written):
        return present, ()
    if draft.snapshot.node_pool(written.node_pool) is None:
        draft.overwrite(keys.node_pool_key(written.node_pool), NodePool(name=written.node_pool))
    draft.put_node(written)
    changed = present is None or present.computed_class != written.computed_class or present.status != written.status
    return written, evaluate_node(draft, node.id) if changed and written.status == "ready" else ()


def update_node_status(
    draft: Draft, node_id: str, status: str, *, event: str = ""
) -> tuple[Node, tuple[Evaluation, ...]]:
    """Note that a node became ready, down or disconnected, and look at its jobs again."""
    node = existing_node(draft, node_id)
    if status not in STATUSES:
        raise invalid(f'invalid status "{status}" for node')
    if node.status == status:
        return node, ()
    written = replace(node, status=status, status_updated_at=draft.now_ns // SECOND)
    if status in ("down", "disconnected"):
        written = replace(written, last_missed_heartbeat_index=keys.THIS_REVISION)
    if event:
        written = _with_event(draft, written, "Cluster", event)
    elif status == "ready" and node.status in ("down", "disconnected"):
        written = _with_event(draft, written, "Cluster", "Node reregistered by heartbeat")
    draft.put_node(written)
    return written, evaluate_node(draft, node_id) if status != "initializing" else ()


def drain_node(
    draft: Draft, node_id: str, spec: DrainSpec | None, *, mark_eligible: bool, meta: Mapping[str, str] | None = None
) -> tuple[Node, tuple[Evaluation, ...]]:
    """Start or change a drain, or (spec None) cancel it. A draining node gets no new allocations."""
    node = existing_node(draft, node_id)
    now = rfc3339(draft.now_ns)
    if spec is None:
        if node.drain_strategy is None and not mark_eligible:
            return node, ()
        written = replace(
            node,
            drain_strategy=None,
            scheduling_eligibility="eligible" if mark_eligible else node.scheduling_eligibility,
            last_drain=_drain_record(node, now, "canceled", meta) if node.drain_strategy else node.last_drain,
        )
        written = _with_event(draft, written, "Drain", "Node drain disabled")
    else:
        strategy = _strategy(draft, node, spec)
        event = "Node drain strategy set" if node.drain_strategy is None else "Node drain strategy updated"
        written = replace(
            node,
            drain_strategy=strategy,
            scheduling_eligibility="ineligible",
            last_drain=_drain_record(replace(node, drain_strategy=strategy), now, "draining", meta),
        )
        written = _with_event(draft, written, "Drain", event)
    draft.put_node(written)
    eligible_again = written.scheduling_eligibility == "eligible" != node.scheduling_eligibility
    return written, evaluate_node(draft, node_id) if eligible_again else ()


def complete_drain(draft: Draft, node_id: str) -> None:
    """The last allocation has left a draining node."""
    node = draft.node(node_id)
    if node is None or node.drain_strategy is None:
        return
    record = _drain_record(node, rfc3339(draft.now_ns), "complete", None)
    written = replace(node, drain_strategy=None, last_drain=record)
    draft.put_node(_with_event(draft, written, "Drain", "Node drain complete"))


def set_eligibility(draft: Draft, node_id: str, eligibility: str) -> tuple[Node, tuple[Evaluation, ...]]:
    """Say whether a node may get new allocations. When nothing changes, nothing is written."""
    if eligibility not in ("eligible", "ineligible"):
        raise invalid(f'invalid scheduling eligibility "{eligibility}"')
    node = existing_node(draft, node_id)
    if node.drain_strategy is not None and eligibility == "eligible":
        raise invalid("can not set node's scheduling eligibility to eligible while it is draining")
    if node.scheduling_eligibility == eligibility:
        return node, ()
    word = "eligible" if eligibility == "eligible" else "ineligible"
    written = _with_event(
        draft, replace(node, scheduling_eligibility=eligibility), "Cluster", f"Node marked as {word} for scheduling"
    )
    draft.put_node(written)
    return written, evaluate_node(draft, node_id) if eligibility == "eligible" else ()


def purge_node(draft: Draft, node_id: str) -> tuple[Evaluation, ...]:
    """Forget a node and look at its jobs again."""
    node = existing_node(draft, node_id)
    draft.delete(keys.node_key(node_id), draft.snapshot.node(node.id))
    withdraw_all_of_node(draft, node_id)
    release_shares(draft, node_id)
    return evaluate_node(draft, node_id)


def note_node_events(draft: Draft, node_id: str, events: Iterable[NodeEvent]) -> None:
    """Keep things that happened on a node."""
    node = existing_node(draft, node_id)
    stamped = tuple(replace(event, create_index=keys.THIS_REVISION) for event in events)
    draft.put_node(replace(node, events=(*node.events, *stamped)[-EVENTS_KEPT:]))


def existing_node(draft: Draft, node_id: str) -> Node:
    """The node, or LepaError(not_found)."""
    node = draft.node(node_id)
    if node is None:
        raise not_found(NODE_NOT_FOUND, node_id=node_id)
    return node


def check_secret(draft: Draft, node_id: str, secret_id: str) -> Node:
    """The node, when it proves that it is the one that registered."""
    node = existing_node(draft, node_id)
    if node.secret_id and node.secret_id != secret_id:
        raise LepaError("denied", "node secret ID does not match", node_id=node_id)
    return node


def _check_node(node: Node) -> None:
    for value, what in ((node.id, "node ID"), (node.datacenter, "datacenter"), (node.name, "node name")):
        if not value:
            raise invalid(f"missing {what} for client registration")
    if node.status and node.status not in STATUSES:
        raise invalid(f'invalid status "{node.status}" for node')
    if node.node_pool == "all" or not POOL_NAME.fullmatch(node.node_pool or "default"):
        raise invalid(f'node is not allowed to register in node pool "{node.node_pool}"')


def _says_the_same(present: Node, written: Node) -> bool:
    return replace(written, create_index=present.create_index, modify_index=present.modify_index) == present


def _registered_status(present: Node | None, node: Node) -> str:
    """A running node that registers again, because its fingerprint changed, stays ready."""
    if node.status in ("", "initializing"):
        return "ready" if present is not None and present.status == "ready" else "initializing"
    return node.status


def _with_history(draft: Draft, node: Node, present: Node) -> Node:
    kept = replace(
        node,
        drain_strategy=present.drain_strategy,
        scheduling_eligibility=present.scheduling_eligibility,
        last_drain=present.last_drain,
        events=present.events,
        last_missed_heartbeat_index=present.last_missed_heartbeat_index,
        last_alloc_update_index=present.last_alloc_update_index,
        status_updated_at=node.status_updated_at if node.status != present.status else present.status_updated_at,
    )
    return kept if present.status != "down" else _with_event(draft, kept, "Cluster", "Node re-registered")


def _with_event(draft: Draft, node: Node, subsystem: str, message: str) -> Node:
    event = NodeEvent(
        message=message, subsystem=subsystem, timestamp=rfc3339(draft.now_ns), create_index=keys.THIS_REVISION
    )
    return replace(node, events=(*node.events, event)[-EVENTS_KEPT:])


def _strategy(draft: Draft, node: Node, spec: DrainSpec) -> DrainStrategy:
    """A changed drain keeps the time at which it started."""
    started = node.drain_strategy.started_at if node.drain_strategy else rfc3339(draft.now_ns)
    fields: dict[str, Any] = {"force_deadline": rfc3339(draft.now_ns + spec.deadline)} if spec.deadline > 0 else {}
    return DrainStrategy(
        deadline=spec.deadline, ignore_system_jobs=spec.ignore_system_jobs, started_at=started, **fields
    )


def _drain_record(node: Node, now: str, status: str, meta: Mapping[str, str] | None) -> DrainMetadata:
    started = node.drain_strategy.started_at if node.drain_strategy else now
    kept = node.last_drain.meta if node.last_drain and meta is None else dict(meta or {})
    return DrainMetadata(started_at=started, updated_at=now, status=status, meta=kept)
