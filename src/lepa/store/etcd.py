"""A store in etcd, for several servers.

    store = await EtcdStore.open(["10.0.0.1:2379", "10.0.0.2:2379"], clock, random=random)

Every commit is one transaction of etcd: it compares what is in force (`root`), the fence's leader key, its own slot and
what the caller compares, and then applies all operations. `etcd_layout` tells how a commit whose answer was lost is
known as applied or not, how revisions are ours although etcd counts them, and how a snapshot is put in force.

Reads come in chunks of bounded size at one revision. Old revisions are compacted here, because an etcd of somebody
else's may not do it by itself. Messages are made by protobuf, connections by grpcio: `pip install lepa[ha]`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, conflict, invalid, not_found
from lepa.store import etcd_messages as m
from lepa.store.etcd_connection import (
    COMPACT,
    DELETE_RANGE,
    LEASE_GRANT,
    LEASE_REVOKE,
    PATIENCE_S,
    RANGE,
    TXN,
    EtcdConnection,
    Tls,
)
from lepa.store.etcd_layout import Layout, Root, after, closed, decode_root, encode_root, root_key
from lepa.store.etcd_requests import changed, commit_request, created, modified
from lepa.store.etcd_session import Slot, Slots
from lepa.store.etcd_watch import Watching
from lepa.store.local import CHANGES_MAX
from lepa.store.protocol import (
    Change,
    Committed,
    Entry,
    Fence,
    Fenced,
    Image,
    Limits,
    Put,
    Read,
    Txn,
)
from lepa.store.revisions import check_txn

LIMITS: Final = Limits(operations_max=96, bytes_max=1_400_000)
"""What an etcd takes as it comes (128 operations, 1.5 MiB), less the compares and keys that we add."""
OWN_LIMITS: Final = Limits(operations_max=1_024, bytes_max=4 << 20)
"""What an etcd takes that was started with our flags (see etcd_process)."""
CHUNK_BYTES: Final = 2 << 20
"""Aim for one answer of a read."""
CHUNK_ENTRIES_MIN, CHUNK_ENTRIES_MAX = 16, 4_096
CHUNK_DEADLINE_S: Final = 5.0
AGAIN_MAX: Final = 10
"""How often a read or a commit begins anew because its revision was compacted or the state replaced meanwhile."""
QUEUED_MAX: Final = 8_192
"""Commits that may be under way or wait for a slot; more are refused."""
CLOSE_S: Final = 2.0
"""How long closing waits for commits under way."""
COMPACT_S: Final = 300.0
LEASE_TTL_MIN_S: Final = 1

log = logging.getLogger(__name__)


class EtcdLease:
    """A lease that etcd keeps."""

    def __init__(self, lease_id: int, ttl_s: float, connection: EtcdConnection) -> None:
        self.id = lease_id
        self._connection = connection
        self._patience_s = ttl_s / 3

    async def keep(self) -> None:
        if not await self._connection.keep_alive(self.id, self._patience_s):
            raise not_found(f"lease {self.id} has lapsed")

    async def revoke(self) -> None:
        try:
            await self._connection.call(LEASE_REVOKE, m.LeaseRevokeRequest(ID=self.id))
        except LepaError as error:
            if error.code != "not_found":
                raise


class EtcdStore:
    """Objects under keys in an etcd. `await EtcdStore.open(…)` to begin, `close` at the end."""

    def __init__(
        self, connection: EtcdConnection, layout: Layout, clock: Clock, random: Random, limits: Limits, kept: int
    ) -> None:
        self.limits = limits
        self._connection = connection
        self._layout = layout
        self._clock = clock
        self._random = random
        self._kept = kept
        self._born: dict[str, int] = {}
        """When restored objects were created, where etcd knows only when they were restored."""
        self._under_way: set[asyncio.Task[Committed | LepaError]] = set()
        self._tasks = Tasks("etcd_store")
        self._slots = Slots(connection, clock, self._tasks)
        self._watches: set[Watching] = set()
        self._closed = False
        self._tasks.start("compact", self._compact_now_and_then())

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        clock: Clock,
        *,
        random: Random,
        tls: Tls | None = None,
        prefix: str = "lepa/",
        limits: Limits = LIMITS,
        revisions_kept: int = CHANGES_MAX,
        patience_s: float = PATIENCE_S,
        create: bool = True,
    ) -> "EtcdStore":
        """Connect, and make the first state in an etcd that has none, if create says so.

        prefix: of all keys. patience_s: how long a call may take at all endpoints in turn. revisions_kept: how far a
        watch can be behind before it is told to read again.
        Raises LepaError: timeout when no endpoint answers, invalid when something else lies there, conflict when
        nothing does and nothing is to be made.
        """
        connection = EtcdConnection(endpoints, clock, tls, patience_s)
        try:
            layout = await _root(connection, prefix.encode(), random.uuid() if create else "")
        except BaseException:
            await connection.close()
            raise
        return cls(connection, layout, clock, random, limits, revisions_kept)

    @property
    def cluster_id(self) -> str:
        """Names the state for good: another etcd, or one that was emptied, has another."""
        return self._layout.root.cluster

    @property
    def connection(self) -> EtcdConnection:
        """The endpoints: replace them when the members change."""
        return self._connection

    # Reading

    async def read(self, prefix: str) -> Read:
        self._check_open()
        for _ in range(AGAIN_MAX):
            try:
                found = await self._read(prefix)
            except LepaError as error:
                if error.code != "conflict":
                    raise
                continue  # compacted while it was read
            if found is not None:
                return found
        raise LepaError("timeout", "the state was replaced or compacted each time it was read; try again")

    async def _read(self, prefix: str) -> Read | None:
        """None: another state was put in force."""
        layout = self._layout
        start, end = layout.object(prefix), after(layout.object(prefix))
        entries: list[Entry] = []
        limit, revision = 64, 0
        while True:
            answer = await self._chunk(layout, start, end, limit, revision)
            root, found = (one.response_range for one in answer.responses)
            if root.kvs[0].mod_revision != layout.written:
                self._adopt(root.kvs[0])
                return None
            revision = revision or answer.header.revision
            for kv in found.kvs:
                entries.append(entry := layout.entry(kv))
                if entry.created != layout.ours(kv.create_revision):
                    self._born[entry.key] = entry.created
            if not found.more:
                return Read(layout.ours(revision), entries)
            start = found.kvs[-1].key + b"\x00"
            fitting = limit * CHUNK_BYTES // sum(len(kv.key) + len(kv.value) for kv in found.kvs)
            limit = min(CHUNK_ENTRIES_MAX, 4 * limit, max(CHUNK_ENTRIES_MIN, fitting))

    async def _chunk(self, layout: Layout, start: bytes, end: bytes, limit: int, revision: int) -> Any:
        """What is in force, and objects of a range: those that stood at `revision`, 0 for the newest."""
        wanted = m.RangeRequest(key=start, range_end=end, limit=limit, revision=revision)
        root = m.RangeRequest(key=layout.root_key)
        both = [m.RequestOp(request_range=root), m.RequestOp(request_range=wanted)]
        return await self._connection.call(TXN, m.TxnRequest(success=both), CHUNK_DEADLINE_S)

    # Writing

    async def commit(self, txn: Txn, fence: Fence | None = None) -> Committed:
        check_txn(txn, self.limits)
        self._check_open()
        if len(self._under_way) >= QUEUED_MAX:
            raise LepaError("timeout", f"{QUEUED_MAX} writes wait for etcd already; try again later")
        under_way = self._tasks.start("commit", self._outcome(txn, fence))
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)
        outcome: Committed | LepaError = await asyncio.shield(
            under_way
        )  # whoever stops waiting leaves a slot that is still in use
        if isinstance(outcome, LepaError):
            raise outcome
        return outcome

    async def _outcome(self, txn: Txn, fence: Fence | None) -> Committed | LepaError:
        try:
            for _ in range(AGAIN_MAX):
                if (done := await self._commit(txn, fence)) is not None:
                    return done
        except LepaError as error:
            return error
        return LepaError("timeout", "the state was replaced before each attempt; nothing was written; try again")

    async def _commit(self, txn: Txn, fence: Fence | None) -> Committed | None:
        """None: it was not applied, for a reason that is gone."""
        slot = await self._slots.take()
        known = False
        try:
            done = await self._in_slot(slot, txn, fence)
            known = True
        except LepaError as error:
            known = error.code != "timeout"
            raise
        finally:
            self._slots.give_back(slot, known=known)
        return done

    async def _in_slot(self, slot: Slot, txn: Txn, fence: Fence | None) -> Committed | None:
        """Ask until it is known how the commit ended."""
        layout = self._layout
        request = commit_request(layout, slot, txn, fence, self._born)
        attempts = 0

        async def attempt() -> Any:
            nonlocal attempts
            attempts += 1
            return await self._connection.once(TXN, request)

        try:
            answer = await self._connection.until_answered(attempt)
        except LepaError as error:
            return await self._not_taken(error, slot, txn, attempts)
        if not answer.succeeded:
            return self._refused(answer, layout, slot, fence, attempts)
        if any(map(changed, answer.responses)):
            slot.last = answer.header.revision
        return Committed(True, layout.ours(answer.header.revision))

    def _refused(self, answer: Any, layout: Layout, slot: Slot, fence: Fence | None, attempts: int) -> Committed | None:
        """Why this attempt was not applied: perhaps because an earlier one was."""
        root, own, newest, *leader = (one.response_range.kvs for one in answer.responses)
        if own and own[0].mod_revision != slot.last:
            slot.last = own[0].mod_revision
            return Committed(True, layout.ours(slot.last))
        if slot.last and not own:
            self._lapsed(slot, attempts)
            return None
        if not root or root[0].mod_revision != layout.written:
            if not root:
                raise LepaError("internal", "the etcd was emptied while lepa ran: start the agent again")
            self._adopt(root[0])
            if fence is not None:
                raise Fenced
            return None
        if fence is not None and (not leader[0] or leader[0][0].create_revision != layout.etcds(fence.created)):
            raise Fenced
        return Committed(False, layout.ours(newest[0].mod_revision if newest else answer.header.revision))

    async def _not_taken(self, error: LepaError, slot: Slot, txn: Txn, attempts: int) -> Committed | None:
        """What etcd's refusal means for a commit."""
        if error.code == "timeout":
            raise LepaError("timeout", f"it is not known whether a write was kept: {error.message}") from error
        if error.code != "not_found":
            raise error
        if await self._connection.keep_alive(slot.session):
            leases = ", ".join(str(op.lease) for op in txn.operations if isinstance(op, Put) and op.lease)
            raise not_found(f"lease {leases} has lapsed") from error
        self._lapsed(slot, attempts)
        return None

    def _lapsed(self, slot: Slot, attempts: int) -> None:
        """The session of a slot has lapsed, and with it what the slot knew."""
        self._slots.lapsed(slot.session)
        if attempts > 1:
            raise LepaError("timeout", "it is not known whether a write was kept: its session lapsed meanwhile")

    # Replacing everything

    async def replace(self, image: Image, fence: Fence | None = None) -> int:
        self._check_open()
        before, began = self._layout, await self._newest()
        generation = self._random.uuid()
        await self._put_all(before.of_generation(generation), image.entries)
        now = await self._newest()
        base = max(image.revision + now - began, before.ours(now)) + 1
        try:
            await self._put_in_force(before, Root(before.root.cluster, generation, base), fence)
        finally:
            await self._drop_others()
        return base

    async def _put_in_force(self, before: Layout, root: Root, fence: Fence | None) -> None:
        compares = [modified(before.root_key, before.written)]
        if fence is not None:
            compares.append(created(before.object(fence.key), before.etcds(fence.created)))
        put = m.RequestOp(request_put=m.PutRequest(key=before.root_key, value=encode_root(root)))
        look = m.RequestOp(request_range=m.RangeRequest(key=before.root_key))
        answer = await self._connection.call(TXN, m.TxnRequest(compare=compares, success=[put], failure=[look]))
        if answer.succeeded:
            self._layout = Layout(before.prefix, root, answer.header.revision)
            return
        self._adopt(answer.responses[0].response_range.kvs[0])
        if self._layout.root.generation != root.generation:  # else an attempt before was applied
            raise Fenced

    async def _newest(self) -> int:
        answer = await self._connection.call(RANGE, m.RangeRequest(key=self._layout.root_key))
        return int(answer.header.revision)

    async def _put_all(self, layout: Layout, entries: Sequence[Entry]) -> None:
        """Objects of a generation that is not in force yet: putting one twice does no harm."""
        batch: list[Any] = []
        size = 0
        for entry in entries:
            value = closed(entry.value, entry.created)
            if len(value) > self.limits.bytes_max:
                raise invalid(
                    f'the object "{entry.key}" has {len(value)} bytes, more than the {self.limits.bytes_max} that this '
                    "etcd takes; start it with a larger --max-request-bytes"
                )
            if batch and (len(batch) >= self.limits.operations_max or size + len(value) > self.limits.bytes_max):
                await self._connection.call(TXN, m.TxnRequest(success=batch), CHUNK_DEADLINE_S)
                batch, size = [], 0
            batch.append(m.RequestOp(request_put=m.PutRequest(key=layout.object(entry.key), value=value)))
            size += len(value) + len(entry.key)
        if batch:
            await self._connection.call(TXN, m.TxnRequest(success=batch), CHUNK_DEADLINE_S)

    async def _drop_others(self) -> None:
        """Objects of generations that are not in force."""
        everything, ours = self._layout.prefix + b"o/", self._layout.objects
        for start, end in ((everything, ours), (after(ours), after(everything))):
            await self._connection.call(DELETE_RANGE, m.DeleteRangeRequest(key=start, range_end=end), CHUNK_DEADLINE_S)

    def _adopt(self, kv: Any) -> None:
        self._layout = Layout(self._layout.prefix, decode_root(kv.value), kv.mod_revision)

    # Following

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        if self._closed:
            return
        watching = Watching(self._connection, self._layout, from_revision, prefix, self._clock, self._tasks, self._born)
        self._watches.add(watching)
        try:
            async for changes in watching.changes():
                yield changes
        finally:
            self._watches.discard(watching)

    async def lease(self, ttl_s: float) -> EtcdLease:
        self._check_open()
        wanted = max(LEASE_TTL_MIN_S, round(ttl_s))
        answer = await self._connection.call(LEASE_GRANT, m.LeaseGrantRequest(TTL=wanted))
        return EtcdLease(answer.ID, ttl_s, self._connection)

    # Care

    async def compact(self) -> None:
        """Let etcd forget all but the newest revisions."""
        revision = await self._newest() - self._kept
        if revision <= 0:
            return
        try:
            await self._connection.call(COMPACT, m.CompactionRequest(revision=revision), CHUNK_DEADLINE_S)
        except LepaError as error:
            if error.code != "conflict":  # another server was faster
                raise

    async def _compact_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(COMPACT_S)
            try:
                await self.compact()
            except LepaError as error:
                log.warning("old revisions not forgotten error=%s", error)

    def _check_open(self) -> None:
        if self._closed:
            raise LepaError("internal", "the store is closed")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watching in tuple(self._watches):
            watching.stop()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSE_S)
        await self._slots.close()
        await self._tasks.close()
        await self._connection.close()


async def _root(connection: EtcdConnection, prefix: bytes, cluster: str) -> Layout:
    """What is in force; made when there is nothing. cluster "": nothing is made."""
    key = root_key(prefix)
    first = Root(cluster, "0")
    look = m.RequestOp(request_range=m.RangeRequest(key=key))
    put = m.RequestOp(request_put=m.PutRequest(key=key, value=encode_root(first)))
    absent = m.Compare(key=key, target=m.VERSION, version=0)
    made = [put] if cluster else []
    answer = await connection.call(TXN, m.TxnRequest(compare=[absent], success=made, failure=[look]))
    if answer.succeeded and not cluster:
        raise conflict(f'the etcd holds no state of lepa under "{prefix.decode()}", where there should be one')
    if answer.succeeded:
        return Layout(prefix, first, answer.header.revision)
    kv = answer.responses[0].response_range.kvs[0]
    return Layout(prefix, decode_root(kv.value), kv.mod_revision)
