"""Follows a store, publishes snapshots, wakes those who wait for a change.

One task reads the store once and then watches it. Each batch of changes is reduced to the next snapshot, which
replaces the one before in a single assignment; then waiters and subscribers hear of it. Readers take `snapshot` and
keep it as long as they like: no locks, no copies.

When the store no longer has the changes since our index (`Compacted`), everything is read again. Subscribers are then
told that they have missed something, and all waiters look again.

A blocking query waits on what it asked about: `Watch("allocs", "node", id)` is not woken by other nodes. Two thousand
parked queries cost a dict entry and a deadline each, and nothing at all until theirs is touched.
"""

import asyncio
import gc
import heapq
import itertools
import logging
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, NamedTuple, Self

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.state.reducer import Reduction, RowChange, load, reduce
from lepa.state.snapshot import Snapshot, empty_snapshot
from lepa.state.tables import Watch
from lepa.store.protocol import Change, Compacted, Store

log = logging.getLogger(__name__)

WAITERS_MAX: Final = 20_000
SUBSCRIPTION_BATCHES_MAX: Final = 256
REDUCED_ON_LOOP_MAX: Final = 64
"""Changes of a batch that are reduced on the event loop (some 4 ms); larger batches go to a thread."""
CHANGES_AT_ONCE_MAX: Final = 256
"""Changes of one snapshot, to the end of their revision: others have a turn before the next (some 15 ms)."""
WOKEN_AT_ONCE_MAX: Final = 16
"""Waiters that go on in one turn of the event loop: each may make a list or a write (some 1 ms)."""
COLLECTED_ENTRIES_MAX: Final = 5_000
"""Entries that are loaded without a word to the garbage collector."""
RETRY_DELAY_S: Final = 0.5
"""Pause before the store is tried again after it failed."""


class Delivery(NamedTuple):
    """What a subscriber gets: the snapshot after `changes`.

    lagged: some changes were lost to this subscriber before this one; `changes` is empty and the snapshot is new.
    """

    snapshot: Snapshot
    changes: tuple[RowChange, ...]
    lagged: bool = False


class Subscription:
    """All changes after `start`, batch by batch, for one reader. A slow reader loses batches and is told so.

    Iterate it; `close` when done.
    """

    def __init__(self, replica: "Replica", start: Snapshot) -> None:
        self.start = start
        self._replica = replica
        self._batches: deque[Delivery] = deque()
        self._ready = asyncio.Event()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        await self._ready.wait()
        if not self._batches:
            raise StopAsyncIteration
        delivery = self._batches.popleft()
        if not self._batches and not self._closed:
            self._ready.clear()
        return delivery

    def offer(self, delivery: Delivery) -> None:
        """Queue a batch; when the queue is full, all of it is dropped for one that says so."""
        if len(self._batches) >= SUBSCRIPTION_BATCHES_MAX:
            self._batches.clear()
            delivery = Delivery(delivery.snapshot, (), lagged=True)
        self._batches.append(delivery)
        self._ready.set()

    def close(self) -> None:
        """Hear no more; the iteration ends after what is queued."""
        self._closed = True
        self._replica.unsubscribe(self)
        self._ready.set()


class Replica:
    """The state in memory, always a little behind the store. Enter it to begin following; leaving ends all waits."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tasks = Tasks("replica")
        self._snapshot = empty_snapshot()
        self._waiters = _Waiters(clock, self._tasks)
        self._subscriptions: dict[Subscription, None] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The newest state known here."""
        return self._snapshot

    async def __aenter__(self) -> Self:
        await self._read()
        self._tasks.start("follow", self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._tasks.close()
        self._waiters.close()
        for subscription in tuple(self._subscriptions):
            subscription.close()

    async def wait_for(self, index: int, timeout_s: float) -> Snapshot:
        """A snapshot at least as new as `index`: what a writer waits for. Raises LepaError(timeout)."""
        deadline = self._clock.now() + timeout_s
        while self._snapshot.index < index:
            if not await self._waiters.wait_for(index, deadline):
                raise LepaError("timeout", f"index {index} was not reached in {timeout_s:g} s; try again")
        return self._snapshot

    async def changed(self, watches: Watch | Sequence[Watch], after_index: int, wait_s: float) -> Snapshot:
        """The first snapshot in which something watched has an index above `after_index`, or the newest at the end.

        This is Nomad's blocking query: `max(snapshot.index_of(w) for w in watches)` is the index to answer with. Ask
        the same watches again with that index to wait for the next change.
        """
        watches = (watches,) if isinstance(watches, Watch) else tuple(watches)
        deadline = self._clock.now() + wait_s
        while all(self._snapshot.index_of(watch) <= after_index for watch in watches):
            if not await self._waiters.wait(watches, deadline):
                break
        return self._snapshot

    def subscribe(self) -> Subscription:
        """All changes from now on: for the event stream, the broker and the deciders."""
        subscription = Subscription(self, self._snapshot)
        self._subscriptions[subscription] = None
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; `Subscription.close` calls it."""
        self._subscriptions.pop(subscription, None)

    async def _follow(self) -> None:
        """Until the store is closed, which ends its watch."""
        while True:
            try:
                return await self._watch()
            except LepaError as error:
                log.warning("store cannot be followed error=%s", error)
                await self._clock.sleep(RETRY_DELAY_S)

    async def _watch(self) -> None:
        while True:
            try:
                async for changes in self._store.watch(self._snapshot.index):
                    for part in _parts(changes):
                        await self._publish(await self._reduce(part))
                return
            except Compacted:
                log.warning("fell behind the store, reads it again index=%d", self._snapshot.index)
                await self._reread()

    async def _reduce(self, changes: Sequence[Change]) -> Reduction:
        """The next snapshot, without keeping the loop from everything else."""
        if len(changes) > REDUCED_ON_LOOP_MAX:
            return await asyncio.to_thread(reduce, self._snapshot, changes)
        await asyncio.sleep(0)  # a watch with a backlog never waits by itself
        return reduce(self._snapshot, changes)

    async def _read(self) -> None:
        read = await self._store.read("")
        with _many_that_stay(len(read.entries)):
            self._snapshot = await asyncio.to_thread(load, read)

    async def _reread(self) -> None:
        await self._read()
        for subscription in self._subscriptions:
            subscription.offer(Delivery(self._snapshot, (), lagged=True))
        self._waiters.wake_all()

    async def _publish(self, reduction: Reduction) -> None:
        self._snapshot = reduction.snapshot
        for subscription in self._subscriptions:
            subscription.offer(Delivery(reduction.snapshot, reduction.changes))
        self._waiters.wake(reduction.touched)
        self._waiters.wake_up_to(reduction.snapshot.index)
        await self._waiters.let_go()


def _parts(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Changes in parts of whole revisions, each as short as CHANGES_AT_ONCE_MAX and its last revision allow."""
    start = 0
    while start < len(changes):
        last = changes[min(start + CHANGES_AT_ONCE_MAX, len(changes)) - 1].revision
        end = bisect_right(changes, last, lo=start, key=lambda change: change.revision)
        yield changes[start:end]
        start = end


@contextmanager
def _many_that_stay(entries: int) -> Iterator[None]:
    """While millions of objects are made that all stay, looking through them for garbage takes a third of the time.

    Afterwards they are set apart, so that no collection stops everything to go through all of them.
    """
    if entries < COLLECTED_ENTRIES_MAX or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


_Timed = tuple[float, int, asyncio.Future[bool]]
"""A deadline or an index, a number that tells equal ones apart, and who waits."""


class _Waiters:
    """Futures by what they wait for, with deadlines. One sleeping task serves all deadlines.

    Those who wait for an index stand in a heap, so that a batch of changes touches only those whose index has come.
    """

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._by_watch: dict[Watch, dict[asyncio.Future[bool], int]] = {}
        """Who waits for what, each with its number: those who came first go on first."""
        self._count = 0
        self._deadlines: list[_Timed] = []
        self._indexes: list[_Timed] = []
        self._woken: deque[asyncio.Future[bool]] = deque()
        self._numbers = itertools.count()
        self._timer: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, watches: Sequence[Watch], deadline: float) -> bool:
        """True when something watched was touched, False at the deadline (of the clock's `now`) or when closed."""
        if self._over(deadline):
            await asyncio.sleep(0)  # whoever asks again and again lets others have a turn
            return False
        future, number = self._admit(), next(self._numbers)
        for watch in watches:
            self._by_watch.setdefault(watch, {})[future] = number
        try:
            return await self._until(deadline, future)
        finally:
            for watch in watches:
                self._forget(watch, future)

    async def wait_for(self, index: int, deadline: float) -> bool:
        """True when this index or a later one was reached, False at the deadline or when closed."""
        if self._over(deadline):
            return False
        future = self._admit()
        self._push(self._indexes, index, future)
        return await self._until(deadline, future)

    def _over(self, deadline: float) -> bool:
        return self._closed or self._clock.now() >= deadline

    def _admit(self) -> asyncio.Future[bool]:
        if self._count >= WAITERS_MAX:
            raise LepaError("timeout", f"{WAITERS_MAX} blocking queries wait here already; try again later")
        self._count += 1
        return asyncio.get_running_loop().create_future()

    async def _until(self, deadline: float, future: asyncio.Future[bool]) -> bool:
        try:
            self._set_deadline(deadline, future)
            return await future
        finally:
            self._count -= 1

    def wake(self, touched: Iterable[Watch]) -> None:
        """Those who wait for any of these may go on."""
        found: dict[asyncio.Future[bool], int] = {}
        for watch in touched:
            found.update(self._by_watch.get(watch, {}))
        self._woken.extend(sorted(found, key=found.__getitem__))

    def wake_up_to(self, index: int) -> None:
        """Those who wait for `index` or an earlier one may go on, the earliest first."""
        while self._indexes and self._indexes[0][0] <= index:
            self._woken.append(heapq.heappop(self._indexes)[2])

    async def let_go(self) -> None:
        """Let those go on who may, few in one turn of the loop."""
        while self._woken:
            for _ in range(min(WOKEN_AT_ONCE_MAX, len(self._woken))):
                _end(self._woken.popleft(), True)
            await asyncio.sleep(0)

    def wake_all(self) -> None:
        """Let everybody look again, at once."""
        self.wake(tuple(self._by_watch))
        self.wake_up_to(sys.maxsize)
        while self._woken:
            _end(self._woken.popleft(), True)

    def close(self) -> None:
        """Let everybody go, and nobody wait again."""
        self._closed = True
        self.wake_all()

    def _forget(self, watch: Watch, future: asyncio.Future[bool]) -> None:
        waiting = self._by_watch.get(watch)
        if waiting is not None:
            waiting.pop(future, None)
            if not waiting:
                del self._by_watch[watch]

    def _push(self, heap: list[_Timed], at: float, future: asyncio.Future[bool]) -> None:
        """Add to a heap, from which those who have stopped waiting are swept before it is twice as large as needed."""
        if len(heap) > 2 * self._count + 1_000:
            heap[:] = [entry for entry in heap if not entry[2].done()]
            heapq.heapify(heap)
        heapq.heappush(heap, (at, next(self._numbers), future))

    def _set_deadline(self, deadline: float, future: asyncio.Future[bool]) -> None:
        self._push(self._deadlines, deadline, future)
        if self._deadlines[0][2] is future or self._timer is None or self._timer.done():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._tasks.start("deadlines", self._end_overdue())

    async def _end_overdue(self) -> None:
        while self._deadlines:
            deadline, _, future = self._deadlines[0]
            if future.done() or deadline <= self._clock.now():
                heapq.heappop(self._deadlines)
                _end(future, False)
            else:
                await self._clock.sleep(deadline - self._clock.now())


def _end(future: asyncio.Future[bool], touched: bool) -> None:
    if not future.done():
        future.set_result(touched)
