"""One allocation's ephemeral disk: its directories, and the data of the allocation that it replaces.

An allocation first waits for those of this node that have to end before it. When one of them is the allocation that it
replaces, the data of a sticky disk are moved within the node; when that ran elsewhere and the disk may migrate, they
are fetched from its node.
"""

import asyncio
import logging
import shutil
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiohttp

from lepa.client import migration
from lepa.client.alloc_dir import AllocDir
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.job import TaskGroup
from lepa.model.migration import MigrateSource

log = logging.getLogger(__name__)

T = TypeVar("T")


class Predecessor(Protocol):
    """An allocation of this node that has to end before another begins. sticky: its data go to the one after it."""

    @property
    def alloc(self) -> Allocation: ...
    @property
    def directory(self) -> AllocDir: ...
    @property
    def finished(self) -> asyncio.Event: ...
    @property
    def sticky(self) -> bool: ...


@dataclass(frozen=True)
class DiskParts:
    """What the ephemeral disks of a node share.

    may_start: set once the servers have been asked what should run here. builders: how many directories are made at a
    time; more threads than a few only keep the event loop from its turn. migrate_source: by the id of the allocation
    that wants the data. agents_tls: how other nodes are called, when not in plain text.
    """

    http: aiohttp.ClientSession
    may_start: asyncio.Event
    migrate_source: Callable[[str], MigrateSource | None]
    builders: asyncio.Semaphore
    agents_tls: ssl.SSLContext | None = None


class EphemeralDisk:
    """The disk of one allocation. stopping: whether the allocation is to end; `news` is set when that may change."""

    def __init__(
        self,
        alloc: Allocation,
        group: TaskGroup,
        directory: AllocDir,
        parts: DiskParts,
        *,
        stopping: Callable[[], bool],
        news: asyncio.Event,
    ) -> None:
        self._alloc = alloc
        self._disk = group.ephemeral_disk
        self._tasks = [task.name for task in group.tasks]
        self._directory = directory
        self._parts = parts
        self._stopping = stopping
        self._news = news
        self._incoming = directory.path / migration.INCOMING

    @property
    def fresh(self) -> bool:
        """Whether the disk was not prepared yet, or not to the end."""
        return not self._directory.path.exists() or self._incoming.exists()

    async def prepare(self, earlier: Sequence[Predecessor]) -> str:
        """Make the directories, and bring the data once `earlier` have ended; what the tasks should be told, or "".

        Safe to call again after an agent restart. Raises LepaError(internal) when the directories cannot be made.
        """
        fetches = self.fresh and self._migrates and not earlier
        for each in earlier:
            await self._unless_stopped(each.finished.wait())
        try:
            await self._build(earlier, fetches=fetches)
        except OSError as error:
            raise LepaError("internal", f"cannot make directories: {error}") from error
        return await self._fetch() if fetches else ""

    @property
    def _migrates(self) -> bool:
        return self._disk.sticky and self._disk.migrate and bool(self._alloc.previous_allocation)

    async def _build(self, earlier: Sequence[Predecessor], *, fetches: bool) -> None:
        async with self._parts.builders:
            if fetches:
                await asyncio.to_thread(self._directory.expect_data, migration.INCOMING)
            await asyncio.to_thread(self._directory.build, self._tasks)
        for each in earlier:
            if each.sticky and each.alloc.id == self._alloc.previous_allocation:
                await asyncio.to_thread(self._directory.inherit, each.directory, self._tasks)

    async def _fetch(self) -> str:
        """Fetch the data of the allocation before from its node. What cannot be had is told; the disk is empty then.

        `incoming` is there until all has come, so that an agent which starts in the middle begins again.
        """
        await self._parts.may_start.wait()
        source = self._parts.migrate_source(self._alloc.id)
        told = f"data of allocation {self._alloc.previous_allocation} are gone with its node; the disk is empty"
        if source is not None:
            told = await self._fetch_from(source)
        await asyncio.to_thread(shutil.rmtree, self._incoming, ignore_errors=True)
        return told

    async def _fetch_from(self, source: MigrateSource) -> str:
        """What came of it, in a sentence; given up when nobody wants the allocation any more."""
        previous = self._alloc.previous_allocation
        outcome = await self._unless_stopped(self._fetched(source, previous))
        if outcome is None:
            return "data were not moved: the allocation was stopped first"
        if isinstance(outcome, LepaError):
            log.warning("data were not moved alloc_id=%s error=%s", self._alloc.id, outcome.message)
            return f"{outcome.message}; the disk is empty"
        return f"data of allocation {previous} were moved from {source.address}: {outcome} bytes"

    async def _fetched(self, source: MigrateSource, previous: str) -> int | LepaError:
        """The bytes that came, or why none did."""
        http, tls, size_mb = self._parts.http, self._parts.agents_tls, self._disk.size_mb
        try:
            return await migration.fetch(http, source, previous, self._directory, self._tasks, size_mb, tls)
        except LepaError as error:
            return error

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What came of `work`; None when the allocation is to end before, which gives `work` up."""
        async with Tasks("client.ephemeral_disk") as tasks:
            working: asyncio.Task[T] = tasks.start("work", work)
            while not (working.done() or self._stopping()):
                self._news.clear()
                noticed = tasks.start("news", self._news.wait())
                await asyncio.wait([working, noticed], return_when=asyncio.FIRST_COMPLETED)
                noticed.cancel()
            return working.result() if working.done() else None
