"""Writes commands: drafts on the newest snapshot, commits with the leader's fence, tries again when it was overtaken.

Nothing is locked: every object that a command replaces is compared, so of two that touch the same one is refused and
runs again on what the other wrote. A write returns when this server's own snapshot has it, so that whoever wrote reads
what was written.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from lepa.kit.sources import Clock, Random
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.state.commands.draft import Draft
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.store.protocol import Committed, Fence, Fenced, Store, Txn

ATTEMPTS_MAX: Final = 100
REPLICA_WAIT_S: Final = 10.0

R = TypeVar("R")


class Written(NamedTuple, Generic[R]):
    """What a command answered, and the revision of its write (of the snapshot when it had nothing to write)."""

    value: R
    revision: int


class Writer:
    """The one way to change the state, while this server leads."""

    def __init__(self, store: Store, replica: Replica, clock: Clock, random: Random) -> None:
        self._store = store
        self._replica = replica
        self._clock = clock
        self._random = random
        self.fence: Fence | None = None
        self._drafting = asyncio.Lock()
        self.on_fenced: Callable[[], None] = _nothing
        """Called when the store refuses a write because another server leads."""
        self.metrics: Metrics | None = None

    def draft_on(self, snapshot: Snapshot) -> Draft:
        """An empty draft on a snapshot."""
        return Draft(snapshot, self._clock.now_ns(), self._random.uuid)

    async def commit(self, txn: Txn) -> Committed:
        """Commit with the leader's fence. Raises LepaError(no_leader) when this server does not lead."""
        if self.fence is None:
            raise LepaError("no_leader", "No cluster leader")
        asked = self._clock.now()
        try:
            committed = await self._store.commit(txn, self.fence)
        except Fenced:
            self.on_fenced()
            raise
        if self.metrics is not None:
            self.metrics.count("nomad.raft.apply")
            self.metrics.sample("nomad.raft.commitTime", 1e3 * (self._clock.now() - asked))
        return committed

    async def write(self, command: Callable[[Draft], R]) -> Written[R]:
        """Run a command until its write is not overtaken. Raises what the command raises, Fenced, or timeout."""
        for _ in range(ATTEMPTS_MAX):
            async with self._drafting:  # one in a turn of the loop: a thousand at once must not keep it from the lease
                draft = self.draft_on(self._replica.snapshot)
                value = command(draft)
            if draft.empty:
                return Written(value, draft.snapshot.index)
            committed = await self._commit(draft)
            await self._replica.wait_for(committed.revision, REPLICA_WAIT_S)
            if committed.ok:
                return Written(value, committed.revision)
        raise LepaError("timeout", f"overtaken by other writes {ATTEMPTS_MAX} times; try again")

    async def _commit(self, draft: Draft) -> Committed:
        committed = Committed(True, draft.snapshot.index)
        for txn in draft.txns(self._store.limits):
            committed = await self.commit(txn)
            if not committed.ok:
                break
        return committed


def _nothing() -> None:
    """Nobody wants to know."""
