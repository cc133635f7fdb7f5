"""Where the management frontend keeps its registry: one row of an SQLite file, replaced whole.

The registry is small and changes when a person or a script deploys something, so it is written as one JSON value in one
transaction: after a crash the file holds the last acknowledged registry. A file of another kind is refused by name.
"""

import sqlite3
from pathlib import Path
from typing import Protocol

import msgspec

from lepa.model.errors import LepaError
from lepa.serving.records import Registry

_FORMAT = 1


class RegistryStore(Protocol):
    """Keeps one registry."""

    def load(self) -> Registry:
        """The last one saved, or an empty one."""

    def save(self, registry: Registry) -> None:
        """Return when a crash cannot take it back."""

    def close(self) -> None:
        """Let go of what is held open."""


class MemoryRegistryStore:
    """Forgets with the process."""

    def __init__(self) -> None:
        self._registry = Registry()

    def load(self) -> Registry:
        return self._registry

    def save(self, registry: Registry) -> None:
        self._registry = registry

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

    def close(self) -> None:
        self._database.close()

    def _unusable(self, error: Exception) -> LepaError:
        return LepaError(
            "invalid", f"{self._path} does not hold a registry of lepa: {error}; move it away to start anew"
        )
