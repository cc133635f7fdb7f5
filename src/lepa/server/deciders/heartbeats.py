"""Pure: which nodes have been silent for too long.

A node is told with each heartbeat how soon it has to be heard of again. The more nodes there are the longer that is, so
that the cluster's heartbeats stay below a rate; it is spread a little, so that nodes do not keep step. A node that is
silent for that time and a grace is down, or disconnected when it runs something that may outlive a lost connection.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from lepa.model.job import TaskGroup
from lepa.model.node import Node
from lepa.server.settings import HeartbeatSettings
from lepa.state.commands.allocations import group_of
from lepa.state.commands.draft import Draft
from lepa.state.commands.nodes import update_node_status
from lepa.state.job_tally import lives
from lepa.state.snapshot import Snapshot

MISSED = "Node heartbeat missed"


class MarkSilent(NamedTuple):
    """A node has been silent for too long."""

    node_id: str
    status: str
    reason: str = MISSED

    def apply(self, draft: Draft) -> None:
        """Note it, while the node is still what it was."""
        node = draft.node(self.node_id)
        if node is not None and node.status not in ("down", self.status):
            update_node_status(draft, self.node_id, self.status, event=self.reason)


class Heartbeats:
    """Deadlines of nodes. Times are monotonic seconds."""

    def __init__(self, settings: HeartbeatSettings) -> None:
        self._settings = settings
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def start(self, nodes: Iterable[Node], now: float) -> None:
        """Begin to lead: every node that is not down has a long time to find out who leads."""
        self._deadlines.clear()
        self._heap.clear()
        for node in nodes:
            if node.status != "down":
                self._set(node.id, now + self._settings.failover_ttl_s)

    def beat(self, node_id: str, now: float, spread: float) -> float:
        """A node was heard of. spread: 0..1, chosen by the caller. Returns its time to live in seconds."""
        ttl_s = max(self._settings.min_ttl_s, len(self._deadlines) / self._settings.max_per_s)
        ttl_s *= 1.0 + spread
        self._set(node_id, now + ttl_s + self._settings.grace_s)
        return ttl_s

    def forget(self, node_id: str) -> None:
        """The node is gone or known to be down."""
        self._deadlines.pop(node_id, None)

    def expired(self, now: float) -> list[str]:
        """Nodes whose time is over; each is named once, and not again before it was heard of."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            deadline, node_id = heappop(self._heap)
            if self._deadlines.get(node_id) == deadline:
                del self._deadlines[node_id]
                found.append(node_id)
        return found

    def wake_at(self) -> float | None:
        """When `expired` may have something to say."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._deadlines)

    def _set(self, node_id: str, deadline: float) -> None:
        self._deadlines[node_id] = deadline
        heappush(self._heap, (deadline, node_id))
        if len(self._heap) > 2 * len(self._deadlines) + 64:
            self._heap = sorted((at, name) for name, at in self._deadlines.items())


def silent(snapshot: Snapshot, node_id: str) -> MarkSilent:
    """What becomes of a node that is silent: disconnected while something on it may go on alone, else down."""
    outlives = any(
        lives(alloc)
        and (group := group_of(snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version), alloc))
        and may_disconnect(group)
        for alloc in snapshot.node_allocations(node_id)
    )
    return MarkSilent(node_id, "disconnected" if outlives else "down")


def disconnected_too_long(snapshot: Snapshot) -> list[MarkSilent]:
    """Disconnected nodes on which nothing is left that may come back."""
    return [
        MarkSilent(node.id, "down")
        for node in snapshot.nodes()
        if node.status == "disconnected"
        and not any(alloc.client_status == "unknown" or lives(alloc) for alloc in snapshot.node_allocations(node.id))
    ]


def may_disconnect(group: TaskGroup) -> bool:
    """Whether the group's allocations may go on while their node cannot be reached."""
    if group.disconnect is not None:
        return group.disconnect.lost_after > 0
    return bool(group.max_client_disconnect)
