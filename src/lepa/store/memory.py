"""A store in memory, for tests and simulation: the same promises as the others, except that it forgets at the end.

Its limits are etcd's as they come, so that a test meets the smallest of all stores.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.store.local import CHANGES_MAX, Feed, Leases, LocalLease
from lepa.store.protocol import Change, Committed, Delete, Entry, Fence, Fenced, Image, Limits, Put, Read, Txn
from lepa.store.revisions import check_txn, holds

ETCD_LIMITS: Final = Limits(operations_max=128, bytes_max=1_500_000)

_ABSENT: Final = Entry("", b"", 0, 0)


class MemoryStore:
    """Entries in a dict. Every commit is applied at once, between two steps of the event loop."""

    def __init__(self, clock: Clock, limits: Limits = ETCD_LIMITS, changes_max: int = CHANGES_MAX) -> None:
        """changes_max: how many changes a watch can be behind before it is told to read again."""
        self.limits = limits
        self._entries: dict[str, Entry] = {}
        self._lease_of: dict[str, int] = {}
        self._revision = 0
        self._feed = Feed(0, changes_max)
        self._tasks = Tasks("memory_store")
        self._leases = Leases(clock, self._tasks, self._end_keys)
        self._closed = False

    async def read(self, prefix: str) -> Read:
        keys = sorted(key for key in self._entries if key.startswith(prefix))
        return Read(self._revision, [self._entries[key] for key in keys])

    async def commit(self, txn: Txn, fence: Fence | None = None) -> Committed:
        if self._closed:
            raise LepaError("internal", "the store is closed")
        check_txn(txn, self.limits)
        for operation in txn.operations:
            self._leases.check(operation.lease if isinstance(operation, Put) else 0)
        if fence is not None and self._entries.get(fence.key, _ABSENT).created != fence.created:
            raise Fenced
        for compare in txn.compares:
            entry = self._entries.get(compare.key, _ABSENT)
            if not holds(compare, entry.created, entry.modified):
                return Committed(False, self._revision)
        self.apply(txn.operations)
        return Committed(True, self._revision)

    def apply(self, operations: Sequence[Put | Delete]) -> None:
        """Change entries at once, as a writer does who comes between two steps of others."""
        revision = self._revision + 1
        changes = [change for operation in operations if (change := self._change(operation, revision))]
        if changes:
            self._revision = revision
            self._feed.publish(changes)

    def _change(self, operation: Put | Delete, revision: int) -> Change | None:
        before = self._entries.pop(operation.key, None)
        self._lease_of.pop(operation.key, None)
        if isinstance(operation, Delete):
            return Change(operation.key, None, before.created, revision) if before else None
        created = before.created if before else revision
        self._entries[operation.key] = Entry(operation.key, operation.value, created, revision)
        if operation.lease:
            self._lease_of[operation.key] = operation.lease
        return Change(operation.key, operation.value, created, revision)

    async def replace(self, image: Image, fence: Fence | None = None) -> int:
        if fence is not None and self._entries.get(fence.key, _ABSENT).created != fence.created:
            raise Fenced
        self._revision = max(self._revision, image.revision) + 1
        self._entries = {entry.key: entry._replace(modified=self._revision) for entry in image.entries}
        self._lease_of.clear()
        self._feed.reset(self._revision)
        return self._revision

    def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        return self._feed.watch(from_revision, prefix)

    async def lease(self, ttl_s: float) -> LocalLease:
        return self._leases.grant(ttl_s)

    async def _end_keys(self, lease: int) -> None:
        self.apply([Delete(key) for key, holder in sorted(self._lease_of.items()) if holder == lease])

    async def close(self) -> None:
        self._closed = True
        await self._tasks.close()
        self._feed.close()
