"""The event stream: the newest batches are kept, and every subscriber gets what comes, at its own pace.

Changes are kept as they are and made into events only for those who asked: most batches are never looked at. Each batch
knows the next one, so a subscriber misses none however many come at once; the stream of one that is BEHIND_MAX behind
ends, as all do when this server itself has missed changes: then they know it, and ask again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Final

from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, denied
from lepa.rpc.requests import EventBatch, EventStreamRequest
from lepa.server.acl.access import ALL, Access
from lepa.server.acl.guard import Guard
from lepa.server.events import TOPICS, Wanted, events_of, may_follow
from lepa.state.reducer import RowChange
from lepa.state.replica import Replica, Subscription

SUBSCRIBERS_MAX: Final = 1_000
ACL_TABLES: Final = ("acl_tokens", "acl_policies", "acl_roles")
RIGHTS_S: Final = 1.0
FEW: Final = 20
GATHER_S_EACH, GATHER_S_MAX = 0.000_1, 0.05
"""How long batches are gathered for each subscriber beyond a few: a write for each of them takes about as long."""
MADE_MAX: Final = 256
"""Batches kept as events, for whoever asks for the same."""


BEHIND_MAX: Final = 4_096
"""Batches that one subscriber may be behind the newest one."""


class _Batch:
    """All changes of one revision, and the batch that came next. broken: changes are missing before this one."""

    __slots__ = ("after", "at", "broken", "changes", "number")

    def __init__(self, number: int, at: int, changes: tuple[RowChange, ...], *, broken: bool = False) -> None:
        self.number = number
        self.at = at
        self.changes = changes
        self.broken = broken
        self.after: _Batch | None = None


class _Rights:
    """What a subscriber may see. They are worked out anew when something about access control has changed, and every
    RIGHTS_S seconds for tokens that expire; a token that is over ends the stream."""

    def __init__(self, guard: Guard, replica: Replica, secret: str) -> None:
        self._guard = guard
        self._replica = replica
        self._secret = secret
        self._index = -1
        self._until = 0.0
        self._access = ALL

    def now(self) -> Access:
        """The rights at this moment. Raises LepaError(denied) when the token is not known any more."""
        if not self._guard.enabled:
            return ALL
        snapshot, time = self._replica.snapshot, self._guard.clock.now()
        index = snapshot.table_index(*ACL_TABLES)
        if index != self._index or time >= self._until:
            self._access = self._guard.access(snapshot, self._secret)
            self._index, self._until = index, time + RIGHTS_S
        return self._access


class EventStream:
    """The buffer of one server and its subscribers, as an async context manager."""

    def __init__(self, replica: Replica, batches_max: int, guard: Guard) -> None:
        self._replica = replica
        self._guard = guard
        self._batches: deque[_Batch] = deque(maxlen=batches_max)
        self._newest = _Batch(0, 0, ())
        self._made: dict[tuple[int, str, str], EventBatch] = {}
        self._waking = False
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
        topics = request.topics or {"*": ("*",)}
        access = self._guard.access(self._replica.snapshot, request.auth_token)
        if not may_follow(topics, request.namespace or "default", access):
            raise denied()
        rights = _Rights(self._guard, self._replica, request.auth_token)
        asked = repr(sorted(topics.items())), request.namespace or "default"
        self._subscribers += 1
        try:
            async for batch in self._from(request.index):
                wanted = Wanted(topics, request.namespace or "default", rights.now())
                if (made := self._made_for(batch, wanted, asked)).events:
                    yield made
        finally:
            self._subscribers -= 1

    def _made_for(self, batch: _Batch, wanted: Wanted, asked: tuple[str, str]) -> EventBatch:
        """A batch as events, made once for all who ask for the same and may see everything."""
        if not wanted.access.management:
            return EventBatch(index=batch.at, events=events_of(batch.changes, wanted))
        key = (batch.at, *asked)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = EventBatch(index=batch.at, events=events_of(batch.changes, wanted))
            if len(self._made) > MADE_MAX:
                self._made.pop(next(iter(self._made)))
        return made

    async def _from(self, index: int) -> AsyncIterator[_Batch]:
        """Raises LepaError when batches were missed."""
        last = self._newest
        batch = next((batch for batch in self._batches if batch.at >= index), None)
        while not self._closed:
            if batch is None:
                grown = self._grown
                batch = last.after
                if batch is None:
                    await grown.wait()
                    continue
            if batch.broken or self._newest.number - batch.number > BEHIND_MAX:
                raise LepaError("timeout", "events were missed; follow the stream again")
            if batch.at >= index:
                yield batch
            last, batch = batch, batch.after

    async def _follow(self, subscription: Subscription) -> None:
        async for delivery in subscription:
            if delivery.lagged:
                self._batches.clear()
                self._add(delivery.snapshot.index, (), broken=True)
            for index, changes in groupby(delivery.changes, key=lambda change: change.revision):
                if told := tuple(change for change in changes if change.table in TOPICS):
                    self._batches.append(self._add(index, told))
            self._wake_soon()

    def _add(self, at: int, changes: tuple[RowChange, ...], *, broken: bool = False) -> _Batch:
        batch = _Batch(self._newest.number + 1, at, changes, broken=broken)
        self._newest.after = batch
        self._newest = batch
        return batch

    def _wake_soon(self) -> None:
        """Wake the subscribers: at once while they are few, else after a moment in which more may come for a write."""
        if not self._waking:
            self._waking = True
            delay_s = min(GATHER_S_MAX, max(0, self._subscribers - FEW) * GATHER_S_EACH)
            asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._grown.set()
        self._grown = asyncio.Event()
