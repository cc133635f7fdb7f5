"""What every store promises, asked of each implementation."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.clocks import ManualClock

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.store.etcd import EtcdStore
from lepa.store.memory import MemoryStore
from lepa.store.protocol import (
    Change,
    Compacted,
    Compare,
    Delete,
    Entry,
    Fence,
    Fenced,
    Image,
    Lease,
    Put,
    Store,
    Txn,
)
from lepa.store.sqlite import SqliteStore

CHANGES_MAX = 100
ETCD_SECOND_S = 0.25
"""How long a second of these tests takes where time cannot be set by hand."""

Maker = Callable[[Path, ManualClock], Awaitable[Store]]


async def _memory(_: Path, clock: ManualClock) -> Store:
    return MemoryStore(clock, changes_max=CHANGES_MAX)


async def _sqlite(folder: Path, clock: ManualClock) -> Store:
    return await SqliteStore.open(folder / "state.db", clock, changes_max=CHANGES_MAX)


class Given(NamedTuple):
    """A store, and time as its leases see it."""

    store: Store
    clock: ManualClock | None

    async def lease(self, seconds: float) -> Lease:
        return await self.store.lease(seconds if self.clock else seconds * ETCD_SECOND_S)

    async def advance(self, seconds: float) -> None:
        await (self.clock.advance(seconds) if self.clock else asyncio.sleep(seconds * ETCD_SECOND_S))


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def given(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Given]:
    if request.param == "etcd":
        endpoint, prefix = request.getfixturevalue("etcd_server").endpoint, f"{uuid.uuid4()}/"
        store: Store = await EtcdStore.open(
            [endpoint], SystemClock(), random=SystemRandom(), prefix=prefix, revisions_kept=CHANGES_MAX
        )
        found = Given(store, None)
    else:
        clock = ManualClock()
        found = Given(await {"memory": _memory, "sqlite": _sqlite}[request.param](tmp_path, clock), clock)
    yield found
    await found.store.close()


@pytest.fixture
def store(given: Given) -> Store:
    return given.store


@pytest.fixture(params=[_memory, _sqlite], ids=["memory", "sqlite"])
async def local_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of this process alone, which keeps its own log of changes."""
    store = await request.param(tmp_path, ManualClock())
    yield store
    await store.close()


async def put(store: Store, key: str, value: bytes = b"1", lease: int = 0) -> int:
    committed = await store.commit(Txn((Put(key, value, lease),)))
    assert committed.ok
    return committed.revision


async def keys(store: Store, prefix: str = "") -> list[str]:
    return [entry.key for entry in (await store.read(prefix)).entries]


async def take(watch: AsyncIterator[Sequence[Change]], count: int) -> list[Change]:
    """The next `count` changes or more, up to the end of a batch."""
    found: list[Change] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found.extend(await anext(watch))
    return found


# Reading and writing


async def test_a_new_store_is_empty_at_revision_0(store: Store) -> None:
    assert await store.read("") == (0, [])


async def test_an_entry_tells_when_it_was_created_and_modified(store: Store) -> None:
    first = await put(store, "jobs/default/a", b"1")
    await put(store, "jobs/default/b", b"2")
    third = await put(store, "jobs/default/a", b"3")
    read = await store.read("jobs/default/a")
    assert read.revision == third
    assert [tuple(entry) for entry in read.entries] == [("jobs/default/a", b"3", first, third)]


async def test_each_commit_gets_the_next_revision(store: Store) -> None:
    revisions = [await put(store, f"k/{at}") for at in range(5)]
    assert revisions == list(range(revisions[0], revisions[0] + 5))


async def test_a_key_that_comes_back_is_created_anew(store: Store) -> None:
    await put(store, "a")
    await store.commit(Txn((Delete("a"),)))
    third = await put(store, "a")
    entry = (await store.read("a")).entries[0]
    assert (entry.created, entry.modified) == (third, third)


async def test_reading_takes_a_prefix_and_gives_keys_in_order(store: Store) -> None:
    for key in ("b/2", "a/1", "b/10", "b", "c/1", "b/ä"):
        await put(store, key)
    assert await keys(store, "b/") == ["b/10", "b/2", "b/ä"]
    assert await keys(store) == ["a/1", "b", "b/10", "b/2", "b/ä", "c/1"]


async def test_values_are_any_bytes_and_may_be_empty(store: Store) -> None:
    await put(store, "a", bytes(range(256)))
    await put(store, "b", b"")
    assert [entry.value for entry in (await store.read("")).entries] == [bytes(range(256)), b""]


async def test_a_transaction_is_applied_whole_at_one_revision(store: Store) -> None:
    await put(store, "gone")
    done = await store.commit(Txn((Put("a", b"1"), Put("b", b"2"), Delete("gone"))))
    read = await store.read("")
    assert [(entry.key, entry.modified) for entry in read.entries] == [("a", done.revision), ("b", done.revision)]


async def test_a_transaction_that_changes_nothing_keeps_the_revision(store: Store) -> None:
    revision = await put(store, "a")
    done = await store.commit(Txn((Delete("never"),)))
    assert (done.ok, done.revision) == (True, revision)
    assert (await store.read("")).revision == revision


# Compares and fences


async def test_compares_are_checked_before_anything_changes(store: Store) -> None:
    revision = await put(store, "a")
    refused = await store.commit(Txn((Put("b", b"1"), Put("a", b"2")), (Compare("a", modified=revision + 1),)))
    assert (refused.ok, refused.revision) == (False, revision)
    assert await keys(store) == ["a"]


async def test_a_compare_holds_for_modified_created_or_absent(store: Store) -> None:
    created = await put(store, "a")
    modified = await put(store, "a")
    compares = (Compare("a", modified=modified), Compare("a", created=created), Compare("never", modified=0, created=0))
    assert (await store.commit(Txn((Put("b", b""),), compares))).ok
    assert not (await store.commit(Txn((Put("b", b""),), (*compares, Compare("a", created=0))))).ok


async def test_every_compare_has_to_hold(store: Store) -> None:
    revision = await put(store, "a")
    compares = (Compare("a", modified=revision), Compare("b", created=99))
    assert not (await store.commit(Txn((Put("c", b""),), compares))).ok


async def test_only_one_of_many_creates_a_key(store: Store) -> None:
    txns = [Txn((Put("leader", str(at).encode()),), (Compare("leader", created=0),)) for at in range(20)]
    done = await asyncio.gather(*map(store.commit, txns))
    assert [committed.ok for committed in done].count(True) == 1


async def test_a_fence_lets_the_leader_write(store: Store) -> None:
    created = await put(store, "leader")
    await put(store, "leader", b"again")
    assert (await store.commit(Txn((Put("a", b""),)), Fence("leader", created))).ok


async def test_a_late_write_of_an_old_leader_is_refused(store: Store) -> None:
    created = await put(store, "leader")
    await store.commit(Txn((Delete("leader"),)))
    with pytest.raises(Fenced):
        await store.commit(Txn((Put("a", b""),)), Fence("leader", created))
    await put(store, "leader")
    with pytest.raises(Fenced):
        await store.commit(Txn((Put("a", b""),)), Fence("leader", created))
    assert await keys(store) == ["leader"]


async def test_one_refused_transaction_does_not_disturb_the_others(store: Store) -> None:
    refused = Txn((Put("refused", b""),), (Compare("never", created=5),))
    done = await asyncio.gather(
        store.commit(Txn((Put("a", b""),))),
        store.commit(refused),
        store.commit(Txn((Put("f", b""),)), Fence("leader", 1)),
        store.commit(Txn((Put("b", b""),))),
        return_exceptions=True,
    )
    assert [getattr(result, "ok", type(result)) for result in done] == [True, False, Fenced, True]
    assert await keys(store) == ["a", "b"]


# Limits


async def test_too_many_operations_are_refused(store: Store) -> None:
    most = store.limits.operations_max
    assert (await store.commit(Txn(tuple(Put(f"k/{at}", b"") for at in range(most))))).ok
    with pytest.raises(LepaError) as caught:
        await store.commit(Txn(tuple(Put(f"k/{at}", b"") for at in range(most + 1))))
    assert caught.value.code == "invalid"
    assert str(most) in caught.value.message


async def test_too_many_bytes_are_refused(store: Store) -> None:
    with pytest.raises(LepaError, match="over the limit"):
        await store.commit(Txn((Put("a", bytes(store.limits.bytes_max)),)))


async def test_a_key_named_twice_is_refused(store: Store) -> None:
    with pytest.raises(LepaError, match="more than one operation"):
        await store.commit(Txn((Put("a", b""), Delete("a"))))


# Watching


async def test_a_watch_tells_what_was_and_what_comes(store: Store) -> None:
    first = await put(store, "a", b"1")
    watch = store.watch(0)
    assert await take(watch, 1) == [Change("a", b"1", first, first)]
    waiting = asyncio.ensure_future(take(watch, 2))
    second = await put(store, "a", b"2")
    await store.commit(Txn((Delete("a"),)))
    changed, deleted = await waiting
    assert changed == Change("a", b"2", first, second)
    assert deleted in (Change("a", None, first, second + 1), Change("a", None, 0, second + 1))


async def test_a_watch_resumes_after_a_read_without_a_gap(store: Store) -> None:
    await put(store, "a")
    read = await store.read("")
    revision = await put(store, "b")
    assert await take(store.watch(read.revision), 1) == [Change("b", b"1", revision, revision)]


async def test_a_watch_takes_a_prefix(store: Store) -> None:
    watch = store.watch(0, "jobs/")
    await put(store, "nodes/a")
    await put(store, "jobs/a")
    await put(store, "nodes/b")
    await put(store, "jobs/b")
    assert [change.key for change in await take(watch, 2)] == ["jobs/a", "jobs/b"]


async def test_a_batch_of_a_watch_holds_whole_revisions(store: Store) -> None:
    for at in range(30):
        await store.commit(Txn((Put(f"a/{at}", b""), Put(f"b/{at}", b""), Put(f"c/{at}", b""))))
    watch, revisions = store.watch(0), []
    while len(revisions) < 30:
        batch = [change.revision for change in await anext(watch)]
        assert all(batch.count(revision) == 3 for revision in batch)
        revisions += sorted(set(batch))
    assert revisions == sorted(set(revisions))


async def test_a_watch_from_a_forgotten_revision_is_told_to_read_again(local_store: Store) -> None:
    for at in range(3 * CHANGES_MAX):
        await put(local_store, f"k/{at % 7}")
    with pytest.raises(Compacted) as caught:
        await anext(local_store.watch(1))
    oldest = caught.value.facts["oldest"]
    assert await take(local_store.watch(oldest), 1)
    assert (await local_store.read("")).revision == 3 * CHANGES_MAX


async def test_a_watch_that_falls_behind_is_told_to_read_again(local_store: Store) -> None:
    watch = local_store.watch(0)
    await put(local_store, "a")
    assert len(await anext(watch)) == 1
    for at in range(3 * CHANGES_MAX):
        await put(local_store, f"k/{at % 7}")
    with pytest.raises(Compacted):
        await anext(watch)


async def test_a_watch_ends_when_the_store_is_closed(store: Store) -> None:
    await put(store, "a")
    watch = store.watch(0)
    assert len(await anext(watch)) == 1
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_who_got_an_answer_finds_the_change_in_the_watch(local_store: Store) -> None:
    seen: list[int] = []

    async def follow() -> None:
        async for changes in local_store.watch(0):
            seen.extend(change.revision for change in changes)

    following = asyncio.ensure_future(follow())
    await asyncio.sleep(0)
    for at in range(20):
        revision = await put(local_store, f"k/{at}")
        await asyncio.sleep(0)
        assert seen[-1] == revision
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def test_concurrent_writers_lose_nothing_and_followers_agree(store: Store) -> None:
    async def write(who: int) -> list[int]:
        return [await put(store, f"k/{who}/{at % 3}", str(at).encode()) for at in range(10)]

    watches = [store.watch(0) for _ in range(3)]
    written = await asyncio.gather(*map(write, range(8)))
    told = [await take(watch, 80) for watch in watches]
    revisions = [change.revision for change in told[0]]
    assert sorted(revision for some in written for revision in some) == revisions == sorted(revisions)
    assert told[0] == told[1] == told[2]
    final = {change.key: change.value for change in told[0]}
    assert {entry.key: entry.value for entry in (await store.read("")).entries} == final
    assert set(final.values()) == {b"7", b"8", b"9"}


# Leases


async def test_keys_live_as_long_as_their_lease_is_kept(given: Given) -> None:
    store = given.store
    lease = await given.lease(10)
    await put(store, "leader", b"me", lease.id)
    await put(store, "other")
    for _ in range(3):
        await given.advance(5)
        await lease.keep()
    assert await keys(store) == ["leader", "other"]
    watch = store.watch((await store.read("")).revision)
    await given.advance(11)
    (change,) = await take(watch, 1)
    assert (change.key, change.value) == ("leader", None)
    assert await keys(store) == ["other"]


async def test_a_lapsed_lease_cannot_be_kept_or_used(given: Given) -> None:
    store = given.store
    lease = await given.lease(10)
    await given.advance(10)
    with pytest.raises(LepaError) as caught:
        await lease.keep()
    assert caught.value.code == "not_found"
    await gone(store, lease)
    with pytest.raises(LepaError, match="lapsed"):
        await put(store, "a", lease=lease.id)
    assert await keys(store) == []


async def test_revoking_a_lease_deletes_its_keys_at_once(store: Store) -> None:
    lease, other = await store.lease(10), await store.lease(10)
    await put(store, "a", lease=lease.id)
    await put(store, "b", lease=lease.id)
    await put(store, "c", lease=other.id)
    await lease.revoke()
    await lease.revoke()
    assert await keys(store) == ["c"]


async def test_a_key_put_without_its_lease_stays(store: Store) -> None:
    lease = await store.lease(10)
    await put(store, "a", lease=lease.id)
    await put(store, "a")
    await lease.revoke()
    assert await keys(store) == ["a"]


async def test_a_shorter_lease_granted_later_lapses_first(given: Given) -> None:
    store = given.store
    long, short = await given.lease(100), await given.lease(5)
    await put(store, "long", lease=long.id)
    await put(store, "short", lease=short.id)
    watch = store.watch(2)
    await given.advance(6)
    assert [change.key for change in await take(watch, 1)] == ["short"]
    assert await keys(store) == ["long"]


async def test_a_closed_store_refuses_writes(store: Store) -> None:
    await store.close()
    with pytest.raises(LepaError, match="closed"):
        await put(store, "a")


# Replacing everything


async def test_replacing_puts_an_image_in_the_place_of_everything(store: Store) -> None:
    await put(store, "old")
    lease = await store.lease(10)
    before = await put(store, "leader", b"me", lease.id)
    watch = store.watch(before)
    waiting = asyncio.ensure_future(take(watch, 10_000))
    await asyncio.sleep(0)
    image = Image(5_000, [Entry("a", b"1", 7, 9), Entry("b", b"", 3_000, 4_000)])
    revision = await store.replace(image)
    assert revision > 5_000
    read = await store.read("")
    assert read.revision >= revision
    assert [(entry.key, entry.value, entry.created) for entry in read.entries] == [("a", b"1", 7), ("b", b"", 3_000)]
    assert all(5_000 < entry.modified <= read.revision for entry in read.entries)
    with pytest.raises(Compacted):
        await waiting


async def test_after_replacing_everything_goes_on_from_there(store: Store) -> None:
    await put(store, "a")
    await store.replace(Image(100, [Entry("a", b"1", 7, 9)]))
    read = await store.read("")
    watch = store.watch(read.revision)
    second = await put(store, "a", b"2")
    assert second == read.revision + 1
    assert await take(watch, 1) == [Change("a", b"2", 7, second)]
    (entry,) = (await store.read("a")).entries
    assert tuple(entry) == ("a", b"2", 7, second)
    assert (await store.commit(Txn((Delete("a"),), (Compare("a", modified=second),)))).ok
    with pytest.raises(Compacted):
        await anext(store.watch(5))


async def test_whoever_led_before_is_fenced_off_afterwards(store: Store) -> None:
    created = await put(store, "leader")
    fence = Fence("leader", created)
    with pytest.raises(Fenced):
        await store.replace(Image(1, []), Fence("leader", created + 1))
    assert await keys(store) == ["leader"]
    await store.replace(Image(1, [Entry("a", b"1", 1, 1)]), fence)
    with pytest.raises(Fenced):
        await put_fenced(store, fence)
    assert await keys(store) == ["a"]


async def put_fenced(store: Store, fence: Fence) -> None:
    await store.commit(Txn((Put("late", b""),)), fence)


async def gone(store: Store, lease: Lease) -> None:
    """Wait until the store has noticed that a lease lapsed."""
    async with asyncio.timeout(10):
        while True:
            try:
                await lease.keep()
            except LepaError:
                return
            await asyncio.sleep(0.05)
