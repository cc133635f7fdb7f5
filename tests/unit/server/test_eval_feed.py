"""The broker hears of evaluations and of room from the state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_job, make_node
from tests.clocks import ManualClock, settle

from lepa.kit.durations import rfc3339
from lepa.kit.sources import SeededRandom
from lepa.kit.telemetry import Metrics
from lepa.model.evaluation import Evaluation
from lepa.model.operator import SchedulerConfiguration
from lepa.server.eval_feed import EvalFeed
from lepa.server.writer import Writer
from lepa.state.commands.nodes import register_node, update_node_status
from lepa.state.commands.tenancy import set_scheduler_configuration
from lepa.state.replica import Replica
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Put, Txn


class Desk:
    """A feed on a store, and a worker's hands."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.replica = Replica(self.store, self.clock)
        self.writer = Writer(self.store, self.replica, self.clock, SeededRandom(1))
        self.metrics = Metrics()
        self.feed = EvalFeed(self.replica, self.writer, self.clock, SeededRandom(2), self.metrics)

    async def put(self, evaluation: Evaluation) -> None:
        await self.writer.write(lambda draft: draft.put_evaluation(evaluation))
        await settle()

    async def next(self) -> str:
        async with asyncio.timeout(1):
            delivery = await self.feed.dequeue(("service",))
        self.feed.ack(delivery, self.replica.snapshot.index)
        return delivery.evaluation.id

    def status(self, eval_id: str) -> str:
        found = self.replica.snapshot.evaluation(eval_id)
        return found.status if found is not None else "absent"


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    d = Desk()
    async with d.replica:
        committed = await d.store.commit(Txn((Put("leader", b"me"),)))
        d.writer.fence = Fence("leader", committed.revision)
        await d.put(make_eval("before"))
        async with d.feed:
            yield d
    await d.store.close()


async def test_what_was_pending_before_and_what_comes_later_are_both_handed_out() -> None:
    async with desk() as d:
        assert await d.next() == "before"
        waiting = asyncio.ensure_future(d.next())
        await settle()
        assert not waiting.done()
        await d.put(make_eval("later"))
        assert await waiting == "later"


async def test_an_evaluation_for_later_comes_at_its_time() -> None:
    async with desk() as d:
        await d.next()
        await d.put(make_eval("later", wait_until=rfc3339(d.clock.now_ns() + 30_000_000)))
        d.feed.report()
        assert d.metrics.gauges[("nomad.nomad.broker.total_waiting", ())] == 1
        waiting = asyncio.ensure_future(d.next())
        await settle()
        assert not waiting.done()
        await d.clock.advance(1)
        assert await waiting == "later"


async def test_room_on_a_node_lets_blocked_evaluations_go() -> None:
    async with desk() as d:
        await d.next()
        await d.put(make_eval("blocked", job=make_job("a"), status="blocked", snapshot_index=10_000))
        d.feed.report()
        assert d.metrics.gauges[("nomad.nomad.blocked_evals.total_blocked", ())] == 1
        await d.writer.write(lambda draft: register_node(draft, make_node()))
        assert await d.next() == "blocked"
        await d.put(make_eval("again", job=make_job("b"), status="blocked", snapshot_index=10_000))
        alloc = make_alloc()
        await d.writer.write(lambda draft: draft.put_allocation(alloc))
        stop = replace(d.replica.snapshot.allocation("alloc-1") or alloc, desired_status="stop")
        await d.writer.write(lambda draft: draft.put_allocation(stop))
        assert await d.next() == "again"


async def test_a_node_that_goes_down_gives_no_room() -> None:
    async with desk() as d:
        await d.next()
        await d.writer.write(lambda draft: register_node(draft, make_node()))
        await d.put(make_eval("blocked", job=make_job("a"), status="blocked", snapshot_index=10_000))
        await d.writer.write(lambda draft: update_node_status(draft, "node-1", "down"))
        await settle()
        assert len(d.feed.blocked) == 1


async def test_what_is_superseded_replaced_or_given_up_is_written_down() -> None:
    async with desk() as d:
        delivery = await d.feed.dequeue(("service",))
        await d.put(make_eval("second"))
        await d.put(make_eval("third"))
        d.feed.ack(delivery, 0)
        await settle(60)
        assert d.status("second") == "canceled"
        for name in ("one", "two"):
            await d.put(make_eval(name, job=make_job("b"), status="blocked", snapshot_index=10_000))
        await settle(60)
        assert (d.status("one"), d.status("two")) == ("canceled", "blocked")
        for _ in range(3):
            async with asyncio.timeout(1):
                d.feed.nack(await d.feed.dequeue(("service",)))
            d.clock._now += 30
            d.feed.broker.poll(d.clock.now())
        await settle(60)
        assert d.status("third") == "canceled"


async def test_what_is_handed_out_again_is_looked_at_with_what_came_of_it_before() -> None:
    async with desk() as d:
        first = await d.feed.dequeue(("service",))
        await d.writer.write(lambda draft: draft.put_allocation(make_alloc(job=make_job())))
        placed = d.replica.snapshot.index
        d.feed.take_back(first.evaluation.id, first.token)
        second = await d.feed.dequeue(("service",))
        assert (second.evaluation.id, first.wait_index < placed, second.wait_index) == ("before", True, placed)
        await d.writer.write(lambda draft: draft.put_evaluation(make_eval("before", status="complete")))
        d.feed.take_back(second.evaluation.id, second.token)
        assert (await d.feed.dequeue(("service",))).wait_index == d.replica.snapshot.index


async def test_a_paused_broker_hands_nothing_out() -> None:
    async with desk() as d:
        paused = SchedulerConfiguration(pause_eval_broker=True)
        await d.writer.write(lambda draft: set_scheduler_configuration(draft, paused))
        waiting = asyncio.ensure_future(d.next())
        await settle()
        assert not waiting.done()
        await d.writer.write(lambda draft: set_scheduler_configuration(draft, SchedulerConfiguration()))
        assert await waiting == "before"
