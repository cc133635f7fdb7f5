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
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from lepa.drivers.protocol import TaskHandle, TaskNetwork
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
        self._facts = {name: value.decode() for name, value in self._db.execute("select name, value from facts")}
        stored = self._db.execute("select alloc_id, value from networks")
        self._networks = {name: _decoded(value, NetworkRecord) or NetworkRecord() for name, value in stored}
        self._thread = threading.Thread(target=self._run, name="client-state", daemon=True)
        self._thread.start()

    def _open(self) -> sqlite3.Connection:
        try:
            _keep_private(self._path)
            db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            db.execute("pragma journal_mode=wal")
            db.execute("pragma synchronous=full")
            db.executescript(SCHEMA)
        except (sqlite3.DatabaseError, OSError) as error:
            raise LepaError(
                "invalid",
                f"the node's state file {self._path} cannot be read ({error}); move it away to start with a new node "
                "identity: tasks that still run will then not be found again",
            ) from error
        return db

    def facts(self) -> dict[str, str]:
        """Small facts by name, such as the node's id and secret."""
        return dict(self._facts)

    def load(self) -> Contents:
        """All allocations with their tasks' records, and what cannot be understood."""
        tasks: dict[str, dict[str, TaskRecord]] = {}
        for alloc_id, task, value in self._db.execute("select alloc_id, task, value from tasks"):
            if (record := _decoded(value, TaskRecord)) is not None:
                tasks.setdefault(alloc_id, {})[task] = record
        contents = Contents([], {})
        for alloc_id, value in self._db.execute("select id, value from allocations"):
            found = tasks.pop(alloc_id, {})
            if (alloc := _decoded(value, Allocation)) is not None:
                contents.allocations.append(Remembered(alloc, found))
            else:
                log.error("allocation's record cannot be read; what is left of it is removed alloc_id=%s", alloc_id)
                contents.unreadable[alloc_id] = found
        return contents

    async def save_facts(self, facts: dict[str, str]) -> None:
        """Remember small facts."""
        self._facts |= facts
        for name, value in facts.items():
            await self._save("insert or replace into facts values (?, ?)", name, value.encode())

    async def drop_facts(self, names: Iterable[str]) -> None:
        """Forget small facts."""
        for name in names:
            self._facts.pop(name, None)
            await self._save("delete from facts where name = ?", name)

    def network(self, alloc_id: str) -> NetworkRecord | None:
        """What is known of an allocation's network."""
        return self._networks.get(alloc_id)

    def networks(self) -> dict[str, NetworkRecord]:
        """All networks by allocation."""
        return dict(self._networks)

    async def save_network(self, alloc_id: str, record: NetworkRecord) -> None:
        """Remember a network; returns when it is on disk."""
        self._networks[alloc_id] = record
        await self._save("insert or replace into networks values (?, ?)", alloc_id, to_msgpack(record))

    async def drop_network(self, alloc_id: str) -> None:
        """Forget a network."""
        self._networks.pop(alloc_id, None)
        await self._save("delete from networks where alloc_id = ?", alloc_id)

    async def save_allocation(self, alloc: Allocation) -> None:
        """Remember an allocation, with its job."""
        await self._save("insert or replace into allocations values (?, ?)", alloc.id, to_msgpack(alloc))

    async def save_task(self, alloc_id: str, task: str, record: TaskRecord) -> None:
        """Remember a task; returns when it is on disk."""
        await self._save("insert or replace into tasks values (?, ?, ?)", alloc_id, task, to_msgpack(record))

    def note_task(self, alloc_id: str, task: str, record: TaskRecord) -> None:
        """The same without waiting."""
        write = _Write(
            "insert or replace into tasks values (?, ?, ?)", (alloc_id, task, to_msgpack(record)), None, None
        )
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(write)

    async def forget(self, alloc_id: str) -> None:
        """Forget an allocation and its tasks: the tasks first, because they are found through the allocation."""
        await self._save("delete from tasks where alloc_id = ?", alloc_id)
        await self._save("delete from allocations where id = ?", alloc_id)

    async def _save(self, statement: str, *values: str | bytes) -> None:
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


def _decoded(value: bytes, kind: type[W]) -> W | None:
    try:
        return from_msgpack(value, kind)
    except (msgspec.MsgspecError, TypeError):
        return None


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
