"""The slots of one process: commits whose answer is lost are told apart by them (see etcd_layout).

All slots hang on one lease, so that etcd forgets those of a process that is gone.
"""

import asyncio
import logging
from typing import Final

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.store import etcd_messages as m
from lepa.store.etcd_connection import LEASE_GRANT, LEASE_REVOKE, EtcdConnection, Lost

COMMITS_MAX: Final = 64
"""Commits under way at once; more wait for one of these."""
TTL_S: Final = 60
KEEP_S: Final = 15.0
RETIRED_MAX: Final = 1_000
"""Slots given up for unknown outcomes, after which a new session begins and etcd forgets them."""

log = logging.getLogger(__name__)


class Slot:
    """One commit's own key. last: etcd's revision of it, 0 while it was not used."""

    def __init__(self, session: int, number: int) -> None:
        self.session = session
        self.number = number
        self.last = 0


class Slots:
    """Lends slots to commits, at most COMMITS_MAX at once."""

    def __init__(self, connection: EtcdConnection, clock: Clock, tasks: Tasks) -> None:
        self._connection = connection
        self._clock = clock
        self._tasks = tasks
        self._room = asyncio.Semaphore(COMMITS_MAX)
        self._opening = asyncio.Lock()
        self._session = 0
        self._free: list[Slot] = []
        self._next = 0
        self._retired = 0
        self._keeping: asyncio.Task[None] | None = None

    async def take(self) -> Slot:
        """A slot for one commit, waited for. Raises LepaError(timeout) when etcd does not answer."""
        await self._room.acquire()
        try:
            async with self._opening:
                if not self._session:
                    await self._open()
            if self._free:
                return self._free.pop()
            self._next += 1
            return Slot(self._session, self._next)
        except BaseException:
            self._room.release()
            raise

    def give_back(self, slot: Slot, *, known: bool) -> None:
        """known False: the outcome of its commit is not known, and the slot is never used again."""
        self._room.release()
        if slot.session != self._session:
            return
        if known:
            self._free.append(slot)
            return
        self._retired += 1
        if self._retired > RETIRED_MAX:
            self.lapsed(slot.session)

    def lapsed(self, session: int) -> None:
        """etcd no longer knows this session: the next commit begins another."""
        if session == self._session:
            self._session = 0
            self._free.clear()

    async def close(self) -> None:
        """Let etcd forget the slots, if it answers."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._session:
            try:
                await self._connection.once(LEASE_REVOKE, m.LeaseRevokeRequest(ID=self._session))
            except (Lost, LepaError) as error:
                log.debug("session not revoked error=%s", error)

    async def _open(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        answer = await self._connection.call(LEASE_GRANT, m.LeaseGrantRequest(TTL=TTL_S))
        self._session = answer.ID
        self._free.clear()
        self._next = self._retired = 0
        self._keeping = self._tasks.start("session", self._keep(answer.ID))

    async def _keep(self, session: int) -> None:
        while session == self._session:
            await self._clock.sleep(KEEP_S)
            try:
                if not await self._connection.keep_alive(session):
                    self.lapsed(session)
            except LepaError as error:
                log.warning("session not kept error=%s", error)
