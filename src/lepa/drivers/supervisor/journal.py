"""The journal on disk: appended to, made durable once a turn of the loop, rewritten when mostly history."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from lepa.drivers.supervisor.records import Replayed, TaskRecord, encode_record, replay, snapshot_records

JOURNAL_BYTES_MAX = 1024 * 1024
"""Beyond this the journal is rewritten, unless what is alive needs as much."""


class JournalFile:
    """`journal` in the state directory.

    A write that fails (disk full) is not lost: the next `sync` rewrites the whole file from what is in memory.
    """

    def __init__(self, directory: str, boot_id: str, tasks: Callable[[], Iterable[TaskRecord]]) -> None:
        self._path = os.path.join(directory, "journal")
        self._boot_id = boot_id
        self._tasks = tasks
        self._fd = -1
        self._size = 0
        self._rewrite_at = JOURNAL_BYTES_MAX
        self._unsynced = False
        self._incomplete = True

    def append(self, record: dict[str, Any], *, durable: bool = False) -> None:
        """Add a record. durable: it survives a power cut once `sync` has returned True."""
        line = encode_record(record)
        try:
            if self._fd < 0 or os.write(self._fd, line) != len(line):
                self._incomplete = True
        except OSError:
            self._incomplete = True
        self._size += len(line)
        self._unsynced = self._unsynced or durable

    def sync(self) -> bool:
        """Make durable what asked for it; False when the disk does not take it now."""
        try:
            if self._incomplete or self._size > self._rewrite_at:
                self._rewrite()
            elif self._unsynced:
                os.fdatasync(self._fd)
        except OSError:
            self._incomplete = True
            return False
        self._unsynced = False
        return True

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _rewrite(self) -> None:
        fresh = self._path + ".new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            text = b"".join(encode_record(record) for record in snapshot_records(self._boot_id, self._tasks()))
            written = 0
            while written < len(text):
                written += os.write(fd, text[written:])
            os.fsync(fd)
            os.rename(fresh, self._path)
            _sync_directory(os.path.dirname(self._path))
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd, self._size, self._incomplete = fd, len(text), False
        self._rewrite_at = max(JOURNAL_BYTES_MAX, 2 * len(text))


def read_journal(directory: str) -> Replayed:
    """What an earlier supervisor left in this directory; nothing when there was none."""
    try:
        with open(os.path.join(directory, "journal"), "rb") as file:
            return replay(file)
    except FileNotFoundError:
        return Replayed("", {}, 0)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
