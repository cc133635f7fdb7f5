"""The file behind the SQLite store: opened with care, written in groups, read beside the writer.

One table of objects, one row with the revision. WAL and `synchronous=FULL`: a commit has returned only when its pages
in the log were synced, so kill -9 and power loss take nothing that was acknowledged, and SQLite repairs the rest when
the file is opened again. A new file is made aside and renamed, so a half-made one never bears the name.

What cannot be opened is refused with a sentence and left exactly as it was: checks run on a read-only connection.
A lock file keeps a second process out; the lock goes with the process that holds it, however it ends.

SQLite does not see a bit that the disk has changed inside a value, nor that its log was cut short. So each object has
a checksum of all that is kept of it, which is checked at the start and whenever it is read; the log is looked at
(`kit.sqlite_log`); and the lock file notes the revision that was acknowledged last, unsynced, after the sync of the
commit: a file that ends earlier has lost something.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lepa.kit import sqlite_log
from lepa.model.errors import LepaError, conflict, invalid
from lepa.store.protocol import Change, Committed, Entry, Fence, Fenced, Image, Put, Read, Txn
from lepa.store.revisions import holds

APPLICATION_ID: Final = 0x6C657061
"""Marks the file as ours ("lepa" in ASCII), in SQLite's header."""

FORMAT: Final = 2
"""Raised when an older lepa could no longer read the file. 1: without checksums; it is brought to 2 when opened."""

CHECKPOINT_PAGES: Final = 4_000
"""Pages (4 KiB) in the log after which SQLite copies them into the file: 16 MiB, some hundred commits."""

_PROCESS_BYTES: Final = 12
_REVISION_DIGITS: Final = 20
"""The lock file: a line with the process, then a line with the revision that was acknowledged last."""

_SCHEMA: Final = f"""
    CREATE TABLE objects (
        key TEXT PRIMARY KEY, value BLOB NOT NULL,
        created INTEGER NOT NULL, modified INTEGER NOT NULL, lease INTEGER NOT NULL, sum INTEGER NOT NULL
    );
    CREATE INDEX objects_by_lease ON objects (lease) WHERE lease != 0;
    CREATE TABLE state (revision INTEGER NOT NULL, sum INTEGER NOT NULL);
    INSERT INTO state VALUES (0, {zlib.crc32(b"0")});
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {FORMAT};
"""
_FROM_1: Final = f"""
    BEGIN IMMEDIATE;
    ALTER TABLE objects ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE state ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
    UPDATE objects SET sum = object_sum(key, value, modified, lease) + created;
    UPDATE state SET sum = revision_sum(revision);
    PRAGMA user_version = {FORMAT};
    COMMIT;
"""
_PUT: Final = """
    INSERT INTO objects VALUES (?1, ?2, ?3, ?3, ?4, ?5 + ?3)
    ON CONFLICT (key) DO UPDATE SET value = ?2, modified = ?3, lease = ?4, sum = ?5 + created RETURNING created
"""
_ALL: Final = "SELECT key, value, created, modified, lease, sum FROM objects"
_BESIDE_THE_CONTENT: Final = (
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_BUSY",
    "SQLITE_READONLY",
    "SQLITE_FULL",
    "SQLITE_PERM",
    "SQLITE_AUTH",
    "SQLITE_NOMEM",
)
_LOST_SYNCS: Final = frozenset({"SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC"})


log = logging.getLogger(__name__)


class EndLease(NamedTuple):
    """Delete all keys of a lease."""

    lease: int


class Request(NamedTuple):
    """One transaction to commit in a group."""

    txn: Txn | EndLease | Image
    fence: Fence | None = None


class Group(NamedTuple):
    """How a group of requests ended, one result for each, and the changes it made.

    replaced: the revision at which everything was replaced, 0 for never; then the changes are those since.
    """

    results: Sequence[Committed | LepaError]
    changes: Sequence[Change]
    replaced: int = 0


class SqliteFile:
    """The open file. `commit` from one thread, `read` from one other thread, `close` when both are still."""

    def __init__(self, path: Path) -> None:
        """Open or create. Raises LepaError with a sentence when the file is taken, damaged or not ours."""
        self.path = path
        self._lost_sync: Exception | None = None
        self._lock, acknowledged = _locked(path)
        try:
            if not path.exists():
                _create(path, acknowledged)
            self._reader = _checked_reader(path, acknowledged)
            self._writer = _connect(path, "rw")
            self._set_up()
            _note(self._lock, self.revision)
        except BaseException:
            os.close(self._lock)
            raise

    def _set_up(self) -> None:
        with _explained(self.path):
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.execute("PRAGMA synchronous = FULL")
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            if self._writer.execute("PRAGMA user_version").fetchone() == (1,):
                self._writer.create_function("object_sum", 4, _object_sum, deterministic=True)
                self._writer.create_function("revision_sum", 1, _revision_sum, deterministic=True)
                self._writer.executescript(_FROM_1)
            self.revision: int = self._writer.execute("SELECT revision FROM state").fetchone()[0]
        self._drop_leased()

    def _drop_leased(self) -> None:
        """Leases live in the process that granted them, and that process is gone."""
        leases = [lease for (lease,) in self._writer.execute("SELECT DISTINCT lease FROM objects WHERE lease != 0")]
        for result in self.commit([Request(EndLease(lease)) for lease in leases]).results:
            if isinstance(result, LepaError):
                raise result

    def read(self, prefix: str) -> Read:
        """All entries under a prefix, with the revision at which they stood."""
        with _explained(self.path):
            self._reader.execute("BEGIN")
            try:
                revision = self._reader.execute("SELECT revision FROM state").fetchone()[0]
                rows = self._reader.execute(
                    f"{_ALL} WHERE key >= ? AND key < ? ORDER BY key", (prefix, prefix + "\U0010ffff")
                )
                return Read(revision, list(_sound(rows, self.path)))
            finally:
                self._reader.execute("COMMIT")

    def commit(self, requests: Sequence[Request]) -> Group:
        """Commit all requests with one sync of the disk, each with its own revision, compares and fence.

        Either all that succeed are durable when this returns, or every result is an error.
        """
        if self._lost_sync:
            return self._refused(requests, self._lost_sync)
        try:
            return self._commit(requests)
        except Exception as error:
            self._roll_back()
            if _name(error) in _LOST_SYNCS:
                self._lost_sync = error
            if len(requests) == 1 or _of_the_disk(error):
                return self._refused(requests, error)
        alone = [self.commit([request]) for request in requests]  # one of them cannot be stored: find out which
        replaced = max(group.replaced for group in alone)
        changes = [change for group in alone for change in group.changes if change.revision > replaced]
        return Group([group.results[0] for group in alone], changes, replaced)

    def _refused(self, requests: Sequence[Request], error: Exception) -> Group:
        return Group([explain(error, self.path) for _ in requests], ())

    def _commit(self, requests: Sequence[Request]) -> Group:
        results: list[Committed | LepaError] = []
        changes: list[Change] = []
        revision, replaced = self.revision, 0
        self._writer.execute("BEGIN IMMEDIATE")
        for request in requests:
            refusal = self._refusal(request, revision)
            if refusal is not None:
                pass
            elif isinstance(request.txn, Image):
                revision = replaced = self._replace(request.txn, revision)
                changes.clear()
            else:
                made = list(self._apply(request.txn, revision + 1))
                revision += 1 if made else 0
                changes.extend(made)
            results.append(refusal or Committed(True, revision))
        if changes or replaced:
            self._writer.execute("UPDATE state SET revision = ?, sum = ?", (revision, _revision_sum(revision)))
        self._writer.execute("COMMIT")
        if revision != self.revision:
            _note(self._lock, revision)
        self.revision = revision
        return Group(results, changes, replaced)

    def _replace(self, image: Image, revision: int) -> int:
        """Put the image in the place of everything; the revision from which it stands."""
        revision = max(revision, image.revision) + 1
        self._writer.execute("DELETE FROM objects")
        self._writer.executemany(
            "INSERT INTO objects VALUES (?, ?, ?, ?, 0, ?)",
            (
                (
                    each.key,
                    each.value,
                    each.created,
                    revision,
                    _object_sum(each.key, each.value, revision, 0) + each.created,
                )
                for each in image.entries
            ),
        )
        return revision

    def _refusal(self, request: Request, revision: int) -> Committed | LepaError | None:
        if isinstance(request.txn, EndLease):
            return None
        fence = request.fence
        if fence is not None and self._revisions(fence.key)[0] != fence.created:
            return Fenced()
        if isinstance(request.txn, Image):
            return None
        if all(holds(compare, *self._revisions(compare.key)) for compare in request.txn.compares):
            return None
        return Committed(False, revision)

    def _revisions(self, key: str) -> tuple[int, int]:
        found = self._writer.execute("SELECT created, modified FROM objects WHERE key = ?", (key,)).fetchone()
        return found or (0, 0)

    def _apply(self, txn: Txn | EndLease, revision: int) -> Iterator[Change]:
        run = self._writer.execute
        if isinstance(txn, EndLease):
            gone = run("DELETE FROM objects WHERE lease = ? RETURNING key, created", (txn.lease,)).fetchall()
            yield from (Change(key, None, created, revision) for key, created in gone)
            return
        for operation in txn.operations:
            if isinstance(operation, Put):
                key, value, lease = operation
                found = _object_sum(key, value, revision, lease)
                (created,) = run(_PUT, (key, value, revision, lease, found)).fetchone()
                yield Change(key, value, created, revision)
            elif row := run("DELETE FROM objects WHERE key = ? RETURNING created", (operation.key,)).fetchone():
                yield Change(operation.key, None, row[0], revision)

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._reader.close()
        self._writer.close()
        os.close(self._lock)


# Opening


def _locked(path: Path) -> tuple[int, int]:
    """The lock file's descriptor, locked for this process, and the revision that was acknowledged last, if noted."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise invalid(f"the state file {path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, _PROCESS_BYTES, 0).decode(errors="replace").strip()
        os.close(lock)
        raise conflict(
            f"the state file {path} is in use by another agent{f' (process {holder})' if holder else ''}: "
            "stop that one, or give this one another data directory"
        ) from None
    with contextlib.suppress(OSError):  # a full disk: the number is for people only
        os.pwrite(lock, f"{os.getpid():<{_PROCESS_BYTES - 1}}\n".encode(), 0)
    noted = os.pread(lock, _REVISION_DIGITS, _PROCESS_BYTES)
    return lock, int(noted) if noted.isdigit() else 0


def _note(lock: int, revision: int) -> None:
    """Write down that a revision is acknowledged."""
    with contextlib.suppress(OSError):  # a full disk: nothing is lost but a check
        os.pwrite(lock, f"{revision:0{_REVISION_DIGITS}}\n".encode(), _PROCESS_BYTES)


def _create(path: Path, acknowledged: int) -> None:
    if Path(f"{path}-wal").exists():
        raise invalid(
            f"the state file {path} is missing but its log {path}-wal is there: "
            "put the file back, or move the log away to begin with an empty state"
        )
    if acknowledged:
        raise invalid(
            f"the state file {path} is missing, and it held a state up to index {acknowledged}: put it back, "
            f"or remove {path}.lock to begin with an empty state"
        )
    fresh = Path(f"{path}.new")
    with _explained(path):
        try:
            fresh.unlink(missing_ok=True)
            os.close(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            db = _connect(fresh, "rw")
            db.executescript(f"PRAGMA synchronous = FULL; BEGIN; {_SCHEMA} COMMIT;")
            db.close()
            fresh.rename(path)
            _sync_directory(path.parent)
        except OSError as error:
            raise invalid(f"the state file {path} cannot be created: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked_reader(path: Path, acknowledged: int) -> sqlite3.Connection:
    """A read-only connection to a file that is sound and ours."""
    with _explained(path, opening=True):
        db = _connect(path, "ro")
        try:
            _check(db, path)
            _check_end(db, path, acknowledged)
        except BaseException:
            db.close()
            raise
        return db


def _check(db: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size == 0:
        raise damaged(path, "the file is empty")
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (written,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise not_ours(path)
    if written > FORMAT:
        raise invalid(f"the state file {path} was written by a newer lepa (format {written}); upgrade this one")
    found = "; ".join(row[0] for row in db.execute("PRAGMA integrity_check(3)"))
    if found != "ok":
        raise damaged(path, found)
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page_bytes and not _log_bytes(path):
        raise damaged(path, "its last page is not whole")
    if written > 1:
        ((revision, found),) = db.execute("SELECT revision, sum FROM state").fetchall()
        if found != _revision_sum(revision):
            raise damaged(path, "its index does not fit its checksum")
        for entry in _sound(db.execute(_ALL), path):
            if entry.modified > revision:
                raise damaged(path, f"{entry.key} is newer than the index")


def _check_end(db: sqlite3.Connection, path: Path, acknowledged: int) -> None:
    """Whether all is there that was acknowledged."""
    state = sqlite_log.look(path)
    if state.damage:
        raise damaged(path, state.damage)
    if state.left_out:
        log.warning("a last write was not whole and was left out, as after a power cut path=%s", path)
    (revision,) = db.execute("SELECT revision FROM state").fetchone()
    if revision < acknowledged:
        raise invalid(
            f"the state file {path} ends at index {revision}, and writes up to {acknowledged} were acknowledged: "
            f"its log was cut short, or it is an older copy. Put the newest copy back, or remove {path}.lock to go on "
            "without those writes"
        )


def _object_sum(key: str, value: bytes, modified: int, lease: int) -> int:
    """The checksum of an object but for `created`, which SQL adds: it alone knows it before it writes."""
    return zlib.crc32(value, zlib.crc32(f"{key}\0{modified}\0{lease}".encode()))


def _revision_sum(revision: int) -> int:
    return zlib.crc32(str(revision).encode())


def _sound(rows: Iterable[tuple[str, bytes, int, int, int, int]], path: Path) -> Iterator[Entry]:
    """Rows as entries, each checked."""
    for key, value, created, modified, lease, found in rows:
        if found != _object_sum(key, value, modified, lease) + created:
            raise damaged(path, f"the object {key} does not fit its checksum")
        yield Entry(key, value, created, modified)


def _log_bytes(path: Path) -> int:
    """Size of the write-ahead log: 0 after an orderly end, when the file alone has to be whole."""
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=5.0,
        cached_statements=32,
    )


# Sentences


@contextlib.contextmanager
def _explained(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Errors as sentences. opening: what SQLite cannot make sense of is damage."""
    try:
        yield
    except (sqlite3.Error, UnicodeError, TypeError, ValueError) as error:
        if opening and not _name(error).startswith((*_BESIDE_THE_CONTENT, "SQLITE_NOTADB")):
            raise damaged(path, str(error)) from error
        raise explain(error, path) from error


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def _of_the_disk(error: Exception) -> bool:
    """Whether trying a part of the group again is of no use."""
    return _name(error).startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_READONLY"))


def explain(error: Exception, path: Path) -> LepaError:
    """What went wrong with the file, and what to do."""
    name = _name(error)
    if name == "SQLITE_FULL":
        return LepaError(
            "internal", f"the disk of {path} is full: this write was not kept; free some space and try again"
        )
    if name == "SQLITE_NOTADB":
        return not_ours(path)
    if name.startswith("SQLITE_CORRUPT"):
        return damaged(path, str(error))
    if name in _LOST_SYNCS:
        return LepaError(
            "timeout",
            f"the disk of {path} failed to store a write, and it is not known what was kept: "
            "no more writes are taken; check the disk and start the agent again",
        )
    return LepaError("internal", f"the state file {path} failed: {error} ({name})")


def damaged(path: Path, detail: str) -> LepaError:
    """The file was ours once."""
    return invalid(
        f"the state file {path} is damaged ({detail}); it may have been cut short. It was left as it is: put a copy "
        f"back from a backup, or move {path.name}* away to begin with an empty state"
    )


def not_ours(path: Path) -> LepaError:
    """Something else lies where the file should be."""
    return invalid(f"{path} is not a lepa state file: move it away, or use another data directory")
