"""How fast do the stores make writes durable?

`store.commit.single`: 64 committers, each waiting for its own commits of one 1 KB object; expected >= 3,000/s.
`store.commit.batched`: one committer, transactions of 128 objects of 1 KB; expected >= 20,000 objects/s.

`store.commit.etcd_single`, `store.commit.etcd_batched`: the same in one etcd on this machine, with 48 objects a
transaction; expected >= 800/s and >= 8,000 objects/s. Beside: puts of etcd's own API over the same connection, without
fence, slot and compares; a ratio below 1 is what knowing every outcome costs.

Beside the first two: a bare loop on the standard library's sqlite3 in the same folder with the same pragmas, one row a
transaction for the first, 128 rows a transaction for the second. A ratio above 1 for the first is what group commit
gains.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from tests.etcd import etcd_servers

from benchmarks.harness import Figure, median_of
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.store import etcd_messages as m
from lepa.store.etcd import EtcdStore
from lepa.store.etcd_connection import TXN
from lepa.store.protocol import Put, Txn
from lepa.store.sqlite import SqliteStore

COMMITTERS = 64
COMMITS_EACH = 100
BATCHES = 100
BATCH = 128
ETCD_COMMITS_EACH = 20
ETCD_BATCH = 48
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
        *_etcd(),
    ]


def _etcd() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, etcd_servers(Path(folder)) as (server,):
        single = lambda bare: asyncio.run(_etcd_single(server.endpoint, bare))  # noqa: E731
        batched = lambda bare: asyncio.run(_etcd_batched(server.endpoint, bare))  # noqa: E731
        return [
            Figure(
                "store.commit.etcd_single",
                median_of(RUNS, lambda: single(False)),
                "commits/s",
                median_of(RUNS, lambda: single(True)),
                "puts of etcd's API, one a transaction",
            ),
            Figure(
                "store.commit.etcd_batched",
                median_of(RUNS, lambda: batched(False)),
                "objects/s",
                median_of(RUNS, lambda: batched(True)),
                f"puts of etcd's API, {ETCD_BATCH} a transaction",
            ),
        ]


async def _etcd_single(endpoint: str, bare: bool) -> float:
    async def commit(who: int) -> None:
        for at in range(ETCD_COMMITS_EACH):
            await _etcd_commit(store, bare, (Put(f"allocs/{who}/{at}", VALUE),))

    store = await EtcdStore.open([endpoint], SystemClock(), random=SystemRandom(), patience_s=60.0)
    start = time.perf_counter()
    await asyncio.gather(*map(commit, range(COMMITTERS)))
    seconds = time.perf_counter() - start
    await store.close()
    return COMMITTERS * ETCD_COMMITS_EACH / seconds


async def _etcd_batched(endpoint: str, bare: bool) -> float:
    store = await EtcdStore.open([endpoint], SystemClock(), random=SystemRandom(), patience_s=60.0)
    start = time.perf_counter()
    for batch in range(BATCHES):
        await _etcd_commit(store, bare, tuple(Put(f"allocs/{batch}/{at}", VALUE) for at in range(ETCD_BATCH)))
    seconds = time.perf_counter() - start
    await store.close()
    return BATCHES * ETCD_BATCH / seconds


async def _etcd_commit(store: EtcdStore, bare: bool, puts: tuple[Put, ...]) -> None:
    if not bare:
        await store.commit(Txn(puts))
        return
    operations = [m.RequestOp(request_put=m.PutRequest(key=put.key.encode(), value=put.value)) for put in puts]
    await store.connection.call(TXN, m.TxnRequest(success=operations))


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
