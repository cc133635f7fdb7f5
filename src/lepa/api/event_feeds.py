"""Events to subscribers: each batch is encoded once, and written in one pass to all who asked for the same.

A feed follows the servers for all subscribers with the same topics, namespace and token. It keeps the newest lines in a
ring. A pass goes over its subscribers and hands to each transport what it was not handed yet; those who are level get
the very same bytes. A pass comes as soon as there is something, and not before the last one has paid off: with many
subscribers a few batches are gathered for each write.

A subscriber that reads too slowly is left behind. Its connection ends when the ring has forgotten its next line, or
when it has taken nothing for WRITE_S: it knows then that it missed something, and may ask again from the index it has
seen last. So what a subscriber sees has no gaps.

A subscriber that asks for what the feed has forgotten, or never had, gets a feed of its own. As soon as that has come
to where the other one begins, its subscribers go over.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from lepa.api.event_ring import Ring, as_chunk
from lepa.kit.tasks import Tasks
from lepa.model import wire
from lepa.model.errors import LepaError
from lepa.rpc.requests import EventBatch, EventStreamRequest

HEARTBEAT_S = 30.0
WRITE_S = 40.0
SUBSCRIBERS_MAX: Final = 1_000
RINGS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all feeds together."""
RING_BYTES_MIN, RING_BYTES_MAX = 128 * 1024, 4 * 1024 * 1024
BUFFER_MAX: Final = 64 * 1024
"""Bytes that wait in a transport before nothing more is handed to it."""
GATHER_S_EACH, GATHER_S_MAX = 0.000_1, 0.05
"""Time between the beginnings of two passes for each subscriber, about twice what a pass takes, and at most."""
LOOK_S: Final = 0.05
"""How often a subscriber that is behind is looked at while nothing new comes."""
WRITTEN_AT_ONCE: Final = 64
"""Subscribers of one turn of the event loop (some 1 ms)."""

HEARTBEAT: Final = b"{}\n"

Key = tuple[str, ...]
Follow = Callable[[EventStreamRequest], AsyncIterator[EventBatch]]


class Feeds:
    """The feeds of one API. follow: opens the servers' stream."""

    def __init__(self, follow: Follow) -> None:
        self._follow = follow
        self._joinable: dict[Key, _Feed] = {}
        self._open: set[_Feed] = set()
        self._subscribers = 0
        self._tasks = Tasks("api.events")

    def check_room(self) -> None:
        """Raises LepaError when no more subscribers are taken."""
        if self._subscribers >= SUBSCRIBERS_MAX:
            raise LepaError("timeout", f"{SUBSCRIBERS_MAX} event streams are open here already; try again later")

    async def serve(self, call: EventStreamRequest, response: web.StreamResponse, transport: asyncio.Transport) -> None:
        """Write to a response that has begun, until the stream ends or the subscriber does."""
        subscriber = _Subscriber(transport, call.index, response.headers.get("Transfer-Encoding") == "chunked")
        self._subscribers += 1
        self._feed_for(call).join(subscriber)
        try:
            await subscriber.ended.wait()
        finally:
            self._subscribers -= 1
            if subscriber.feed is not None:
                subscriber.feed.leave(subscriber)
        if subscriber.dropped:
            transport.abort()

    def _feed_for(self, call: EventStreamRequest) -> "_Feed":
        key = (repr(sorted(call.topics.items())), call.region, call.namespace, call.auth_token)
        known = self._joinable.get(key)
        if known is not None and known.over:
            known = None
        if known is not None and known.ring.since <= call.index:
            return known
        feed = _Feed(Ring(call.index), self._ring_bytes, known)
        if known is None:
            self._joinable[key] = feed
        self._open.add(feed)
        feed.task = self._tasks.start("feed", self._run(feed, key, call))
        return feed

    def _ring_bytes(self) -> int:
        return max(RING_BYTES_MIN, min(RING_BYTES_MAX, RINGS_BYTES_MAX // max(1, len(self._open))))

    async def _run(self, feed: "_Feed", key: Key, call: EventStreamRequest) -> None:
        try:
            with contextlib.suppress(LepaError):  # a stream that cannot be opened ends, as one that breaks does
                await feed.run(self._follow(call))
        finally:
            feed.end()
            self._open.discard(feed)
            if self._joinable.get(key) is feed:
                del self._joinable[key]


class _Subscriber:
    """One connection. since: lines with an earlier index are not for it. place: in the ring of its feed."""

    def __init__(self, transport: asyncio.Transport, since: int, chunked: bool) -> None:
        self.since = since
        self.place = 0
        self.feed: _Feed | None = None
        self.ended = asyncio.Event()
        self.dropped = False
        self._transport = transport
        self._chunked = chunked
        self._full_since: float | None = None

    def write(self, ring: Ring, now: float) -> bool:
        """Hand over what is new, as far as there is room; whether that was everything."""
        if self.since >= ring.since:
            self.place = max(self.place, ring.place_of(self.since))
        while self.place < ring.end and not self._transport.is_closing():
            if self.place < ring.begin:
                self.end(dropped=True)
            elif self._transport.get_write_buffer_size() > BUFFER_MAX:
                self._full_since = now if self._full_since is None else self._full_since
                if now - self._full_since <= WRITE_S:
                    return False
                self.end(dropped=True)
            if self.dropped:
                return True
            piece = ring.piece(self.place)
            self._transport.write(piece.chunk if self._chunked else piece.lines)
            self.place = piece.after
            self._full_since = None
        return True

    def beat(self) -> None:
        """Show that the stream is alive."""
        if self._transport.get_write_buffer_size() <= BUFFER_MAX and not self._transport.is_closing():
            self._transport.write(as_chunk(HEARTBEAT) if self._chunked else HEARTBEAT)

    def end(self, *, dropped: bool = False) -> None:
        """Let its handler return; dropped: its connection is cut."""
        self.dropped = dropped
        self.ended.set()


class _Feed:
    """One stream of the servers and who reads it. main: the feed for those who ask for the same from later on.

    over: it has ended, or is about to.
    """

    def __init__(self, ring: Ring, bytes_max: Callable[[], int], main: "_Feed | None") -> None:
        self.ring = ring
        self.task: asyncio.Task[None] | None = None
        self._bytes_max = bytes_max
        self._main = main
        self._subscribers: dict[_Subscriber, None] = {}
        self._more = asyncio.Event()
        self._beats = False
        self.over = False

    def join(self, subscriber: _Subscriber) -> None:
        """Write to a subscriber whose `since` the ring reaches back to."""
        subscriber.feed, subscriber.place = self, self.ring.begin
        self._subscribers[subscriber] = None
        self._more.set()

    def leave(self, subscriber: _Subscriber) -> None:
        """Write to it no more; the last one ends the feed."""
        self._subscribers.pop(subscriber, None)
        if not self._subscribers and self.task is not None:
            self.over = True
            self.task.cancel()

    def end(self) -> None:
        """Nothing comes any more."""
        self.over = True
        for subscriber in self._subscribers:
            subscriber.end()

    async def run(self, batches: AsyncIterator[EventBatch]) -> None:
        """Write until the stream ends or nobody is left, and `{}` every HEARTBEAT_S."""
        loop = asyncio.get_running_loop()
        beat_at, level = loop.time() + HEARTBEAT_S, True
        async with Tasks("api.events.feed") as tasks:
            follow = tasks.start("follow", self._follow(batches))
            while not follow.done() or self._more.is_set():
                await self._wait(beat_at - loop.time() if level else LOOK_S)
                began = loop.time()
                if began >= beat_at:
                    self._beats, beat_at = True, began + HEARTBEAT_S
                level = await self._pass()
                pause = min(GATHER_S_MAX, len(self._subscribers) * GATHER_S_EACH) - (loop.time() - began)
                await asyncio.sleep(max(0.0, pause))

    async def _follow(self, batches: AsyncIterator[EventBatch]) -> None:
        try:
            with contextlib.suppress(LepaError):
                async with contextlib.aclosing(batches) as coming:  # type: ignore[type-var]
                    async for batch in coming:
                        if batch.events:
                            line = wire.to_json({"Index": batch.index, "Events": batch.events}) + b"\n"
                            self.ring.add(batch.index, line, self._bytes_max())
                        else:
                            self._beats = True
                        self._more.set()
        finally:
            self._more.set()

    async def _wait(self, timeout_s: float) -> None:
        """Until there is something new, at the latest after a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._more.wait()
        self._more.clear()

    async def _pass(self) -> bool:
        """Go over all subscribers once; whether all are level then."""
        beats, self._beats = self._beats, False
        level = True
        for number, subscriber in enumerate(tuple(self._subscribers)):
            if number % WRITTEN_AT_ONCE == WRITTEN_AT_ONCE - 1:
                await asyncio.sleep(0)
            if subscriber not in self._subscribers:
                continue
            has_all = subscriber.write(self.ring, asyncio.get_running_loop().time())
            level = level and has_all
            if beats:
                subscriber.beat()
            if subscriber.dropped:
                del self._subscribers[subscriber]
            elif has_all:
                self._hand_over(subscriber)
        return level

    def _hand_over(self, subscriber: _Subscriber) -> None:
        """Let the main feed write to one that is level, once that feed goes back far enough."""
        since = max(subscriber.since, self.ring.last_index + 1)
        if self._main is not None and not self._main.over and self._main.ring.since <= since:
            subscriber.since = since
            self.leave(subscriber)
            self._main.join(subscriber)
