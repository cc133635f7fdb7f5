"""Follows changes in etcd from a revision on, over connections that break.

One stream at one endpoint. It is asked for a word every second; when it says nothing for a while, breaks, or its member
has lost its cluster, the watch goes on at the next endpoint, after the revision of the last event it had. Parts of a
large answer are held back until their revision is whole.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.store import etcd_messages as m
from lepa.store.etcd_connection import RANGE, WATCH, EtcdConnection, described
from lepa.store.etcd_layout import Layout, after
from lepa.store.protocol import Change, Compacted

ASK_S: Final = 1.0
"""How often a stream is asked for a word."""
SILENT_S: Final = 3.0
"""A stream that says nothing for so long is given up."""
AGAIN_S: Final = 0.1

log = logging.getLogger(__name__)


class _Broken(Exception):
    """The stream ended; another endpoint has to go on."""


class Watching:
    """One watch. `changes` yields batches of whole revisions until `stop`."""

    def __init__(
        self,
        connection: EtcdConnection,
        layout: Layout,
        from_revision: int,
        prefix: str,
        clock: Clock,
        tasks: Tasks,
        born: dict[str, int],
    ) -> None:
        """born: when restored objects were created; kept up to date by a watch of everything."""
        self._connection = connection
        self._layout = layout
        self._from = from_revision
        self._revision = layout.etcds(from_revision) or layout.written
        self._prefix = layout.object(prefix)
        self._everything = not prefix
        self._clock = clock
        self._tasks = tasks
        self._born = born
        self._stream: Any = None
        self._stopped = False
        self._held: dict[int, list[Any]] = {}

    def stop(self) -> None:
        """End the watch."""
        self._stopped = True
        if self._stream is not None:
            self._stream.cancel()

    async def changes(self) -> AsyncIterator[Sequence[Change]]:
        """Batches as they come. Raises Compacted when etcd no longer has them, or another state is in force."""
        if self._from < self._layout.root.base:
            raise Compacted(self._layout.root.base)
        while not self._stopped:
            endpoint = self._connection.current
            try:
                async for found in self._follow(endpoint):
                    yield found
            except _Broken as broken:
                if self._stopped:
                    return
                log.info("watch goes on elsewhere endpoint=%s reason=%s", endpoint, broken)
                self._connection.leave(endpoint)
                await self._clock.sleep(AGAIN_S)

    async def _follow(self, endpoint: str) -> AsyncIterator[Sequence[Change]]:
        await self._check_start()
        self._held.clear()
        self._stream = stream = self._connection.stream(WATCH, endpoint)
        asking = self._tasks.start("watch", self._ask(stream))
        try:
            async for answer in self._answers(stream):
                if answer.compact_revision:
                    raise Compacted(self._layout.ours(answer.compact_revision))
                if answer.canceled:
                    raise _Broken(answer.cancel_reason or "cancelled by etcd")
                if found := self._whole(answer):
                    yield found
        finally:
            asking.cancel()
            stream.cancel()

    async def _check_start(self) -> None:
        """Raise Compacted unless etcd still has everything after our revision, and has come as far.

        A watch that begins exactly at the compacted revision would miss what was deleted at it (etcd issue 18089), so
        the revision before its first has to be there.
        """
        layout = self._layout
        try:
            await self._connection.call(RANGE, m.RangeRequest(key=layout.root_key, revision=self._revision))
        except LepaError as error:
            if error.code != "conflict":
                raise
            answer = await self._connection.call(RANGE, m.RangeRequest(key=layout.root_key))
            raise Compacted(layout.ours(answer.header.revision)) from error

    async def _ask(self, stream: Any) -> None:
        """Begin the watches, then ask for signs of life."""
        ranges = [self._layout.prefix] if self._everything else [self._prefix, self._layout.root_key]
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            for key in ranges:
                end = b"" if key == self._layout.root_key else after(key)
                wanted = m.WatchCreateRequest(key=key, range_end=end, start_revision=self._revision + 1, fragment=True)
                await stream.write(m.WatchRequest(create_request=wanted))
            while True:
                await self._clock.sleep(ASK_S)
                await stream.write(m.WatchRequest(progress_request=m.WatchProgressRequest()))

    async def _answers(self, stream: Any) -> AsyncIterator[Any]:
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    answer = await stream.read()
            except TimeoutError as error:
                raise _Broken(f"silent for {SILENT_S:g} s") from error
            except grpc.aio.AioRpcError as error:
                raise _Broken(described(error)) from error
            except asyncio.CancelledError as error:
                if self._stopped and not _cancelling():
                    raise _Broken("stopped") from error
                raise
            if answer is grpc.aio.EOF:
                raise _Broken("ended by etcd")
            yield answer

    def _whole(self, answer: Any) -> list[Change]:
        """The changes of whole revisions that are known with this answer. Raises Compacted."""
        events = [*self._held.pop(answer.watch_id, ()), *answer.events]
        if answer.fragment and events:
            last = events[-1].kv.mod_revision
            cut = next(at for at, event in enumerate(events) if event.kv.mod_revision == last)
            self._held[answer.watch_id] = events[cut:]
            events = events[:cut]
        if not events:
            return []
        found = self._changes(events)
        self._revision = max(self._revision, events[-1].kv.mod_revision)
        return found

    def _changes(self, events: Sequence[Any]) -> list[Change]:
        layout, objects = self._layout, self._layout.objects
        found: list[Change] = []
        for event in events:
            raw: bytes = event.kv.key
            if raw.startswith(objects):
                if raw.startswith(self._prefix):
                    found.append(self._object(event))
            elif raw == layout.root_key:
                raise Compacted(layout.ours(event.kv.mod_revision))
        revision = layout.ours(events[-1].kv.mod_revision)
        if self._everything and (not found or found[-1].revision < revision):
            found.append(Change("", None, 0, revision))
        return found

    def _object(self, event: Any) -> Change:
        change = self._layout.change(event, event.type == m.DELETED)
        if change.value is None:
            self._born.pop(change.key, None)
        elif change.created != self._layout.ours(event.kv.create_revision):
            self._born[change.key] = change.created
        return change


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
