"""Answers reads: waits as the request asks, then evaluates a `Query` on the snapshot of that moment.

A blocking query waits until something it watches is newer than the index the caller has, or its time is over, and
answers either way. Lists over many rows are made in a thread: a snapshot does not change, and the event loop has
heartbeats to attend to.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from lepa.kit.sources import Clock, Random
from lepa.rpc.methods import Method
from lepa.rpc.requests import WAIT_MAX_NS, ReadRequest, Reply
from lepa.server.endpoints.query import Answerable, Query
from lepa.server.pages import Page
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

THREAD_ROWS: Final = 2_000
"""Tables larger than this are listed in a thread."""

WAIT_JITTER: Final = 16
"""A wait takes up to this part of itself longer, so that callers do not come back together."""

Answer = Callable[[Any], Awaitable[Reply[Any]]]


class Queries:
    """Answers queries from this server's replica."""

    def __init__(self, replica: Replica, clock: Clock, random: Random) -> None:
        self._replica = replica
        self._clock = clock
        self._random = random

    def answers(self, queries: Answerable) -> dict[Method[Any, Any], Answer]:
        """What answers each method."""
        return {method: partial(self.answer, query) for method, query in queries.items()}

    async def answer(self, query: Query, request: ReadRequest) -> Reply[Any]:
        """Wait as the request asks, then answer."""
        watches = query.watches(request)
        deadline = self._clock.now() + self._wait_s(request) if request.index > 0 else 0.0
        seen = request.index
        while True:
            snapshot = self._replica.snapshot
            if request.index > 0:
                left_s = deadline - self._clock.now()
                snapshot = await self._replica.changed(watches, seen, left_s)
            value = await self._evaluate(query, watches, snapshot, request)
            newest = max(map(snapshot.index_of, watches), default=snapshot.index)
            index = newest if query.index_of is None else query.index_of(value)
            ends = index > request.index and (query.ends is None or query.ends(value, request))
            if request.index == 0 or ends or self._clock.now() >= deadline or newest <= seen:
                return _reply(value, max(1, index))
            seen = newest

    async def _evaluate(
        self, query: Query, watches: tuple[Watch, ...], snapshot: Snapshot, request: ReadRequest
    ) -> Any:
        for watch in watches:
            if (
                not watch.grouping
                and watch.table in snapshot.tables
                and len(snapshot.tables[watch.table]) > THREAD_ROWS
            ):
                return await asyncio.to_thread(query.answer, snapshot, request)
        return query.answer(snapshot, request)

    def _wait_s(self, request: ReadRequest) -> float:
        wait_ns = min(request.wait_ns, WAIT_MAX_NS) if request.wait_ns > 0 else WAIT_MAX_NS
        wait_s = wait_ns / 1e9
        return wait_s + self._random.uniform(0, wait_s / WAIT_JITTER)


def _reply(value: Any, index: int) -> Reply[Any]:
    if isinstance(value, Page):
        return Reply(value=value.items, index=index, next_token=value.next_token)
    return Reply(value=value, index=index)
