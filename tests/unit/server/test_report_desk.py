"""Reports of many nodes go together into few writes, and what is wrong with one is nobody else's trouble."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_job, make_node
from tests.clocks import ManualClock, settle

from lepa.kit.sources import SeededRandom
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.server import report_desk as module
from lepa.server.report_desk import ReportDesk
from lepa.server.writer import Writer
from lepa.state import keys
from lepa.state.replica import Replica
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Put, Txn

NODES = 40


class Desk:
    """A desk, and how many writes it made."""

    def __init__(self, desk: ReportDesk, replica: Replica, writer: Writer) -> None:
        self.desk = desk
        self.replica = replica
        self.writes = 0
        commit = writer.commit

        async def counted(txn: Txn) -> Any:
            self.writes += 1
            return await commit(txn)

        writer.commit = counted  # type: ignore[method-assign]

    def say(self, number: int, secret: str = "", status: str = "running") -> "asyncio.Task[int]":
        report = Allocation(id=f"alloc-{number}", client_status=status)
        return asyncio.ensure_future(self.desk.write(f"node-{number}", secret or f"secret-{number}", (report,)))

    def status(self, number: int) -> str:
        alloc = self.replica.snapshot.allocation(f"alloc-{number}")
        assert alloc is not None
        return alloc.client_status


@asynccontextmanager
async def reporting() -> AsyncIterator[Desk]:
    clock = ManualClock()
    store = MemoryStore(clock)
    job = make_job()
    puts = [Put("leader", b"me"), keys.put(keys.job_key("default", job.id), job)]
    for number in range(NODES):
        node = replace(make_node(f"node-{number}"), secret_id=f"secret-{number}")
        puts.append(keys.put(keys.node_key(node.id), node))
        alloc = make_alloc(f"alloc-{number}", job=job, node_id=node.id, client_status="pending")
        puts.append(keys.put(keys.alloc_key(alloc.id), alloc))
    created = (await store.commit(Txn(tuple(puts)))).revision
    replica = Replica(store, clock)
    writer = Writer(store, replica, clock, SeededRandom(1))
    writer.fence = Fence("leader", created)
    async with replica, ReportDesk(writer, store.limits) as desk:
        yield Desk(desk, replica, writer)
    await store.close()


async def test_reports_that_come_at_once_are_written_in_few_transactions() -> None:
    async with reporting() as d:
        revisions = await asyncio.gather(*map(d.say, range(NODES)))
        assert {d.status(number) for number in range(NODES)} == {"running"}
        assert all(0 < revision <= d.replica.snapshot.index for revision in revisions)
        assert d.writes <= 3


async def test_a_node_that_shows_another_secret_is_refused_and_the_others_are_heard() -> None:
    async with reporting() as d:
        said = [d.say(number, "wrong" if number == 1 else "") for number in range(4)]
        found = await asyncio.gather(*said, return_exceptions=True)
        assert isinstance(found[1], LepaError)
        assert found[1].code == "denied"
        assert [d.status(number) for number in range(4)] == ["running", "pending", "running", "running"]


async def test_what_cannot_be_written_does_not_keep_the_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    update = module.update_allocations

    def broken(draft: Any, node_id: str, reports: Any) -> Any:
        if node_id == "node-2":
            raise ZeroDivisionError
        return update(draft, node_id, reports)

    monkeypatch.setattr(module, "update_allocations", broken)
    async with reporting() as d:
        found = await asyncio.gather(*map(d.say, range(4)), return_exceptions=True)
        assert [type(one) for one in found] == [int, int, ZeroDivisionError, int]
        assert d.status(3) == "running"


async def test_more_than_a_transaction_takes_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORTS_AT_ONCE_MAX", 3)
    async with reporting() as d:
        reports = tuple(Allocation(id="alloc-0", client_description=str(number)) for number in range(10))
        await d.desk.write("node-0", "secret-0", reports)
        assert d.writes == 4


async def test_the_end_of_a_term_refuses_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITERS", 0)
    async with reporting() as d:
        said = d.say(0)
        await settle()
    with pytest.raises(LepaError, match="No cluster leader"):
        await said
    with pytest.raises(LepaError, match="No cluster leader"):
        await d.say(0)
