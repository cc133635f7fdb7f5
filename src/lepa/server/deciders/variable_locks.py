"""Pure: which locks of variables have run out."""

from typing import NamedTuple

from lepa.state.commands.draft import Draft
from lepa.state.commands.variables import expire_lock
from lepa.state.snapshot import Snapshot


class ExpireLock(NamedTuple):
    """A lock was not renewed in time. renewed_at: when it was last, as far as was known."""

    namespace: str
    path: str
    renewed_at: int
    reason: str = "not renewed within its TTL"

    def apply(self, draft: Draft) -> None:
        """Take it away, unless it has been renewed meanwhile."""
        expire_lock(draft, self.namespace, self.path, self.renewed_at)


class Decision(NamedTuple):
    """What is over, and when the next lock will be (Unix nanoseconds)."""

    orders: tuple[ExpireLock, ...]
    wake_at_ns: int | None


def decide(snapshot: Snapshot, now_ns: int) -> Decision:
    """Every lock that is over now."""
    orders, times = [], []
    for lease in snapshot.variable_leases():
        variable = snapshot.variable(lease.namespace, lease.path)
        lock = variable.lock if variable is not None else None
        over = lease.renewed_at + lock.ttl if lock is not None and lock.id == lease.lock_id else now_ns
        if over <= now_ns:
            orders.append(ExpireLock(lease.namespace, lease.path, lease.renewed_at))
        else:
            times.append(over)
    return Decision(tuple(orders), min(times, default=None))
