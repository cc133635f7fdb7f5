"""Where the management frontend keeps its registry (one row of an SQLite file, replaced whole) and what was learned.

The registry is small and changes when a person or a script deploys something, so it is written as one JSON value in one
transaction: after a crash the file holds the last acknowledged registry. What selection policies have learned is a row
for each context. A file of another kind is refused by name.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from lepa.model.errors import LepaError
from lepa.serving.records import Registry
from lepa.serving.selection import SelectionState
from lepa.serving.selection_memory import Key, Learned

_FORMAT = 1


class RegistryStore(Protocol):
    """Keeps one registry and the states of selection."""

    def load(self) -> Registry:
        """The last one saved, or an empty one."""

    def save(self, registry: Registry) -> None:
        """Return when a crash cannot take it back."""

    def load_states(self) -> list[SelectionState]:
        """What was learned, in any order."""

    def save_learned(self, learned: Learned) -> None:
        """Return when a crash cannot take it back."""

    def forget_states(self, application: str) -> None:
        """An application is gone."""

    def close(self) -> None:
        """Let go of what is held open."""


class MemoryRegistryStore:
    """Forgets with the process."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._states: dict[Key, SelectionState] = {}

    def load(self) -> Registry:
        return self._registry

    def save(self, registry: Registry) -> None:
        self._registry = registry

    def load_states(self) -> list[SelectionState]:
        return list(self._states.values())

    def save_learned(self, learned: Learned) -> None:
        self._states.update({(state.application, state.context): state for state in learned.changed})
        for key in learned.dropped:
            self._states.pop(key, None)

    def forget_states(self, application: str) -> None:
        self._states = {key: state for key, state in self._states.items() if key[0] != application}

    def close(self) -> None:
        """Nothing is held."""


class SqliteRegistryStore:
    """One file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS registry (format INTEGER PRIMARY KEY, body BLOB NOT NULL)"
            )
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS selection (application TEXT, context TEXT, body BLOB NOT NULL,"
                " PRIMARY KEY (application, context)) WITHOUT ROWID"
            )
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise self._unusable(error) from error

    def load(self) -> Registry:
        try:
            row = self._database.execute("SELECT body FROM registry WHERE format = ?", (_FORMAT,)).fetchone()
            return msgspec.json.decode(row[0], type=Registry) if row else Registry()
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise self._unusable(error) from error

    def save(self, registry: Registry) -> None:
        body = msgspec.json.encode(registry)
        self._database.execute("INSERT OR REPLACE INTO registry VALUES (?, ?)", (_FORMAT, body))

    def load_states(self) -> list[SelectionState]:
        try:
            rows = self._database.execute("SELECT body FROM selection").fetchall()
            return [msgspec.json.decode(body, type=SelectionState) for (body,) in rows]
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise self._unusable(error) from error

    def save_learned(self, learned: Learned) -> None:
        rows = [(state.application, state.context, msgspec.json.encode(state)) for state in learned.changed]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO selection VALUES (?, ?, ?)", rows)
            self._database.executemany("DELETE FROM selection WHERE application = ? AND context = ?", learned.dropped)

    def forget_states(self, application: str) -> None:
        self._database.execute("DELETE FROM selection WHERE application = ?", (application,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()

    def _unusable(self, error: Exception) -> LepaError:
        return LepaError(
            "invalid", f"{self._path} does not hold a registry of lepa: {error}; move it away to start anew"
        )
