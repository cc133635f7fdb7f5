"""The key in the store that names the leader: followed, looked up when it has to be certain, and taken from the dead.

A server that leads may have been stopped, or cut off, without knowing it: its clock, its lease and its replica all tell
of the past. So what must be true now is asked of the store, which answers from its newest revision. All who want to
know at the same time share one look: a look that was begun before somebody asked says nothing to him.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.state.keys import LEADER
from lepa.store.protocol import Compacted, Compare, Delete, Store, Txn

LOOK_S: Final = 2.0
"""How long the store may take to say who leads."""
RETRY_S: Final = 0.5
"""Pause before the store is asked again after it could not answer."""

log = logging.getLogger(__name__)


class LeaderKey:
    """The leader key, as an async context manager that follows it while it is entered.

    address: what the leader wrote there, "" when nobody leads. created: the revision of that, 0 when nobody leads.
    """

    def __init__(self, store: Store, clock: Clock, seen: Callable[[], None]) -> None:
        """seen: called whenever the key was heard of, changed or not."""
        self._store = store
        self._clock = clock
        self._seen = seen
        self._tasks = Tasks("leader_key")
        self._lock = asyncio.Lock()
        self._next: asyncio.Future[int] | None = None
        self.address = ""
        self.created = 0
        self.revision = 0
        """Of the state in which that was seen."""

    async def __aenter__(self) -> "LeaderKey":
        self._tasks.start("follow", self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    async def created_now(self) -> int:
        """The revision of the leader key that stands at some moment after this call; 0: none. Raises LepaError."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(_retrieve)
            self._tasks.start("look", self._look(self._next))
        return await asyncio.shield(self._next)

    async def depose(self, address: str, created: int, why: str = "its process is gone") -> None:
        """Delete the key of the leader of this address, which is certainly gone or has to go, unless it is another's
        by now. Raises LepaError."""
        txn = Txn((Delete(LEADER),), (Compare(LEADER, created=created),))
        if (await self._store.commit(txn)).ok:
            log.warning("leader deposed: %s address=%s revision=%d", why, address, created)

    async def _look(self, answer: "asyncio.Future[int]") -> None:
        async with self._lock:
            self._next = None
            try:
                async with asyncio.timeout(LOOK_S):
                    answer.set_result((await self._read())[1])
            except LepaError as error:
                answer.set_exception(error)
            except TimeoutError:
                answer.set_exception(LepaError("timeout", f"the store did not answer within {LOOK_S:g} s"))
            except BaseException:
                answer.cancel()
                raise

    async def _read(self) -> tuple[str, int, int]:
        read = await self._store.read(LEADER)
        entry = next((entry for entry in read.entries if entry.key == LEADER), None)
        return (entry.value.decode(), entry.created, read.revision) if entry else ("", 0, read.revision)

    async def _follow(self) -> None:
        while True:
            try:
                return await self._watch()
            except Compacted:
                continue
            except LepaError as error:
                log.warning("leader key cannot be followed error=%s", error.message)
                await self._clock.sleep(RETRY_S)

    async def _watch(self) -> None:
        """Until the store is closed, which ends its watch."""
        address, created, revision = await self._read()
        self._take(address, created, revision)
        async for changes in self._store.watch(revision, LEADER):
            for change in changes:
                if change.key == LEADER:
                    gone = change.value is None
                    address = "" if change.value is None else change.value.decode()
                    self._take(address, 0 if gone else change.created, change.revision)

    def _take(self, address: str, created: int, revision: int) -> None:
        self.address, self.created, self.revision = address, created, revision
        self._seen()


def _retrieve(answer: "asyncio.Future[int]") -> None:
    """Whoever asked may have left before the answer came."""
    if not answer.cancelled():
        answer.exception()
