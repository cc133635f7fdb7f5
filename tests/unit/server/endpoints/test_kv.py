"""Keys and sessions of a whole server (lepa.server.endpoints.kv), over an in-memory store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.clocks import ManualClock, settle

from lepa.kit.durations import SECOND
from lepa.kit.sources import SeededRandom, SystemClock
from lepa.model.kv import KvOperation, Session
from lepa.rpc import methods as m
from lepa.rpc.kv_requests import KvApplied, KvApplyRequest, SessionCreateRequest, SessionRequest
from lepa.rpc.requests import ReadRequest
from lepa.server.server import Server
from lepa.server.settings import ServerSettings
from lepa.store.memory import MemoryStore


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    clock = SystemClock()
    async with Server(MemoryStore(clock), ServerSettings(), clock, SeededRandom(1)) as running:
        await running.wait_until_leading(5.0)
        yield running


async def apply(server: Server, verb: Any, key: str = "a", value: bytes = b"", **more: Any) -> KvApplied:
    operations = (KvOperation(verb=verb, key=key, value=value, **more),)
    return (await server.caller.call(m.KV_APPLY, KvApplyRequest(operations=operations))).value


async def test_of_many_that_check_and_set_one_wins_each_round(server: Server) -> None:
    await apply(server, "set", value=b"0")

    async def count(times: int) -> None:
        done = 0
        while done < times:
            entry = (await server.caller.call(m.KV_GET, ReadRequest(id="a"))).value
            assert entry is not None
            more = str(int(entry.value) + 1).encode()
            done += (await apply(server, "cas", value=more, index=entry.modify_index)).applied

    await asyncio.gather(*(count(10) for _ in range(8)))
    entry = (await server.caller.call(m.KV_GET, ReadRequest(id="a"))).value
    assert entry is not None
    assert entry.value == b"80"


async def test_a_missing_key_can_be_waited_for(server: Server) -> None:
    missing = await server.caller.call(m.KV_GET, ReadRequest(id="later"))
    waiting = asyncio.ensure_future(
        server.caller.call(m.KV_GET, ReadRequest(id="later", index=missing.index, wait_ns=10**10))
    )
    await asyncio.sleep(0.01)
    await apply(server, "set", "later", b"here")
    reply = await waiting
    assert reply.value is not None
    assert (reply.value.value, reply.index > missing.index) == (b"here", True)


async def test_the_index_of_a_prefix_moves_when_a_key_is_deleted(server: Server) -> None:
    await apply(server, "set", "p/1", b"x")
    before = await server.caller.call(m.KV_LIST, ReadRequest(prefix="p/"))
    waiting = asyncio.ensure_future(
        server.caller.call(m.KV_LIST, ReadRequest(prefix="p/", index=before.index, wait_ns=10**10))
    )
    await asyncio.sleep(0.01)
    await apply(server, "delete", "p/1")
    after = await waiting
    assert (after.value, after.index > before.index) == ((), True)


async def test_a_session_holds_a_key_until_it_is_destroyed(server: Server) -> None:
    created = (await server.caller.call(m.SESSION_CREATE, SessionCreateRequest(session=Session()))).value
    assert (await apply(server, "lock", session=created)).applied
    assert [each.id for each in (await server.caller.call(m.SESSION_LIST, ReadRequest())).value] == [created]
    assert (await server.caller.call(m.SESSION_RENEW, SessionRequest(id=created))).value.id == created
    await server.caller.call(m.SESSION_DESTROY, SessionRequest(id=created))
    assert (await server.caller.call(m.SESSION_GET, ReadRequest(id=created))).value is None
    entry = (await server.caller.call(m.KV_GET, ReadRequest(id="a"))).value
    assert entry is not None
    assert entry.session == ""


async def test_what_was_written_tells_its_index(server: Server) -> None:
    reply = await server.caller.call(
        m.KV_APPLY, KvApplyRequest(operations=(KvOperation(verb="set", key="a", value=b"1"),))
    )
    assert [entry.modify_index for entry in reply.value.entries] == [reply.index]


async def test_a_leader_ends_sessions_that_nobody_renews() -> None:
    clock = ManualClock()
    async with Server(MemoryStore(clock), ServerSettings(), clock, SeededRandom(1)) as server:
        await settle(100)
        wanted = Session(ttl=10 * SECOND)
        created = (await server.caller.call(m.SESSION_CREATE, SessionCreateRequest(session=wanted))).value
        assert (await apply(server, "lock", session=created)).applied
        for _ in range(25):
            await clock.advance(1.0)
        assert (await server.caller.call(m.SESSION_GET, ReadRequest(id=created))).value is None
        entry = (await server.caller.call(m.KV_GET, ReadRequest(id="a"))).value
        assert entry is not None
        assert entry.session == ""
