"""Each server writes who it is, and follows who the others are."""

from tests.clocks import ManualClock, settle

from lepa.model.wire import from_msgpack, to_msgpack
from lepa.rpc.server_requests import ServerRecord
from lepa.server.roster import SERVERS_MAX, Roster
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Put, Txn


def record(name: str, port: int = 4647) -> ServerRecord:
    return ServerRecord(name=name, rpc_address=f"{name}:{port}")


async def test_servers_know_each_other_and_the_newest_of_each() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with Roster(store, clock, record("one")) as one, Roster(store, clock, record("two")) as two:
        await settle()
        assert one.servers() == two.servers() == (record("one"), record("two"))
        await store.commit(Txn((Put("servers/two", to_msgpack(record("two", 5000))),)))
        await settle()
        assert one.named("two") == record("two", 5000)
        assert two.named("two") == record("two"), "a server knows best what it is itself"
    await store.close()


async def test_a_server_that_left_is_forgotten_and_one_that_failed_is_not() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with Roster(store, clock, record("one")) as one:
        async with Roster(store, clock, record("two")):
            await settle()
        assert one.named("two") is not None
        await one.forget("two")
        await settle()
        assert one.servers() == (record("one"),)
    await store.close()


async def test_a_record_is_written_again_only_when_it_has_changed() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    revisions = []
    for port in (1, 1, 2):
        async with Roster(store, clock, record("one", port)):
            await settle()
        revisions.append((await store.read("servers/")).revision)
    assert revisions[0] == revisions[1] < revisions[2]
    (entry,) = (await store.read("servers/")).entries
    assert from_msgpack(entry.value, ServerRecord) == record("one", 2)
    await store.close()


async def test_records_that_cannot_be_read_or_are_too_many_are_left_out() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    await store.commit(Txn((Put("servers/bad", b"\xc1"), Put("servers/a/b", to_msgpack(record("a"))))))
    for number in range(2 * SERVERS_MAX):
        await store.commit(Txn((Put(f"servers/s{number:03}", to_msgpack(record(f"s{number:03}"))),)))
    async with Roster(store, clock, record("one")) as one:
        await settle()
        assert len(one.servers()) == SERVERS_MAX
    await store.close()
