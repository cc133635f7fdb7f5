"""What the servers are told of allocations."""

from collections.abc import Callable
from typing import Any

from tests.builders import make_alloc
from tests.clocks import ManualClock

from lepa.client.reports import Reports
from lepa.client.server_link import ServerLink
from lepa.kit.sources import SeededRandom
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.rpc.requests import Reply


class Told:
    def __init__(self, tasks: Tasks) -> None:
        self.present: dict[str, Allocation] = {}
        self.batches: list[list[str]] = []
        self.away = False
        self.on_call: Callable[[], None] = lambda: None
        self.clock = ManualClock()
        link = ServerLink(self, self.clock, SeededRandom(1), lambda: None)
        link.registered.set()
        self.reports = Reports(link, self.clock, self.present.get)
        tasks.start("reports", self.reports.run())

    async def call(self, method: Any, request: Any) -> Reply[Any]:
        if self.away:
            raise LepaError("no_leader", "away")
        self.on_call()
        self.batches.append([alloc.id for alloc in request.allocations])
        return Reply(value=None)

    def stream(self, method: Any, request: Any) -> Any:
        raise AssertionError

    def become(self, alloc_id: str, status: str) -> None:
        self.present[alloc_id] = make_alloc(alloc_id, client_status=status)
        self.reports.note(alloc_id)


async def test_news_is_gathered_and_the_same_is_not_told_twice() -> None:
    async with Tasks("test") as tasks:
        it = Told(tasks)
        it.become("a", "pending")
        it.become("b", "running")
        it.become("a", "running")
        await it.clock.advance(1.0)
        it.reports.note("a")
        await it.clock.advance(1.0)
        assert it.batches == [["a", "b"]]
        assert it.reports.is_known("a")
        it.become("a", "complete")
        assert not it.reports.is_known("a")


async def test_what_could_not_be_told_is_told_later() -> None:
    async with Tasks("test") as tasks:
        it = Told(tasks)
        it.away = True
        it.become("a", "running")
        await it.clock.advance(3.0)
        it.away = False
        await it.clock.advance(3.0)
        assert it.batches == [["a"]]


async def test_batches_are_bounded_and_a_loss_is_made_good() -> None:
    async with Tasks("test") as tasks:
        it = Told(tasks)
        for number in range(150):
            it.become(str(number), "running")
        await it.clock.advance(1.0)
        assert [len(batch) for batch in it.batches] == [100, 50]
        it.reports.forget_all()
        it.reports.note("7")
        await it.clock.advance(1.0)
        assert it.batches[-1] == ["7"]


async def test_an_allocation_that_is_gone_is_not_told_of() -> None:
    async with Tasks("test") as tasks:
        it = Told(tasks)
        it.reports.note("gone")
        it.reports.forget("gone")
        await it.clock.advance(1.0)
        assert it.batches == []


async def test_what_the_servers_gave_up_is_told_again_even_when_it_was_being_told() -> None:
    async with Tasks("test") as tasks:
        it = Told(tasks)
        it.become("a", "running")
        await it.clock.advance(1.0)
        it.reports.doubt("a")
        it.reports.note("a")
        await it.clock.advance(1.0)
        assert it.batches == [["a"], ["a"]]

        it.on_call = lambda: it.reports.doubt("a")
        it.become("a", "complete")
        await it.clock.advance(1.0)
        it.on_call = lambda: None
        assert not it.reports.is_known("a")
        it.reports.note("a")
        await it.clock.advance(1.0)
        assert it.batches == [["a"]] * 4
