"""The event stream: the newest batches are kept, and every subscriber gets what comes, at its own pace.

Changes are kept as they are and made into events only for those who asked: most batches are never looked at. A
subscriber that falls behind by more than the batches kept goes on at the oldest one, as one who comes late does.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Final, NamedTuple

from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.rpc.requests import EventBatch, EventStreamRequest
from lepa.server.events import TOPICS, Wanted, events_of
from lepa.state.reducer import RowChange
from lepa.state.replica import Replica, Subscription

SUBSCRIBERS_MAX: Final = 1_000


class _Batch(NamedTuple):
    """All changes of one revision."""

    at: int
    changes: tuple[RowChange, ...]


class EventStream:
    """The buffer of one server and its subscribers, as an async context manager."""

    def __init__(self, replica: Replica, batches_max: int) -> None:
        self._replica = replica
        self._batches: deque[_Batch] = deque(maxlen=batches_max)
        self._subscribers = 0
        self._grown = asyncio.Event()
        self._closed = False
        self._tasks = Tasks("event_stream")

    async def __aenter__(self) -> "EventStream":
        self._tasks.start("follow", self._follow(self._replica.subscribe()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._wake()
        await self._tasks.close()

    async def stream(self, request: EventStreamRequest) -> AsyncIterator[EventBatch]:
        """Batches from request.index on (0: from the oldest kept), then as they come."""
        if self._subscribers >= SUBSCRIBERS_MAX:
            raise LepaError("timeout", f"{SUBSCRIBERS_MAX} event streams are open here already; try again later")
        wanted = Wanted(request.topics or {"*": ("*",)}, request.namespace or "default")
        self._subscribers += 1
        try:
            async for batch in self._from(request.index):
                if events := events_of(batch.changes, wanted):
                    yield EventBatch(index=batch.at, events=events)
        finally:
            self._subscribers -= 1

    async def _from(self, index: int) -> AsyncIterator[_Batch]:
        while not self._closed:
            grown = self._grown
            for batch in [batch for batch in self._batches if batch.at >= index]:
                yield batch
                index = batch.at + 1
            if grown is self._grown:
                await grown.wait()

    async def _follow(self, subscription: Subscription) -> None:
        async for delivery in subscription:
            for index, changes in groupby(delivery.changes, key=lambda change: change.revision):
                if told := tuple(change for change in changes if change.table in TOPICS):
                    self._batches.append(_Batch(index, told))
            self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
