"""A store in one SQLite file, for one server.

Commits queue up for one writer thread. It takes all that wait, commits them with one sync of the disk, and hands the
results back to the event loop together: the busier the store, the larger the groups, the fewer the syncs a commit.
Reads run on a thread and a connection of their own and do not hold up commits. The event loop never waits for the disk.

Changes are published and commits answered in the same step of the loop, in this order: whoever got an answer finds
its changes in the watches. The log of changes is kept in memory: nobody outside this process can follow it, and
whoever starts anew reads anew.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.store.local import CHANGES_MAX, Feed, Leases, LocalLease
from lepa.store.protocol import Change, Committed, Fence, Image, Limits, Put, Read, Txn
from lepa.store.revisions import check_txn
from lepa.store.sqlite_file import EndLease, Group, Request, SqliteFile

LIMITS: Final = Limits(operations_max=1_024, bytes_max=4 << 20)
GROUP_MAX: Final = 256
"""Transactions committed with one sync."""
GROUP_BYTES_MAX: Final = 8 << 20
QUEUED_MAX: Final = 8_192
"""Transactions that may wait for the writer; more are refused."""


class _Queued(NamedTuple):
    request: Request
    size: int
    answer: "asyncio.Future[Committed]"


class SqliteStore:
    """Objects under keys in one file. `await SqliteStore.open(path, clock)` to begin, `close` at the end."""

    def __init__(self, file: SqliteFile, clock: Clock, changes_max: int = CHANGES_MAX) -> None:
        self.limits = LIMITS
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._feed = Feed(file.revision, changes_max)
        self._tasks = Tasks("sqlite_store")
        self._leases = Leases(clock, self._tasks, self._end_keys)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._queued = 0
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._writer.start()

    @classmethod
    async def open(cls, path: Path, clock: Clock, changes_max: int = CHANGES_MAX) -> "SqliteStore":
        """Open or create the file. Raises LepaError with a sentence when it is taken, damaged or not ours."""
        return cls(await asyncio.to_thread(SqliteFile, path), clock, changes_max)

    async def read(self, prefix: str) -> Read:
        self._check_open()
        return await self._loop.run_in_executor(self._reader, self._file.read, prefix)

    async def commit(self, txn: Txn, fence: Fence | None = None) -> Committed:
        check_txn(txn, self.limits)
        for operation in txn.operations:
            self._leases.check(operation.lease if isinstance(operation, Put) else 0)
        return await self._submit(Request(txn, fence), txn.size)

    async def replace(self, image: Image, fence: Fence | None = None) -> int:
        return (await self._submit(Request(image, fence), 0)).revision

    async def _submit(self, request: Request, size: int) -> Committed:
        self._check_open()
        if self._queued >= QUEUED_MAX:
            raise LepaError("timeout", f"{QUEUED_MAX} writes wait for the disk already; try again later")
        self._queued += 1
        answer: asyncio.Future[Committed] = self._loop.create_future()
        self._queue.put(_Queued(request, size, answer))
        return await answer

    def _check_open(self) -> None:
        if self._closed:
            raise LepaError("internal", "the store is closed")

    def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        return self._feed.watch(from_revision, prefix)

    async def lease(self, ttl_s: float) -> LocalLease:
        return self._leases.grant(ttl_s)

    async def _end_keys(self, lease: int) -> None:
        await self._submit(Request(EndLease(lease)), 0)

    async def close(self) -> None:
        if self._closed:
            return
        await self._tasks.close()
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._reader.shutdown)
        await asyncio.to_thread(self._file.close)
        self._feed.close()

    # The writer thread

    def _write(self) -> None:
        more = True
        while more:
            group, more = self._next_group()
            if group:
                done = self._file.commit([queued.request for queued in group])
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                    self._loop.call_soon_threadsafe(self._answer, group, done)

    def _next_group(self) -> tuple[list[_Queued], bool]:
        """Wait for a transaction; take all that wait with it, within the bounds. False at the end of the queue."""
        group: list[_Queued] = []
        size = 0
        queued = self._queue.get()
        while queued is not None:
            group.append(queued)
            size += queued.size
            if len(group) >= GROUP_MAX or size >= GROUP_BYTES_MAX:
                return group, True
            try:
                queued = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _answer(self, group: Sequence[_Queued], done: Group) -> None:
        self._queued -= len(group)
        if done.replaced:
            self._feed.reset(done.replaced)
        if done.changes:
            self._feed.publish(done.changes)
        for queued, result in zip(group, done.results, strict=True):
            if queued.answer.done():
                continue
            if isinstance(result, LepaError):
                queued.answer.set_exception(result)
            else:
                queued.answer.set_result(result)
