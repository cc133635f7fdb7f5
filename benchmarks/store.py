"""How fast does the SQLite store make writes durable?

`store.commit.single`: 64 committers, each waiting for its own commits of one 1 KB object; expected >= 3,000/s.
`store.commit.batched`: one committer, transactions of 128 objects of 1 KB; expected >= 20,000 objects/s.

Beside: a bare loop on the standard library's sqlite3 in the same folder with the same pragmas, one row a transaction
for the first, 128 rows a transaction for the second. A ratio above 1 for the first is what group commit gains.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Figure, median_of
from lepa.kit.sources import SystemClock
from lepa.store.protocol import Put, Txn
from lepa.store.sqlite import SqliteStore

COMMITTERS = 64
COMMITS_EACH = 100
BATCHES = 100
BATCH = 128
VALUE = os.urandom(1_000)
RUNS = 3


def run() -> list[Figure]:
    """Both figures, each the median of three runs on fresh files."""
    return [
        Figure(
            "store.commit.single",
            median_of(RUNS, lambda: asyncio.run(_single())),
            "commits/s",
            median_of(RUNS, lambda: _bare(rows=1, transactions=2_000)),
            "bare sqlite3, one row a transaction",
        ),
        Figure(
            "store.commit.batched",
            median_of(RUNS, lambda: asyncio.run(_batched())),
            "objects/s",
            median_of(RUNS, lambda: _bare(rows=BATCH, transactions=BATCHES)),
            f"bare sqlite3, {BATCH} rows a transaction",
        ),
    ]


async def _single() -> float:
    async def commit(who: int) -> None:
        for at in range(COMMITS_EACH):
            await store.commit(Txn((Put(f"allocs/{who}/{at}", VALUE),)))

    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "state.db", SystemClock())
        start = time.perf_counter()
        await asyncio.gather(*map(commit, range(COMMITTERS)))
        seconds = time.perf_counter() - start
        await store.close()
    return COMMITTERS * COMMITS_EACH / seconds


async def _batched() -> float:
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "state.db", SystemClock())
        start = time.perf_counter()
        for batch in range(BATCHES):
            await store.commit(Txn(tuple(Put(f"allocs/{batch}/{at}", VALUE) for at in range(BATCH))))
        seconds = time.perf_counter() - start
        await store.close()
    return BATCHES * BATCH / seconds


def _bare(rows: int, transactions: int) -> float:
    """Rows a second."""
    with tempfile.TemporaryDirectory() as folder:
        db = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE objects (key TEXT PRIMARY KEY, value BLOB)")
        start = time.perf_counter()
        for batch in range(transactions):
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO objects VALUES (?, ?)", [(f"k/{batch}/{at}", VALUE) for at in range(rows)])
            db.execute("COMMIT")
        seconds = time.perf_counter() - start
        db.close()
    return rows * transactions / seconds
