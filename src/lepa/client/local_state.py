"""What a node has to know after its agent was restarted: its identity, its allocations, how to find their tasks.

One SQLite file in the client's directory, written by a thread of its own. Writes are grouped: `save` returns when the
group that holds it is on disk. A task's record is written before its driver starts it, so that a task started just
before a crash is found again by its id.
"""

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from lepa.drivers.protocol import TaskHandle, TaskNetwork
from lepa.kit import sqlite_log
from lepa.model.allocation import Allocation, AllocNetworkStatus, TaskState
from lepa.model.errors import LepaError
from lepa.model.wire import Wire, from_msgpack, to_msgpack

log = logging.getLogger(__name__)

W = TypeVar("W", bound=Wire)

SCHEMA = """
create table if not exists facts (name text primary key, value blob not null) without rowid;
create table if not exists allocations (id text primary key, value blob not null) without rowid;
create table if not exists networks (alloc_id text primary key, value blob not null) without rowid;
create table if not exists tasks
    (alloc_id text, task text, value blob not null, primary key (alloc_id, task)) without rowid;
"""
TABLES = {"facts", "allocations", "networks", "tasks"}
FORMAT = 1
"""Raised when an older lepa could no longer read the file. 0: without checksums; it is brought to 1 when opened."""
SUM_BYTES = 4
QUEUE_MAX = 10_000
GROUP_MAX = 500


class TaskRecord(Wire, frozen=True):
    """One task as the node last knew it.

    task_id: what the driver knows it by, "" when nothing is to be found there. handle None: it was about to be started.
    ended: what became of it is in `state` already, and only its remains have to be removed. network: the driver's.
    """

    driver: str = ""
    task_id: str = ""
    handle: TaskHandle | None = None
    ended: bool = False
    network: TaskNetwork | None = None
    state: TaskState = TaskState()


class NetworkRecord(Wire, frozen=True):
    """The network of an allocation, with all that is needed to take it away again.

    namespace: its path; hosts: the path of its file for /etc/hosts. name, version, plugins: the list of CNI plugins,
    facts and arguments what they were told. result, status: None while it was not known to be whole.
    """

    mode: str = ""
    namespace: str = ""
    hosts: str = ""
    name: str = ""
    version: str = ""
    plugins: tuple[dict[str, Any], ...] = ()
    facts: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    result: dict[str, Any] | None = None
    status: AllocNetworkStatus | None = None


class Remembered(NamedTuple):
    """An allocation with the records of its tasks."""

    alloc: Allocation
    tasks: dict[str, TaskRecord]


class Contents(NamedTuple):
    """What the file holds. unreadable: allocations that cannot be understood, by id, with their tasks' records."""

    allocations: list[Remembered]
    unreadable: dict[str, dict[str, TaskRecord]]


class _Write(NamedTuple):
    statement: str
    values: tuple[str | bytes, ...]
    done: "asyncio.Future[None] | None"
    loop: asyncio.AbstractEventLoop | None


def _keep_private(path: Path) -> None:
    """The file holds the node's secret: nobody else reads it, nor the files that SQLite lays beside it."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with contextlib.suppress(FileNotFoundError):
            each.chmod(0o600)


class LocalState:
    """The file. Reading happens at the start only; facts are kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.Queue[_Write | None] = queue.Queue(QUEUE_MAX)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = self._open()
        try:
            self._facts = self._read_facts()
            stored = self._db.execute("select alloc_id, value from networks").fetchall()
            networks = {name: _decoded(value, NetworkRecord, "networks", name) for name, value in stored}
            self._networks = {name: record or NetworkRecord() for name, record in networks.items()}
            self._damaged = {name for name, record in networks.items() if record is None}
        except (sqlite3.Error, UnicodeError) as error:
            self._db.close()
            raise self._unreadable(error) from error
        self._thread = threading.Thread(target=self._run, name="client-state", daemon=True)
        self._thread.start()

    def _open(self) -> sqlite3.Connection:
        try:
            if self._path.exists() and not self._path.stat().st_size:
                log.warning("the node's state file is empty: this is a new node path=%s", self._path)
            _keep_private(self._path)
            state = sqlite_log.look(self._path)
            if state.damage:
                raise self._unreadable(state.damage)
            if state.left_out:
                log.warning("a last write was not whole and was left out, as after a power cut path=%s", self._path)
            if self._path.stat().st_size:
                with contextlib.closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                    self._check(db)
            db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            try:
                db.execute("pragma journal_mode=wal")
                db.execute("pragma synchronous=full")
                db.executescript(SCHEMA)
                _add_sums(db)
            except BaseException:
                db.close()
                raise
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise self._unreadable(error) from error
        return db

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse what is damaged as a whole, or newer than this program."""
        found = "; ".join(row[0] for row in db.execute("pragma quick_check(3)"))
        if found != "ok":
            raise self._unreadable(found)
        (written,) = db.execute("pragma user_version").fetchone()
        if written > FORMAT:
            raise LepaError(
                "invalid",
                f"the node's state file {self._path} was written by a newer lepa (format {written}); upgrade this one",
            )
        tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        if written and tables != TABLES:
            raise self._unreadable(f"its tables are {', '.join(sorted(tables)) or 'gone'}")

    def _unreadable(self, reason: object) -> LepaError:
        return LepaError(
            "invalid",
            f"the node's state file {self._path} cannot be read ({reason}); move it away to start with a new node "
            "identity: tasks that still run will then not be found again",
        )

    def _read_facts(self) -> dict[str, str]:
        facts = {}
        for name, stored in self._db.execute("select name, value from facts").fetchall():
            if (value := _checked(stored, "facts", name)) is None:
                raise self._unreadable(f"what it says of {name!r} does not fit its checksum")
            facts[name] = value.decode()
        if not facts and self._db.execute("select 1 from allocations").fetchone():
            raise self._unreadable("it holds allocations and does not say whose")
        return facts

    def facts(self) -> dict[str, str]:
        """Small facts by name, such as the node's id and secret."""
        return dict(self._facts)

    def load(self) -> Contents:
        """All allocations with their tasks' records, and what cannot be understood.

        Of a damaged record of a task, what can be made out serves to find and end the task.
        """
        tasks: dict[str, dict[str, TaskRecord]] = {}
        damaged = set(self._damaged)
        for alloc_id, task, value in self._db.execute("select alloc_id, task, value from tasks").fetchall():
            record = _decoded(value, TaskRecord, "tasks", alloc_id, task)
            if record is None:
                damaged.add(alloc_id)
                record = _guessed(value, TaskRecord)
            if record is not None:
                tasks.setdefault(alloc_id, {})[task] = record
        contents = Contents([], tasks)
        for alloc_id, value in self._db.execute("select id, value from allocations").fetchall():
            alloc = _decoded(value, Allocation, "allocations", alloc_id) if alloc_id not in damaged else None
            if alloc is not None:
                contents.allocations.append(Remembered(alloc, tasks.pop(alloc_id, {})))
            else:
                tasks.setdefault(alloc_id, {})
        for alloc_id in contents.unreadable:
            log.error("allocation's record cannot be read; what is left of it is removed alloc_id=%s", alloc_id)
        return contents

    async def save_facts(self, facts: dict[str, str]) -> None:
        """Remember small facts."""
        self._facts |= facts
        for name, value in facts.items():
            await self._put("facts", name, value.encode())

    async def drop_facts(self, names: Iterable[str]) -> None:
        """Forget small facts."""
        for name in names:
            self._facts.pop(name, None)
            await self._save("delete from facts where name = ?", (name,))

    def network(self, alloc_id: str) -> NetworkRecord | None:
        """What is known of an allocation's network."""
        return self._networks.get(alloc_id)

    def networks(self) -> dict[str, NetworkRecord]:
        """All networks by allocation."""
        return dict(self._networks)

    async def save_network(self, alloc_id: str, record: NetworkRecord) -> None:
        """Remember a network; returns when it is on disk."""
        self._networks[alloc_id] = record
        await self._put("networks", alloc_id, to_msgpack(record))

    async def drop_network(self, alloc_id: str) -> None:
        """Forget a network."""
        self._networks.pop(alloc_id, None)
        await self._save("delete from networks where alloc_id = ?", (alloc_id,))

    async def save_allocation(self, alloc: Allocation) -> None:
        """Remember an allocation, with its job."""
        await self._put("allocations", alloc.id, to_msgpack(alloc))

    async def save_task(self, alloc_id: str, task: str, record: TaskRecord) -> None:
        """Remember a task; returns when it is on disk."""
        await self._put("tasks", alloc_id, task, to_msgpack(record))

    def note_task(self, alloc_id: str, task: str, record: TaskRecord) -> None:
        """The same without waiting."""
        write = _Write(*_row("tasks", alloc_id, task, to_msgpack(record)), None, None)
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(write)

    async def forget(self, alloc_id: str) -> None:
        """Forget an allocation and its tasks: the tasks first, because they are found through the allocation."""
        await self._save("delete from tasks where alloc_id = ?", (alloc_id,))
        await self._save("delete from allocations where id = ?", (alloc_id,))

    async def _put(self, table: str, *values: str | bytes) -> None:
        await self._save(*_row(table, *values))

    async def _save(self, statement: str, values: tuple[str | bytes, ...]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        try:
            self._queue.put_nowait(_Write(statement, values, done, loop))
        except queue.Full as error:
            raise LepaError("internal", "the node's state cannot be written as fast as it changes") from error
        await done

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, ended = [first], False
            while len(group) < GROUP_MAX and not ended:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    ended = True
                else:
                    group.append(following)
            self._commit(group)
            if ended:
                return

    def _commit(self, group: list[_Write]) -> None:
        error: Exception | None = None
        try:
            self._db.execute("begin")
            for write in group:
                self._db.execute(write.statement, write.values)
            self._db.execute("commit")
        except sqlite3.Error as failure:
            error = LepaError("internal", f"the node's state file {self._path} cannot be written: {failure}")
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("rollback")
        _tell(group, error)

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._db.close()


def _row(table: str, *values: str | bytes) -> tuple[str, tuple[str | bytes, ...]]:
    """How a row is written: the last of the values gets its checksum."""
    *names, value = values
    assert isinstance(value, bytes)
    marks = ", ".join("?" * len(values))
    return f"insert or replace into {table} values ({marks})", (*names, value + _sum(value, table, *map(str, names)))


def _sum(value: bytes, *place: str) -> bytes:
    return zlib.crc32(value, zlib.crc32("\0".join(place).encode())).to_bytes(SUM_BYTES, "big")


def _checked(stored: bytes, *place: str) -> bytes | None:
    """The value of the row of a table that `place` names, None when it does not fit its checksum."""
    if not isinstance(stored, bytes):
        return None
    value = stored[:-SUM_BYTES]
    return value if _sum(value, *place) == stored[-SUM_BYTES:] else None


def _decoded(stored: bytes, kind: type[W], *place: str) -> W | None:
    value = _checked(stored, *place)
    return None if value is None else _understood(value, kind)


def _guessed(stored: bytes, kind: type[W]) -> W | None:
    return _understood(stored[:-SUM_BYTES], kind)


def _understood(value: bytes, kind: type[W]) -> W | None:
    try:
        return from_msgpack(value, kind)
    except (msgspec.MsgspecError, TypeError):
        return None


def _add_sums(db: sqlite3.Connection) -> None:
    """Bring a file of the format before to this one."""
    if db.execute("pragma user_version").fetchone() == (FORMAT,):
        return
    db.execute("begin")
    for table, names in (
        ("facts", "name"),
        ("allocations", "id"),
        ("networks", "alloc_id"),
        ("tasks", "alloc_id, task"),
    ):
        rows = db.execute(f"select {names}, value from {table}").fetchall()
        for row in rows:
            db.execute(*_row(table, *row))
    db.execute(f"pragma user_version = {FORMAT}")
    db.execute("commit")


def _tell(group: Iterable[_Write], error: Exception | None) -> None:
    for write in group:
        if write.done is not None and write.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop may have been closed by now
                write.loop.call_soon_threadsafe(_settle, write.done, error)


def _settle(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
