"""What a write-ahead log tells of a disk: a last write that was not whole is no damage, anything before it is."""

from pathlib import Path

from lepa.kit import sqlite_log
from lepa.store.protocol import Put, Txn
from lepa.store.sqlite_file import Request, SqliteFile


def test_a_log_is_damaged_only_where_a_sync_lies_behind(tmp_path: Path) -> None:
    """R13, R14: what a power cut leaves is told apart from what was kept and cannot be read any more."""
    file = SqliteFile(tmp_path / "state.db")
    ends = []
    for at in range(4):
        file.commit([Request(Txn((Put(f"k/{at}", bytes([at]) * 20_000),)))])
        ends.append((tmp_path / "state.db-wal").stat().st_size)
    log = (tmp_path / "state.db-wal").read_bytes()
    file.close()
    assert sqlite_log.look_at(log) == sqlite_log.LogState()
    for end in (*ends, 32, 31, 0):
        assert sqlite_log.look_at(log[:end]) == sqlite_log.LogState()
    assert sqlite_log.look_at(log[: ends[2] + 6_000]).damage == ""
    assert sqlite_log.look_at(log[: ends[2] + 6_000]).left_out == 2
    last = bytearray(log)
    last[ends[2] + 100] ^= 1
    assert sqlite_log.look_at(bytes(last)).damage == ""
    for at in (100, ends[0] + 100, ends[2] - 100, 5, 20, 30):
        changed = bytearray(log)
        changed[at] ^= 1
        assert sqlite_log.look_at(bytes(changed)).damage != "", at
