"""A server leads while it has the lease, and not a moment longer."""

import pytest
from tests.clocks import ManualClock, settle

from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.server.server import Server
from lepa.server.settings import ServerSettings
from lepa.state.keys import LEADER
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Delete, Txn

LEASE_TTL_S = ServerSettings().lease_ttl_s


def server(store: MemoryStore, clock: ManualClock, name: str) -> Server:
    settings = ServerSettings(rpc_address=f"{name}:4647", workers=1)
    return Server(store, settings, clock, SeededRandom(1))


async def test_the_only_server_leads_at_once() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with server(store, clock, "one") as one:
        await settle(100)
        assert one.leads
        read = await store.read(LEADER)
        assert [entry.value for entry in read.entries] == [b"one:4647"]
        await clock.advance(10 * LEASE_TTL_S)
        assert one.leads
    assert (await store.read(LEADER)).entries == []
    await store.close()


async def test_a_server_that_loses_its_key_steps_down_and_leads_again_later() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with server(store, clock, "one") as one:
        await settle(100)
        await store.commit(Txn((Delete(LEADER),)))
        await settle(100)
        assert not one.leads
        await clock.advance(LEASE_TTL_S)
        await settle(100)
        assert one.leads
    await store.close()


async def test_a_second_server_leads_when_the_first_is_gone() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with server(store, clock, "one") as one:
        await settle(100)
        async with server(store, clock, "two") as two:
            await settle(100)
            assert (one.leads, two.leads) == (True, False)
            await one.__aexit__(None, None, None)
            await settle(100)
            assert two.leads
    await store.close()


async def test_a_certain_server_is_made_to_lead() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with server(store, clock, "one") as one:
        await settle(100)
        async with server(store, clock, "two") as two, server(store, clock, "three") as three:
            await settle(100)
            await two.take_over(5.0)
            await settle(100)
            assert (one.leads, two.leads, three.leads) == (False, True, False)
            assert (one.leader_address, three.leader_address) == ("two:4647", "two:4647")
            await two.take_over(5.0)
            await clock.advance(3 * LEASE_TTL_S)
            assert (one.leads, two.leads, three.leads) == (False, True, False)
    await store.close()


async def test_waiting_for_a_leader_ends_with_an_error() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with server(store, clock, "one"), server(store, clock, "two") as two:
        await settle(100)
        with pytest.raises(LepaError, match="No cluster leader") as refused:
            await two.wait_until_leading(0)
        assert refused.value.code == "no_leader"
    await store.close()
