"""What only the SQLite store does: one sync for many commits, an orderly end, a bound on its queue."""

import asyncio
from pathlib import Path

import pytest
from tests.clocks import ManualClock

from lepa.model.errors import LepaError
from lepa.store import sqlite
from lepa.store.protocol import Put, Txn
from lepa.store.sqlite import SqliteStore


async def test_commits_that_wait_together_share_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    sizes: list[int] = []
    commit = store._file.commit
    monkeypatch.setattr(store._file, "commit", lambda requests: (sizes.append(len(requests)), commit(requests))[1])
    done = await asyncio.gather(*(store.commit(Txn((Put(f"k/{at}", b""),))) for at in range(500)))
    assert [committed.revision for committed in done] == list(range(1, 501))
    assert sum(sizes) == 500
    assert len(sizes) < 50
    assert max(sizes) <= sqlite.GROUP_MAX
    await store.close()


async def test_every_sync_is_waited_for(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    assert store._file._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert store._file._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


async def test_closing_ends_the_commits_under_way_first(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    commits = [asyncio.ensure_future(store.commit(Txn((Put(f"k/{at}", b""),)))) for at in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert all(committed.ok for committed in await asyncio.gather(*commits))
    again = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    assert len((await again.read("")).entries) == 50
    await again.close()


async def test_more_writes_than_the_queue_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "QUEUED_MAX", 10)
    store = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    txns = [Txn((Put(f"k/{at}", b""),)) for at in range(30)]
    done = await asyncio.gather(*map(store.commit, txns), return_exceptions=True)
    refused = [result for result in done if isinstance(result, LepaError)]
    assert len(refused) == 20
    assert refused[0].code == "timeout"
    assert len((await store.read("")).entries) == 10
    await store.close()


async def test_a_caller_that_gave_up_does_not_disturb_its_group(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    first = asyncio.ensure_future(store.commit(Txn((Put("a", b""),))))
    second = asyncio.ensure_future(store.commit(Txn((Put("b", b""),))))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).ok
    await store.close()


async def test_a_second_store_on_the_same_file_is_refused(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db", ManualClock())
    with pytest.raises(LepaError, match="in use by another agent"):
        await SqliteStore.open(tmp_path / "state.db", ManualClock())
    await store.close()
