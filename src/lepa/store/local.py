"""What the stores of one process share on the event loop: the feed that watches read, and leases that lapse.

Both stores hand their committed changes to a Feed in order; it wakes the watches. Leases sleep until the next one
lapses and then ask the store to delete what belongs to it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.store.protocol import Change
from lepa.store.revisions import ChangeLog, LeaseTable

CHANGES_MAX: Final = 65_536
CHANGES_BYTES_MAX: Final = 64 << 20
"""What a watch can resume from: values are shared with the batches under way, not copied."""


class Feed:
    """Committed changes for watches. A watch that falls behind the log learns it by Compacted."""

    def __init__(self, revision: int, changes_max: int = CHANGES_MAX, bytes_max: int = CHANGES_BYTES_MAX) -> None:
        self._bounds = changes_max, bytes_max
        self._log = ChangeLog(revision, changes_max, bytes_max)
        self._grown = asyncio.Event()
        self._closed = False

    def publish(self, changes: Iterable[Change]) -> None:
        """Add whole revisions in order and wake the watches."""
        self._log.append(changes)
        self._wake()

    def reset(self, revision: int) -> None:
        """Everything was replaced at `revision`: who watches from before has to read again."""
        self._log = ChangeLog(revision, *self._bounds)
        self._wake()

    async def watch(self, from_revision: int, prefix: str) -> AsyncIterator[Sequence[Change]]:
        """Changes after `from_revision` as they come, until the feed is closed."""
        while True:
            grown = self._grown
            changes = self._log.after(from_revision)
            if changes:
                from_revision = changes[-1].revision
                if wanted := [c for c in changes if c.key.startswith(prefix)] if prefix else changes:
                    yield wanted
            elif self._closed:
                return
            else:
                await grown.wait()

    def close(self) -> None:
        """End all watches, after what they have not seen yet."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


class Leases:
    """Grants leases and ends them in time. end_keys: deletes the keys of a lease from the store."""

    def __init__(self, clock: Clock, tasks: Tasks, end_keys: Callable[[int], Awaitable[None]]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._end_keys = end_keys
        self._table = LeaseTable()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at: float = 0.0

    def grant(self, ttl_s: float) -> "LocalLease":
        """A new lease."""
        lease = LocalLease(self._table.grant(ttl_s, self._clock.now()), self)
        self._set_timer()
        return lease

    def check(self, lease: int) -> None:
        """Raise LepaError(not_found) when `lease` is not 0 and has lapsed."""
        if lease:
            self._table.check(lease, self._clock.now())

    def keep(self, lease: int) -> None:
        """Extend a lease. Raises LepaError(not_found) when it has lapsed."""
        self._table.keep(lease, self._clock.now())

    async def end(self, lease: int) -> None:
        """End a lease now; nothing happens when it has ended."""
        if self._table.end(lease):
            await self._end_keys(lease)

    def _set_timer(self) -> None:
        wake_at = self._table.wake_at()
        if self._timer is not None and not self._timer.done():
            if wake_at is None or self._timer_at <= wake_at:
                return
            self._timer.cancel()
        self._timer = self._tasks.start("leases", self._end_lapsed())

    async def _end_lapsed(self) -> None:
        while (wake_at := self._table.wake_at()) is not None:
            self._timer_at = wake_at
            await self._clock.sleep(max(wake_at - self._clock.now(), 0))
            for lease in self._table.lapsed(self._clock.now()):
                await self.end(lease)


class LocalLease:
    """A Lease of a store in this process."""

    def __init__(self, lease_id: int, leases: Leases) -> None:
        self.id = lease_id
        self._leases = leases

    async def keep(self) -> None:
        self._leases.keep(self.id)

    async def revoke(self) -> None:
        await self._leases.end(self.id)
