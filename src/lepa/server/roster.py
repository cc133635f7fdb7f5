"""Who the servers of this region are: each writes a record of itself into the store, and all follow these.

    servers/NAME   a ServerRecord

A record outlives its server's process: a server that has failed is still one of them, until it is forgotten. Whether a
server lives is not stored; `lepa.server.contact` knows, or gossip where there is any.
"""

import logging
from typing import Final

import msgspec

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.wire import from_msgpack, to_msgpack
from lepa.rpc.server_requests import ServerRecord
from lepa.state.keys import join, split
from lepa.store.protocol import Compacted, Delete, Put, Store, Txn

TABLE: Final = "servers"
RETRY_S: Final = 1.0
SERVERS_MAX: Final = 64
"""Records of more servers than that are not looked at."""

log = logging.getLogger(__name__)


class Roster:
    """The servers by name, as an async context manager that keeps this server's record true while it is entered."""

    def __init__(self, store: Store, clock: Clock, me: ServerRecord) -> None:
        self._store = store
        self._clock = clock
        self._tasks = Tasks("roster")
        self._records: dict[str, ServerRecord] = {me.name: me}
        self.me = me

    async def __aenter__(self) -> "Roster":
        self._tasks.start("follow", self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    def servers(self) -> tuple[ServerRecord, ...]:
        """All of them by name, this one included."""
        return tuple(self._records[name] for name in sorted(self._records))

    def named(self, name: str) -> ServerRecord | None:
        """One of them."""
        return self._records.get(name)

    async def forget(self, name: str) -> None:
        """A server has left for good. Raises LepaError."""
        await self._store.commit(Txn((Delete(join(TABLE, name)),)))

    async def _follow(self) -> None:
        while True:
            try:
                return await self._watch()
            except Compacted:
                continue
            except LepaError as error:
                log.warning("servers cannot be followed error=%s", error.message)
                await self._clock.sleep(RETRY_S)

    async def _watch(self) -> None:
        """Until the store is closed, which ends its watch."""
        read = await self._store.read(f"{TABLE}/")
        self._records = {self.me.name: self.me}
        for entry in read.entries:
            self._take(entry.key, entry.value)
        await self._write(next((entry.value for entry in read.entries if entry.key == self._key), None))
        async for changes in self._store.watch(read.revision, f"{TABLE}/"):
            for change in changes:
                self._take(change.key, change.value)

    @property
    def _key(self) -> str:
        return join(TABLE, self.me.name)

    async def _write(self, present: bytes | None) -> None:
        wanted = to_msgpack(self.me)
        if present != wanted:
            await self._store.commit(Txn((Put(self._key, wanted),)))

    def _take(self, key: str, value: bytes | None) -> None:
        table, parts = split(key)
        name = parts[0] if table == TABLE and len(parts) == 1 else ""
        if not name or name == self.me.name:
            return
        if value is None:
            self._records.pop(name, None)
            return
        try:
            record = from_msgpack(value, ServerRecord)
        except msgspec.DecodeError as error:
            log.warning("record of a server cannot be read name=%s error=%s", name, error)
            return
        if name in self._records or len(self._records) < SERVERS_MAX:
            self._records[name] = record
