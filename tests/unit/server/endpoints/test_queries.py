"""Reads wait as they are asked to, and no longer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.builders import make_job, make_node
from tests.clocks import ManualClock, settle

from lepa.kit.durations import SECOND
from lepa.kit.sources import SeededRandom
from lepa.rpc.requests import ReadRequest, Reply
from lepa.server.endpoints.queries import THREAD_ROWS, Queries
from lepa.server.endpoints.query import Query, table
from lepa.server.pages import Page
from lepa.state import keys
from lepa.state.replica import Replica
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Limits, Txn

COUNT = Query(table("jobs"), lambda snapshot, request: len(snapshot.tables["jobs"]))


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, Limits(100_000, 1 << 30))
        self.replica = Replica(self.store, self.clock)
        self.queries = Queries(self.replica, self.clock, SeededRandom(1))

    async def job(self, name: str) -> None:
        committed = await self.store.commit(Txn((keys.put(keys.job_key("default", name), make_job(name)),)))
        await self.replica.wait_for(committed.revision, 1)

    def ask(self, query: Query = COUNT, **fields: Any) -> "asyncio.Task[Reply[Any]]":
        return asyncio.ensure_future(self.queries.answer(query, ReadRequest(**fields)))  # type: ignore[return-value]


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    d = Desk()
    async with d.replica:
        yield d
    await d.store.close()


async def test_index_zero_does_not_block_and_is_never_answered() -> None:
    async with desk() as d:
        reply = await d.ask()
        assert (reply.value, reply.index) == (0, 1)


async def test_a_query_waits_for_something_newer() -> None:
    async with desk() as d:
        asked = d.ask(index=1)
        await settle()
        assert not asked.done()
        await d.job("a")
        await d.job("b")
        reply = await asked
        assert (reply.value, reply.index) == (2, 2)


async def test_a_change_that_tells_the_caller_nothing_does_not_end_its_wait() -> None:
    async with desk() as d:
        pairs = Query(table("jobs"), COUNT.answer, ends=lambda value, request: value % 2 == 0)
        asked = d.ask(pairs, index=1)
        await d.job("a")
        await settle()
        assert not asked.done()
        await d.job("b")
        assert ((await asked).value, (await asked).index) == (2, 2)


async def test_writes_at_full_speed_are_all_heard_of_at_once() -> None:
    """B141: the clock stands still, so that a read that missed a write would never come back."""
    async with desk() as d:
        writes = 300

        async def follow() -> list[int]:
            seen, index = [0], 1
            while seen[-1] < writes:
                reply = await d.ask(index=index)
                assert reply.index > index
                index = reply.index
                seen.append(reply.value)
            return seen

        readers = [asyncio.ensure_future(follow()) for _ in range(4)]
        for number in range(writes):
            await d.job(f"job-{number}")
        for seen in await asyncio.wait_for(asyncio.gather(*readers), 20):
            assert seen == sorted(set(seen))


async def test_a_query_is_over_after_its_wait_and_a_little() -> None:
    async with desk() as d:
        asked = d.ask(index=5, wait_ns=16 * SECOND)
        await d.clock.advance(15.9)
        assert not asked.done()
        await d.clock.advance(1.2)
        assert asked.done()
        assert (await asked).value == 0


async def test_a_change_that_leaves_the_answers_own_index_as_it_was_ends_no_wait() -> None:
    query = Query(
        table("jobs"),
        lambda snapshot, request: [job.modify_index for job in snapshot.jobs() if job.id == "mine"],
        index_of=lambda found: max(found, default=1),
    )
    async with desk() as d:
        await d.job("mine")
        asked = d.ask(query, index=1 + (await d.ask(query)).index - 1)
        await settle()
        await d.job("other")
        await settle()
        assert not asked.done()
        await d.job("mine")
        assert (await asked).value == [3]


async def test_pages_carry_their_token() -> None:
    async with desk() as d:
        reply = await d.ask(Query(table("jobs"), lambda snapshot, request: Page(("x",), "next")))
        assert (reply.value, reply.next_token) == (("x",), "next")


async def test_large_tables_are_listed_beside_the_loop() -> None:
    async with desk() as d:
        nodes = tuple(keys.put(keys.node_key(f"n{n}"), make_node(f"n{n}")) for n in range(THREAD_ROWS + 1))
        committed = await d.store.commit(Txn(nodes))
        await d.replica.wait_for(committed.revision, 5)
        reply = await d.ask(Query(table("nodes"), lambda snapshot, request: sum(1 for _ in snapshot.nodes())))
        assert reply.value == THREAD_ROWS + 1
