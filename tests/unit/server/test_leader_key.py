"""The leader key is followed, looked up once for all who ask at the same time, and taken from the dead only."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.clocks import ManualClock, settle

from lepa.model.errors import LepaError
from lepa.server.leader_key import RETRY_S, LeaderKey
from lepa.state.keys import LEADER
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Change, Delete, Put, Read, Txn


class SlowStore(MemoryStore):
    """Reads are counted and answered when the test says so."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.reads = 0
        self.go = asyncio.Event()
        self.fails = False

    async def read(self, prefix: str) -> Read:
        self.reads += 1
        await self.go.wait()
        if self.fails:
            raise LepaError("timeout", "the store did not answer")
        return await super().read(prefix)

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        async for changes in super().watch(from_revision, prefix):
            yield changes


async def test_those_who_ask_at_the_same_time_share_a_look_and_later_ones_the_next() -> None:
    store = SlowStore(ManualClock())
    revision = (await store.commit(Txn((Put(LEADER, b"one"),)))).revision
    key = LeaderKey(store, ManualClock(), lambda: None)
    first = [asyncio.ensure_future(key.created_now()) for _ in range(5)]
    await settle()
    later = [asyncio.ensure_future(key.created_now()) for _ in range(5)]
    await settle()
    assert store.reads == 1
    store.go.set()
    assert await asyncio.gather(*first, *later) == [revision] * 10
    assert store.reads == 2
    await key.__aexit__()
    await store.close()


async def test_a_look_that_fails_says_so_to_all_who_wait_for_it() -> None:
    store = SlowStore(ManualClock())
    store.fails = True
    store.go.set()
    key = LeaderKey(store, ManualClock(), lambda: None)
    for found in await asyncio.gather(key.created_now(), key.created_now(), return_exceptions=True):
        assert isinstance(found, LepaError)
    await key.__aexit__()
    await store.close()


async def test_the_key_is_followed_also_after_the_store_could_not_be_asked() -> None:
    clock = ManualClock()
    store = SlowStore(clock)
    store.fails = True
    store.go.set()
    seen: list[tuple[str, int]] = []
    async with LeaderKey(store, clock, lambda: seen.append((key.address, key.created))) as key:
        await settle()
        assert seen == []
        store.fails = False
        await clock.advance(RETRY_S)
        revision = (await store.commit(Txn((Put(LEADER, b"one"),)))).revision
        await settle()
        await store.commit(Txn((Delete(LEADER),)))
        await settle()
    assert seen == [("", 0), ("one", revision), ("", 0)]
    await store.close()


@pytest.mark.parametrize("by_another", [False, True])
async def test_only_the_leader_that_is_gone_is_deposed(by_another: bool, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(ManualClock())
    revision = (await store.commit(Txn((Put(LEADER, b"one"),)))).revision
    if by_another:
        await store.commit(Txn((Delete(LEADER),)))
        await store.commit(Txn((Put(LEADER, b"two"),)))
    await LeaderKey(store, ManualClock(), lambda: None).depose("one", revision)
    assert [entry.value for entry in (await store.read(LEADER)).entries] == ([b"two"] if by_another else [])
    assert ("leader deposed: its process is gone address=one" in caplog.text) is not by_another
    await store.close()
