"""Following a store: snapshots, blocking queries, subscribers."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.builders import make_alloc, make_job, make_node
from tests.clocks import ManualClock, settle

from lepa.model.errors import LepaError
from lepa.state import keys
from lepa.state import replica as module
from lepa.state.replica import Replica
from lepa.state.tables import Watch
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Txn


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock, changes_max=50)
    yield store
    await store.close()


@pytest.fixture
async def replica(store: MemoryStore, clock: ManualClock) -> AsyncIterator[Replica]:
    async with Replica(store, clock) as replica:
        yield replica


async def place(store: MemoryStore, alloc_id: str, node: str = "node-1") -> int:
    done = await store.commit(Txn((keys.put(keys.alloc_key(alloc_id), make_alloc(alloc_id, node_id=node)),)))
    return done.revision


async def test_it_begins_with_what_is_stored(store: MemoryStore, clock: ManualClock) -> None:
    revision = await place(store, "a")
    async with Replica(store, clock) as replica:
        assert replica.snapshot.allocation("a") is not None
        assert replica.snapshot.index == revision


async def test_a_large_state_is_set_apart_from_what_is_searched_for_garbage(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COLLECTED_ENTRIES_MAX", 0)
    await place(store, "a")
    try:
        async with Replica(store, clock) as replica:
            assert replica.snapshot.allocation("a") is not None
            assert gc.isenabled()
            assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


async def test_a_writer_waits_for_its_own_write(store: MemoryStore, replica: Replica) -> None:
    revision = await place(store, "a")
    snapshot = await replica.wait_for(revision, timeout_s=1)
    assert snapshot.allocation("a") is not None


async def test_writers_are_woken_in_the_order_of_what_they_wait_for(store: MemoryStore, replica: Replica) -> None:
    late = asyncio.ensure_future(replica.wait_for(3, timeout_s=100))
    early = asyncio.ensure_future(replica.wait_for(2, timeout_s=100))
    await settle()
    for alloc_id, woken in (("a", []), ("b", [early]), ("c", [early, late])):
        await place(store, alloc_id)
        await settle()
        assert [waiting for waiting in (early, late) if waiting.done()] == woken


async def test_writers_that_have_gone_are_swept_away(replica: Replica) -> None:
    for _ in range(3):
        waits = [asyncio.ensure_future(replica.wait_for(99, timeout_s=100)) for _ in range(1_000)]
        await settle()
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    assert len(replica._waiters._indexes) <= 2_001
    assert replica._waiters._count == 0


async def test_waiting_for_an_index_has_an_end(replica: Replica, clock: ManualClock) -> None:
    waiting = asyncio.ensure_future(replica.wait_for(99, timeout_s=5))
    await clock.advance(6)
    with pytest.raises(LepaError) as caught:
        await waiting
    assert caught.value.code == "timeout"


async def test_a_query_behind_the_state_is_answered_at_once(store: MemoryStore, replica: Replica) -> None:
    await replica.wait_for(await place(store, "a"), 1)
    assert (await replica.changed(Watch("allocs"), 0, wait_s=300)).index == 1


async def test_a_query_is_woken_by_its_own_rows_only(store: MemoryStore, replica: Replica) -> None:
    await replica.wait_for(await place(store, "a", "n1"), 1)
    watch = Watch("allocs", "node", "n1")
    query = asyncio.ensure_future(replica.changed(watch, replica.snapshot.index_of(watch), wait_s=300))
    await place(store, "b", "n2")
    await settle()
    assert not query.done()
    revision = await place(store, "c", "n1")
    snapshot = await query
    assert snapshot.index_of(watch) == revision


async def test_a_query_may_watch_several_things(store: MemoryStore, replica: Replica) -> None:
    query = asyncio.ensure_future(replica.changed([Watch("jobs"), Watch("nodes")], 1, wait_s=300))
    await store.commit(Txn((keys.put(keys.job_key("default", "a"), make_job("a")),)))
    await settle()
    await store.commit(Txn((keys.put(keys.node_key("n"), make_node("n")),)))
    assert (await query).node("n") is not None


async def test_a_query_ends_with_the_newest_state_when_its_time_is_over(
    store: MemoryStore, replica: Replica, clock: ManualClock
) -> None:
    query = asyncio.ensure_future(replica.changed(Watch("jobs"), 5, wait_s=10))
    await place(store, "a")
    await clock.advance(9)
    assert not query.done()
    await clock.advance(2)
    assert (await query).allocation("a") is not None


async def test_a_shorter_wait_begun_later_ends_first(replica: Replica, clock: ManualClock) -> None:
    long = asyncio.ensure_future(replica.changed(Watch("jobs"), 0, wait_s=100))
    await settle()
    short = asyncio.ensure_future(replica.changed(Watch("jobs"), 0, wait_s=5))
    await clock.advance(6)
    assert short.done()
    assert not long.done()
    await clock.advance(100)
    assert long.done()


async def test_waiting_leaves_nothing_behind(store: MemoryStore, replica: Replica) -> None:
    queries = [asyncio.ensure_future(replica.changed(Watch("allocs", "id", f"a{at}"), 5, 300)) for at in range(500)]
    await settle()
    for query in queries:
        query.cancel()
    await asyncio.gather(*queries, return_exceptions=True)
    assert replica._waiters._by_watch == {}
    assert replica._waiters._count == 0


async def test_few_of_many_who_are_woken_go_on_in_one_turn(store: MemoryStore, replica: Replica) -> None:
    turns: list[int] = []

    async def wait(*, for_index: bool) -> None:
        await (replica.wait_for(1, 100) if for_index else replica.changed(Watch("allocs"), 0, 100))
        turns.append(turn)

    waits = [asyncio.ensure_future(wait(for_index=bool(at % 2))) for at in range(100)]
    await settle()
    turn = 0
    await place(store, "a")
    while not all(done.done() for done in waits):
        turn += 1
        await asyncio.sleep(0)
    assert len(turns) == 100
    assert max(Counter(turns).values()) <= module.WOKEN_AT_ONCE_MAX


async def test_leaving_ends_waits_that_were_about_to_go_on(store: MemoryStore, clock: ManualClock) -> None:
    async with Replica(store, clock) as replica:
        waits = [asyncio.ensure_future(replica.wait_for(1, 100)) for _ in range(10 * module.WOKEN_AT_ONCE_MAX)]
        await settle()
        await place(store, "a")
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        assert not all(done.done() for done in waits)
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)


async def test_too_many_waiters_are_refused(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITERS_MAX", 3)
    queries = [asyncio.ensure_future(replica.changed(Watch("jobs"), 5, 300)) for _ in range(4)]
    await settle()
    with pytest.raises(LepaError, match="3 blocking queries"):
        await queries[3]
    for query in queries:
        query.cancel()


async def test_leaving_ends_all_waits(store: MemoryStore, clock: ManualClock) -> None:
    async with Replica(store, clock) as replica:
        query = asyncio.ensure_future(replica.changed(Watch("jobs"), 5, wait_s=300))
        subscription = replica.subscribe()
        await settle()
    assert (await query).index == 0
    assert [delivery async for delivery in subscription] == []


async def test_a_subscriber_gets_every_change_after_its_start(store: MemoryStore, replica: Replica) -> None:
    await replica.wait_for(await place(store, "before"), 1)
    subscription = replica.subscribe()
    await place(store, "a")
    await place(store, "b")
    seen: list[str] = []
    while len(seen) < 2:
        delivery = await anext(subscription)
        seen += [row.key for row in delivery.changes]
        assert delivery.snapshot.allocation(seen[-1]) is not None
    assert seen == ["a", "b"]
    assert subscription.start.index == 1


async def test_many_changes_come_in_parts_of_whole_revisions(
    store: MemoryStore, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANGES_AT_ONCE_MAX", 4)
    subscription = replica.subscribe()
    for at in range(4):  # in one step of the loop
        puts = [keys.put(keys.alloc_key(f"a{at}{one}"), make_alloc(f"a{at}{one}")) for one in range(3)]
        store.apply(puts)
    deliveries = [await anext(subscription) for _ in range(2)]
    assert [len(delivery.changes) for delivery in deliveries] == [6, 6]
    assert [delivery.snapshot.index for delivery in deliveries] == [2, 4]
    assert len(list(deliveries[0].snapshot.allocations())) == 6


async def test_a_slow_subscriber_is_told_that_it_missed_something(
    store: MemoryStore, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUBSCRIPTION_BATCHES_MAX", 4)
    subscription = replica.subscribe()
    for at in range(7):
        await replica.wait_for(await place(store, f"a{at}"), 1)
    delivery = await anext(subscription)
    assert delivery.lagged
    assert delivery.changes == ()
    assert delivery.snapshot.allocation("a4") is not None
    rest = [(await anext(subscription)).changes[0].key for _ in range(2)]
    assert rest == ["a5", "a6"]


async def test_a_replica_that_fell_behind_reads_again(store: MemoryStore, clock: ManualClock) -> None:
    async with Replica(store, clock) as replica:
        subscription = replica.subscribe()
        query = asyncio.ensure_future(replica.changed(Watch("allocs", "id", "a149"), 5, wait_s=300))
        await settle()
        for at in range(150):  # in one step of the loop: the replica cannot follow
            store.apply([keys.put(keys.alloc_key(f"a{at}"), make_alloc(f"a{at}"))])
        snapshot = await replica.wait_for(150, 1)
        assert len(list(snapshot.allocations())) == 150
        assert (await anext(subscription)).lagged
        assert (await query).index == 150
        await replica.wait_for(await place(store, "later"), 1)


async def test_a_store_that_fails_is_followed_again(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LepaError("timeout", "the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(store, "watch", fail)
        async with Replica(store, clock) as replica:
            revision = await place(store, "a")
            await clock.advance(3 * module.RETRY_DELAY_S)
            assert replica.snapshot.index == 0
            patch.undo()
            await clock.advance(module.RETRY_DELAY_S)
            assert replica.snapshot.index == revision
