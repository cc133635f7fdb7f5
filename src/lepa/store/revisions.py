"""Pure: what stores that keep their own revisions share: the rules of a transaction, the log of changes, leases.

Memory and SQLite use these; etcd has its own.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from lepa.model.errors import invalid, not_found
from lepa.store.protocol import Change, Compacted, Compare, Limits, Txn

BATCH_MAX: Final = 512
"""Changes after which a watch's batch ends, at the next whole revision."""


def check_txn(txn: Txn, limits: Limits) -> None:
    """Raise LepaError(invalid) when the transaction is over the limits or names a key twice."""
    if len(txn.operations) > limits.operations_max:
        raise invalid(f"a transaction of {len(txn.operations)} operations is over the limit of {limits.operations_max}")
    if txn.size > limits.bytes_max:
        raise invalid(f"a transaction of {txn.size} bytes is over the limit of {limits.bytes_max}")
    if len({operation.key for operation in txn.operations}) < len(txn.operations):
        raise invalid("a transaction names a key in more than one operation")


def holds(compare: Compare, created: int, modified: int) -> bool:
    """Whether a compare is true of a key with these revisions (0, 0 when it is not there)."""
    return compare.modified in (None, modified) and compare.created in (None, created)


class ChangeLog:
    """The newest changes, in order, at most `changes_max` of them and about `bytes_max` of values.

    `oldest` is the revision up to which changes are forgotten: a watch may begin there and not before.
    """

    def __init__(self, oldest: int, changes_max: int, bytes_max: int) -> None:
        self.oldest = oldest
        self._changes: list[Change] = []
        self._bytes = 0
        self._changes_max, self._bytes_max = changes_max, bytes_max

    def append(self, changes: Iterable[Change]) -> None:
        """Add whole revisions, newer than all before."""
        before = len(self._changes)
        self._changes.extend(changes)
        self._bytes += sum(map(_size, self._changes[before:]))
        if len(self._changes) > self._changes_max or self._bytes > self._bytes_max:
            self._trim()

    def _trim(self) -> None:
        """Forget the older half, so that it need not be done again soon; the newest revision always stays."""
        cut, newest = 0, self._after(self._changes[-1].revision - 1)
        while cut < newest and (
            len(self._changes) - cut > self._changes_max // 2 or self._bytes > self._bytes_max // 2
        ):
            self._bytes -= _size(self._changes[cut])
            cut += 1
        if cut:
            self.oldest = self._changes[cut - 1].revision
            self._changes = self._changes[self._after(self.oldest) :]
            self._bytes = sum(map(_size, self._changes))

    def after(self, revision: int) -> Sequence[Change]:
        """About BATCH_MAX changes after `revision`, whole revisions; empty when there are none. Raises Compacted."""
        if revision < self.oldest:
            raise Compacted(self.oldest)
        start = self._after(revision)
        batch = self._changes[start : start + BATCH_MAX]
        if len(batch) == BATCH_MAX:
            batch = self._changes[start : self._after(batch[-1].revision)]
        return batch

    def _after(self, revision: int) -> int:
        return bisect_right(self._changes, revision, key=lambda change: change.revision)


def _size(change: Change) -> int:
    return len(change.value or b"")


class LeaseTable:
    """Which leases live until when. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._ends: dict[int, float] = {}
        self._ttls: dict[int, float] = {}
        self._last_id = 0

    def grant(self, ttl_s: float, now: float) -> int:
        """A new lease; its id is never used again."""
        self._last_id += 1
        self._ends[self._last_id] = now + ttl_s
        self._ttls[self._last_id] = ttl_s
        return self._last_id

    def keep(self, lease: int, now: float) -> None:
        """Extend a lease by its time to live. Raises LepaError(not_found) when it has lapsed."""
        self.check(lease, now)
        self._ends[lease] = now + self._ttls[lease]

    def check(self, lease: int, now: float) -> None:
        """Raise LepaError(not_found) for a lease that has lapsed or never was."""
        if self._ends.get(lease, now) <= now:
            raise not_found(f"lease {lease} has lapsed")

    def end(self, lease: int) -> bool:
        """Forget a lease; False when it had ended before."""
        self._ttls.pop(lease, None)
        return self._ends.pop(lease, None) is not None

    def lapsed(self, now: float) -> tuple[int, ...]:
        """Leases whose time is over."""
        return tuple(lease for lease, end in self._ends.items() if end <= now)

    def wake_at(self) -> float | None:
        """When the next lease lapses, unless it is kept."""
        return min(self._ends.values(), default=None)
