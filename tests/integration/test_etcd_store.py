"""What etcd servers may do to the store: die, stall, forget, lose answers; and certificates.

Over lepa.store.etcd_connection, lepa.store.etcd_requests, lepa.store.etcd_session and lepa.store.etcd_watch.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from tests.certificates import make_certificate
from tests.etcd import EtcdServer, etcd_servers

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.state.replica import Replica
from lepa.store import etcd_messages as m
from lepa.store.etcd import EtcdStore
from lepa.store.etcd_connection import LEASE_REVOKE, STATUS, TXN, Tls
from lepa.store.protocol import Change, Compacted, Compare, Delete, Fence, Put, Txn

KEPT = 100
SOON_S = 30.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdServer]]:
    with etcd_servers(tmp_path_factory.mktemp("three"), 3) as servers:
        yield servers


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4()}/"


async def opened(endpoints: Sequence[str], prefix: str, tls: Tls | None = None, patience_s: float = 10.0) -> EtcdStore:
    return await EtcdStore.open(
        endpoints,
        SystemClock(),
        random=SystemRandom(),
        tls=tls,
        prefix=prefix,
        revisions_kept=KEPT,
        patience_s=patience_s,
    )


@pytest.fixture
async def store(three: list[EtcdServer], prefix: str) -> AsyncIterator[EtcdStore]:
    store = await opened([server.endpoint for server in three], prefix)
    yield store
    await store.close()


async def put(store: EtcdStore, key: str, value: bytes = b"1") -> int:
    committed = await store.commit(Txn((Put(key, value),)))
    assert committed.ok
    return committed.revision


async def take(watch: AsyncIterator[Sequence[Change]], count: int) -> list[Change]:
    found: list[Change] = []
    async with asyncio.timeout(SOON_S):
        while len(found) < count:
            found.extend(change for change in await anext(watch) if change.key)
    return found


def serving(store: EtcdStore, servers: Sequence[EtcdServer]) -> EtcdServer:
    """The server that the store asks first."""
    return next(server for server in servers if server.endpoint == store.connection.current)


@contextlib.contextmanager
def killed(server: EtcdServer, servers: Sequence[EtcdServer]) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start(servers)


@contextlib.contextmanager
def stalled(server: EtcdServer) -> Iterator[None]:
    server.stall()
    try:
        yield
    finally:
        server.go_on()


async def leading(store: EtcdStore, servers: Sequence[EtcdServer]) -> EtcdServer:
    """etcd's own leader."""
    async with asyncio.timeout(SOON_S):
        while True:
            for server in servers:
                with contextlib.suppress(Exception):
                    status = await store.connection.once(STATUS, m.StatusRequest(), endpoint=server.endpoint)
                    if status.leader and status.leader == status.header.member_id:
                        return server
            await asyncio.sleep(0.05)


# Servers that die


async def test_when_an_endpoint_dies_reads_writes_and_watches_go_on(store: EtcdStore, three: list[EtcdServer]) -> None:
    watch = store.watch(await put(store, "a"))
    first = await put(store, "k/0")
    assert [change.revision for change in await take(watch, 1)] == [first]
    with killed(serving(store, three), three):
        revisions = [await put(store, f"k/{at}") for at in range(1, 6)]
        assert [change.revision for change in await take(watch, 5)] == revisions
        assert len((await store.read("k/")).entries) == 6


async def test_when_etcds_leader_dies_nothing_acknowledged_is_lost_or_doubled(
    store: EtcdStore, three: list[EtcdServer]
) -> None:
    watch = store.watch(await put(store, "a"))
    written: dict[str, int] = {}

    async def write(who: int) -> None:
        for at in range(30):
            key = f"k/{who}/{at}"
            done = await store.commit(Txn((Put(key, b"1"),), (Compare(key, created=0),)))
            assert done.ok, f"{key} was refused: it must have been there already"
            written[key] = done.revision

    leader = await leading(store, three)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        for who in range(4):
            group.create_task(write(who))
        await asyncio.sleep(0.05)
        leader.kill()
    try:
        entries = (await store.read("k/")).entries
        assert {entry.key: entry.modified for entry in entries} == written
        told = await take(watch, len(written))
        assert {change.key: change.revision for change in told} == written
        assert [change.revision for change in told] == sorted(written.values())
    finally:
        leader.start(three)


async def test_a_stalled_endpoint_is_left_within_seconds(store: EtcdStore, three: list[EtcdServer]) -> None:
    watch = store.watch(await put(store, "a"))
    lease = await store.lease(10)
    with stalled(serving(store, three)):
        async with asyncio.timeout(SOON_S):
            revisions = [await put(store, f"k/{at}") for at in range(5)]
            assert len((await store.read("k/")).entries) == 5
            await lease.keep()
        assert [change.revision for change in await take(watch, 5)] == revisions


async def test_without_a_majority_nothing_is_answered_and_then_all_goes_on(
    store: EtcdStore, three: list[EtcdServer], prefix: str
) -> None:
    await put(store, "a")
    with stalled(three[0]), stalled(three[1]):
        writing = asyncio.ensure_future(put(store, "b"))
        await asyncio.sleep(1.5)
        assert not writing.done()
    async with asyncio.timeout(SOON_S):
        revision = await writing
    (entry,) = (await store.read("b")).entries
    assert (entry.created, entry.modified) == (revision, revision)


async def test_the_only_etcd_comes_back_with_everything_and_the_watch_goes_on(tmp_path: Path) -> None:
    with etcd_servers(tmp_path) as (server,):
        store = await opened([server.endpoint], "x/")
        watch = store.watch(await put(store, "a", b"0"))
        server.kill()
        writing = asyncio.ensure_future(put(store, "a", b"1"))
        await asyncio.sleep(0.2)
        server.start([server])
        assert [change.value for change in await take(watch, 1)] == [b"1"]
        assert await writing
        await store.close()


async def test_no_endpoint_that_answers_is_said_in_a_sentence() -> None:
    with pytest.raises(LepaError, match=r"etcd at 127\.0\.0\.1:1: .*no endpoint answered in") as caught:
        await opened(["127.0.0.1:1"], "x/", patience_s=0.5)
    assert caught.value.code == "timeout"


# Answers that are lost


class Proxy:
    """Stands between the store and an etcd. While `swallows`, requests go through and answers do not."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.swallows = False
        self.swallowed = asyncio.Event()
        self.cut = False

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def drop(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, far_writer}
        for pump in (self._pump(reader, far_writer, False), self._pump(far_reader, writer, True)):
            self._pumps.add(asyncio.ensure_future(pump))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if answers and self.swallows:
                    self.swallowed.set()
                    continue
                sink.write(data)
                await sink.drain()
        sink.close()


@pytest.mark.parametrize("breaks", [False, True], ids=["silence", "broken connection"])
async def test_a_commit_whose_answer_was_lost_is_known_and_not_doubled(
    etcd_server: EtcdServer, prefix: str, breaks: bool
) -> None:
    async with Proxy(etcd_server.client_port) as proxy:
        store = await opened([proxy.endpoint], prefix)
        await put(store, "a")
        for txn in (
            Txn((Put("new", b"1"),), (Compare("new", created=0),)),
            Txn((Delete("new"),), (Compare("a", modified=1),)),
        ):
            before = (await store.read("")).revision
            proxy.swallows = True
            committing = asyncio.ensure_future(store.commit(txn))
            await proxy.swallowed.wait()
            if breaks:
                proxy.drop()
            await asyncio.sleep(0.1)
            proxy.swallows = False
            proxy.swallowed.clear()
            async with asyncio.timeout(SOON_S):
                assert await committing == (True, before + 1)
            assert (await store.read("")).revision == before + 1
        await store.close()


async def test_no_increment_is_lost_or_doubled_while_connections_break_at_random(
    etcd_server: EtcdServer, prefix: str
) -> None:
    """Check-and-set on one counter by several writers; in the end it stands where the answers say."""
    random = Random(20_261_130)
    async with Proxy(etcd_server.client_port) as proxy:
        store = await opened([proxy.endpoint], prefix, patience_s=SOON_S)
        await put(store, "counter", b"0")

        async def increment() -> int:
            done = 0
            for _ in range(50):
                (entry,) = (await store.read("counter")).entries
                value = str(int(entry.value) + 1).encode()
                txn = Txn((Put("counter", value),), (Compare("counter", modified=entry.modified),))
                done += (await store.commit(txn)).ok
            return done

        async def disturb() -> None:
            while True:
                await asyncio.sleep(random.uniform(0.02, 0.15))
                proxy.swallows = random.random() < 0.5
                await asyncio.sleep(random.uniform(0.0, 0.05))
                proxy.drop()
                proxy.swallows = False

        disturbing = asyncio.ensure_future(disturb())
        async with asyncio.timeout(2 * SOON_S):
            done = sum(await asyncio.gather(*(increment() for _ in range(6))))
        disturbing.cancel()
        (entry,) = (await store.read("counter")).entries
        assert int(entry.value) == done > 0
        await store.close()


async def test_a_commit_that_never_arrived_is_made_once(etcd_server: EtcdServer, prefix: str) -> None:
    async with Proxy(etcd_server.client_port) as proxy:
        store = await opened([proxy.endpoint], prefix)
        await put(store, "a")
        proxy.cut = True
        proxy.drop()
        committing = asyncio.ensure_future(store.commit(Txn((Put("b", b"1"),), (Compare("b", created=0),))))
        await asyncio.sleep(0.3)
        proxy.cut = False
        async with asyncio.timeout(SOON_S):
            assert await committing == (True, 2)
        await store.close()


async def test_a_commit_of_unknown_outcome_says_so_and_its_slot_is_not_used_again(
    etcd_server: EtcdServer, prefix: str
) -> None:
    async with Proxy(etcd_server.client_port) as proxy:
        store = await opened([proxy.endpoint], prefix, patience_s=1.0)
        await put(store, "a")
        proxy.swallows = True
        with pytest.raises(LepaError, match="not known whether a write was kept") as caught:
            await store.commit(Txn((Put("b", b"1"),)))
        assert caught.value.code == "timeout"
        proxy.swallows = False
        proxy.drop()
        store.connection.patience_s = SOON_S
        assert await put(store, "c") > 1
        await store.close()


async def test_a_commit_goes_on_though_nobody_waits_for_it(etcd_server: EtcdServer, prefix: str) -> None:
    store = await opened([etcd_server.endpoint], prefix)
    await put(store, "a")
    committing = asyncio.ensure_future(store.commit(Txn((Put("b", b"1"),))))
    await asyncio.sleep(0)
    committing.cancel()
    async with asyncio.timeout(SOON_S):
        assert [change.key for change in await take(store.watch(1), 1)] == ["b"]
    assert await put(store, "c") == 3
    await store.close()


async def test_when_the_session_lapsed_writes_begin_another(etcd_server: EtcdServer, prefix: str) -> None:
    store = await opened([etcd_server.endpoint], prefix)
    other = await opened([etcd_server.endpoint], prefix)
    await put(store, "a")
    sessions = await other.connection.call(
        TXN,
        m.TxnRequest(success=[m.RequestOp(request_range=m.RangeRequest(key=prefix.encode() + b"c/", range_end=b"\0"))]),
    )
    lease = sessions.responses[0].response_range.kvs[0].lease
    await other.connection.call(LEASE_REVOKE, m.LeaseRevokeRequest(ID=lease))
    assert await put(store, "b")
    assert {entry.key for entry in (await other.read("")).entries} == {"a", "b"}
    await store.close()
    await other.close()


# Revisions that are forgotten


async def test_a_watch_from_a_compacted_revision_is_told_to_read_again(etcd_server: EtcdServer, prefix: str) -> None:
    store = await opened([etcd_server.endpoint], prefix)
    for at in range(2 * KEPT):
        await put(store, f"k/{at % 7}")
    await store.compact()
    with pytest.raises(Compacted) as caught:
        await anext(store.watch(1))
    assert caught.value.facts["oldest"]
    read = await store.read("")
    revision = await put(store, "z")
    assert [change.revision for change in await take(store.watch(read.revision), 1)] == [revision]
    await store.close()


async def test_a_follower_that_was_cut_off_beyond_compaction_reads_again(etcd_server: EtcdServer, prefix: str) -> None:
    writer = await opened([etcd_server.endpoint], prefix)
    await put(writer, "a")
    async with Proxy(etcd_server.client_port) as proxy:
        store = await opened([proxy.endpoint], prefix)
        async with Replica(store, SystemClock()) as replica:
            proxy.cut = True
            proxy.drop()
            for at in range(2 * KEPT):
                revision = await put(writer, f"k/{at % 7}")
            await writer.compact()
            proxy.cut = False
            assert (await replica.wait_for(revision, SOON_S)).index >= revision
        await store.close()
    await writer.close()


async def test_a_watch_ahead_of_an_etcd_that_went_back_is_told_to_read_again(
    etcd_server: EtcdServer, prefix: str
) -> None:
    store = await opened([etcd_server.endpoint], prefix)
    revision = await put(store, "a")
    with pytest.raises(Compacted):
        await anext(store.watch(revision + 1_000_000))
    await store.close()


# Much at once


async def test_many_and_large_objects_are_read_in_chunks_and_watched_in_whole_revisions(
    etcd_server: EtcdServer, prefix: str
) -> None:
    store = await opened([etcd_server.endpoint], prefix)
    value = bytes(200_000)
    for at in range(20):
        operations = [Put(f"big/{at}/{part}", value) for part in range(6)]
        operations += [Put(f"small/{at}/{part}", b"") for part in range(80)]
        await store.commit(Txn(tuple(operations)))
    read = await store.read("")
    assert len(read.entries) == 20 * 86
    assert [entry.key for entry in read.entries] == sorted(entry.key for entry in read.entries)
    watch, seen = store.watch(0), 0
    async with asyncio.timeout(SOON_S):
        while seen < 20 * 86:
            batch = [change.revision for change in await anext(watch)]
            assert all(batch.count(revision) == 86 for revision in batch)
            seen += len(batch)
    await store.close()


async def test_two_stores_agree_on_who_leads(etcd_server: EtcdServer, prefix: str) -> None:
    one, other = await opened([etcd_server.endpoint], prefix), await opened([etcd_server.endpoint], prefix)
    assert one.cluster_id == other.cluster_id
    lease = await one.lease(60)
    campaign = Txn((Put("leader", b"one", lease.id),), (Compare("leader", created=0),))
    won = await one.commit(campaign)
    lost = await other.commit(campaign)
    assert (won.ok, lost.ok, lost.revision) == (True, False, won.revision)
    fence = Fence("leader", won.revision)
    assert (await other.commit(Txn((Put("a", b""),)), fence)).ok
    await lease.revoke()
    with pytest.raises(LepaError, match="no longer leads"):
        await one.commit(Txn((Put("b", b""),)), fence)
    await one.close()
    await other.close()


async def test_another_program_s_key_in_the_place_of_ours_is_refused(etcd_server: EtcdServer, prefix: str) -> None:
    store = await opened([etcd_server.endpoint], prefix)
    strange = m.PutRequest(key=b"strange/root", value=b"hello")
    await store.connection.call(TXN, m.TxnRequest(success=[m.RequestOp(request_put=strange)]))
    with pytest.raises(LepaError, match="lepa did not write"):
        await opened([etcd_server.endpoint], "strange/")
    await store.close()


# Certificates


async def test_certificates_are_shown_and_checked(tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "localhost.pem", "localhost")
    pem, ca = str(made), str(tmp_path / "ca.pem")
    Path(ca).write_text("-----BEGIN CERTIFICATE" + made.read_text().partition("-----BEGIN CERTIFICATE")[2])
    flags = ("--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", pem, "--key-file", pem)
    with etcd_servers(tmp_path, flags=flags) as (server,):
        endpoint = f"localhost:{server.client_port}"
        store = await opened([endpoint], "x/", Tls(ca, pem, pem))
        assert await put(store, "a") == 1
        await store.close()
        for tls in (None, Tls(ca)):
            with pytest.raises(LepaError, match="no endpoint answered"):
                await opened([endpoint], "x/", tls, patience_s=0.5)
    with pytest.raises(LepaError, match="cannot read /nowhere"):
        await opened([endpoint], "x/", Tls("/nowhere"))
