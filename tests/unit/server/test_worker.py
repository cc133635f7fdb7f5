"""A worker gives back what it cannot do, and gives up when its plans are refused."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest
from tests.builders import make_job, make_node
from tests.clocks import ManualClock, settle

from lepa.kit.sources import SeededRandom
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.evaluation import Evaluation
from lepa.model.plan import Plan, PlanResult
from lepa.scheduler.outcome import Outcome
from lepa.server.desk import close
from lepa.server.eval_broker import Delivery
from lepa.server.worker import Turns, Worker
from lepa.server.writer import Writer
from lepa.state.commands.jobs import register_job
from lepa.state.commands.nodes import register_node
from lepa.state.replica import Replica
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Put, Txn


class Desk:
    """One delivery, and what became of it. answer: to every plan."""

    def __init__(self, evaluation: Evaluation, answer: PlanResult | Exception, writer: Writer) -> None:
        self.answer = answer
        self.writer = writer
        self.plans: list[Plan] = []
        self.delivery = Delivery(evaluation, "token", 0)
        self.handed = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.lone = asyncio.Lock()

    async def dequeue(self, types: Any) -> Delivery:
        if self.handed:
            await asyncio.Event().wait()
        self.handed = True
        return self.delivery

    def ack(self, delivery: Delivery, index: int) -> None:
        self.ended.set_result("ack")

    def nack(self, delivery: Delivery) -> None:
        self.ended.set_result("nack")

    def under_way(self) -> list[Allocation]:
        return []

    def alone(self, delivery: Delivery) -> AbstractAsyncContextManager[None]:
        return self.lone

    async def submit(self, plan: Plan, outcome: Outcome) -> PlanResult:
        self.plans.append(plan)
        if isinstance(self.answer, Exception):
            raise self.answer
        if not self.answer.refresh_index:
            await self.close(self.delivery, outcome)
        return self.answer

    async def close(self, delivery: Delivery, outcome: Outcome) -> int:
        closing = partial(close, evaluation=outcome.evaluation, new_evaluations=outcome.new_evaluations)
        return (await self.writer.write(closing)).revision


async def work(answer: PlanResult | Exception) -> tuple[str, Desk, Replica, str]:
    """One evaluation of a job that fits, with a desk that answers so: how it ended."""
    clock = ManualClock()
    store = MemoryStore(clock)
    replica = Replica(store, clock)
    writer = Writer(store, replica, clock, SeededRandom(1))
    async with replica, Tasks("test") as tasks:
        writer.fence = Fence("leader", (await store.commit(Txn((Put("leader", b"me"),)))).revision)
        await writer.write(lambda draft: register_node(draft, make_node()))
        evaluation = (await writer.write(lambda draft: register_job(draft, make_job()))).value.evaluation
        assert evaluation is not None
        desk = Desk(evaluation, answer, writer)
        worker = Worker(replica, desk, clock, SeededRandom(2), Metrics(), ("service",), Turns(1))
        tasks.start("work", worker.run())
        async with asyncio.timeout(5):
            ended = await desk.ended
    await store.close()
    return ended, desk, replica, evaluation.id


async def test_a_plan_that_was_taken_completes_the_evaluation() -> None:
    ended, desk, replica, eval_id = await work(PlanResult(applied_index=1))
    (plan,) = desk.plans
    assert (ended, plan.eval_token, len(plan.updates)) == ("ack", "token", 1)
    evaluation = replica.snapshot.evaluation(eval_id)
    assert evaluation is not None
    assert evaluation.status == "complete"


async def test_plans_that_are_always_refused_end_in_a_blocked_evaluation() -> None:
    ended, desk, replica, eval_id = await work(PlanResult(refresh_index=1, rejected_nodes=("node-1",)))
    assert (ended, len(desk.plans)) == ("ack", 5)
    evaluation = replica.snapshot.evaluation(eval_id)
    assert evaluation is not None
    assert (evaluation.status, evaluation.status_description) == ("failed", "maximum attempts reached (5)")
    blocked = replica.snapshot.evaluation(evaluation.blocked_eval)
    assert blocked is not None
    assert (blocked.status, blocked.triggered_by) == ("blocked", "max-plan-attempts")


@pytest.mark.parametrize("error", [LepaError("conflict", "taken away"), ZeroDivisionError()])
async def test_what_goes_wrong_is_given_back(error: Exception) -> None:
    ended, _, replica, eval_id = await work(error)
    evaluation = replica.snapshot.evaluation(eval_id)
    assert evaluation is not None
    assert (ended, evaluation.status) == ("nack", "pending")


async def test_workers_take_turns_beside_each_other_or_alone() -> None:
    turns, told, go = Turns(2), [], asyncio.Event()

    async def schedule(name: str, worker: int, *, alone: bool) -> None:
        async with turns.take(worker, alone=alone):
            told.append(f"{name} begins")
            await go.wait()
            await settle()
            told.append(f"{name} ends")

    async with asyncio.timeout(5), Tasks("test") as tasks:
        running = [
            tasks.start(name, schedule(name, worker, alone=alone))
            for name, worker, alone in (("a", 0, False), ("b", 1, False), ("c", 0, True), ("d", 1, False))
        ]
        await settle()
        assert told == ["a begins", "b begins"]
        go.set()
        await asyncio.gather(*running)
    alone = told.index("c begins")
    assert told[alone + 1] == "c ends"
    assert set(told) == {f"{name} {what}" for name in "abcd" for what in ("begins", "ends")}
