"""Pure: what a store is.

Keys are texts with `/` between parts (`jobs/default/web`), values are bytes. Every commit that changes something gets
the next revision, which is Nomad's index. A commit checks its compares, then applies all of its operations or none. A
follower that watches from a revision sees every later change exactly once and in order, or learns that it is too late
(`Compacted`) and has to read again.

Three implementations: memory (tests, simulation), sqlite (one server), etcd (several servers).
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from lepa.model.errors import LepaError


class Entry(NamedTuple):
    """A key as it stands. created and modified are revisions."""

    key: str
    value: bytes
    created: int
    modified: int


class Change(NamedTuple):
    """One key put (value is bytes) or deleted (value is None) at `revision`; created is when it was first put.

    A store that does not know when a deleted key was created says 0. A change of the key "" says that the store came to
    this revision and nothing changed that can be seen.
    """

    key: str
    value: bytes | None
    created: int
    revision: int


class Put(NamedTuple):
    """Set a key. With a lease, the key goes away when the lease does."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Remove a key; nothing happens when it is not there."""

    key: str


class Compare(NamedTuple):
    """A condition of a commit: the revision at which `key` was last modified or created; 0: not there."""

    key: str
    modified: int | None = None
    created: int | None = None


class Limits(NamedTuple):
    """The largest transaction a store takes. Callers split larger ones where every part is valid alone."""

    operations_max: int
    bytes_max: int


class Txn(NamedTuple):
    """Compares and operations, applied together. A key may appear in at most one operation."""

    operations: tuple[Put | Delete, ...]
    compares: tuple[Compare, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of keys and values, which Limits.bytes_max bounds."""
        return sum(len(op.key) + (len(op.value) if isinstance(op, Put) else 0) for op in self.operations)

    def fits(self, limits: Limits) -> bool:
        """Whether a store takes it."""
        return len(self.operations) <= limits.operations_max and self.size <= limits.bytes_max


class Fence(NamedTuple):
    """Proof of leadership: the leader key and the revision at which this leader created it."""

    key: str
    created: int


class Committed(NamedTuple):
    """How a commit ended. ok False: a compare did not hold and nothing was changed; revision is the present one."""

    ok: bool
    revision: int


class Read(NamedTuple):
    """Entries in key order, and the revision at which all of them stood."""

    revision: int
    entries: Sequence[Entry]


class Image(NamedTuple):
    """A whole state, to be put in the place of another: its revision, and its entries in the order of their keys."""

    revision: int
    entries: Sequence[Entry]


class Fenced(LepaError):
    """The fence did not hold: somebody else leads now. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__("no_leader", "this server no longer leads; its write was refused")


class Compacted(LepaError):
    """The revision to watch from is no longer kept: read again, then watch from the read's revision."""

    def __init__(self, oldest: int) -> None:
        super().__init__("conflict", f"changes before revision {oldest} are no longer kept; read again", oldest=oldest)


class Lease(Protocol):
    """Keys live as long as their owner does."""

    id: int

    async def keep(self) -> None:
        """Extend the lease by its time to live. Raises LepaError(not_found) when it has lapsed."""

    async def revoke(self) -> None:
        """End it now; its keys are deleted."""


class Store(Protocol):
    """Objects under keys with revisions."""

    limits: Limits

    async def read(self, prefix: str) -> Read:
        """All entries whose key starts with `prefix`, at the newest revision."""

    async def commit(self, txn: Txn, fence: Fence | None = None) -> Committed:
        """Apply the transaction durably: when this returns ok, it survives kill -9 and power loss.

        Raises Fenced when the fence does not hold, LepaError(invalid) when the transaction is over the limits or names
        a key twice, LepaError(timeout) when the outcome is not known.
        """

    def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        """Follow changes with revision > from_revision, in order; one item holds whole revisions. Raises Compacted."""

    async def replace(self, image: Image, fence: Fence | None = None) -> int:
        """Put the image in the place of everything, leased keys too: all of it or nothing, also when power is lost.

        Returns the revision from which it stands, above the image's and every one before. Objects keep the revision of
        their creation and count as modified by this; all watches end with Compacted. Raises as commit does.
        """

    async def lease(self, ttl_s: float) -> Lease:
        """A new lease that lapses ttl_s after the last keep."""

    async def close(self) -> None:
        """Let go of files and connections; commits under way end first."""
