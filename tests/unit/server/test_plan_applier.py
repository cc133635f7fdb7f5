"""Plans are applied one after the other, as far as they fit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_job, make_node, make_resources
from tests.clocks import ManualClock

from lepa.kit.sources import SeededRandom
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.plan import AllocationStop, Plan, PlanResult
from lepa.server.plan_applier import PlanApplier
from lepa.server.writer import Writer
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.jobs import deregister_job, register_job
from lepa.state.commands.nodes import register_node
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Put, Txn


class Bench:
    """A store with a job and one node with room for ten allocations, and an applier."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.replica = Replica(self.store, self.clock)
        self.writer = Writer(self.store, self.replica, self.clock, SeededRandom(1))
        self.held = True
        self.applier = PlanApplier(
            self.store, self.replica, self.writer, self.clock, Metrics(), lambda eval_id, token: self.held
        )

    def job(self) -> Job:
        job = self.replica.snapshot.job("default", "web")
        assert job is not None
        return job

    def plan(self, *names: str, cpu: int = 100, **fields: object) -> Plan:
        resources = make_resources("web", cpu=cpu, memory_mb=10)
        updates = tuple(make_alloc(name, job=self.job(), allocated_resources=resources) for name in names)
        return Plan(eval_id="e", job=self.job(), updates=updates, **fields)  # type: ignore[arg-type]

    def placed(self) -> list[str]:
        return sorted(alloc.id for alloc in self.replica.snapshot.allocations())

    async def submit(self, plan: Plan) -> PlanResult:
        result = await self.applier.submit(plan)
        await self.replica.wait_for(max(result.applied_index, 1), 1)
        return result


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    b = Bench()
    async with b.replica:
        committed = await b.store.commit(Txn((Put("leader", b"me"),)))
        b.writer.fence = Fence("leader", committed.revision)
        await b.writer.write(lambda draft: register_node(draft, make_node(cpu=1_000)))
        await b.writer.write(lambda draft: register_job(draft, make_job()))
        async with b.applier:
            yield b
    await b.store.close()


async def test_a_plan_that_fits_is_applied() -> None:
    async with bench() as b:
        result = await b.submit(b.plan("a", "b"))
        assert (result.refresh_index, result.rejected_nodes) == (0, ())
        assert b.placed() == ["a", "b"]


async def test_what_does_not_fit_is_refused_and_the_worker_is_told_where_to_look() -> None:
    async with bench() as b:
        result = await b.submit(b.plan("a", cpu=2_000))
        assert result.rejected_nodes == ("node-1",)
        assert result.refresh_index >= 1
        assert b.placed() == []


async def test_plans_at_the_same_time_do_not_overfill_a_node() -> None:
    async with bench() as b:
        plans = [b.plan(f"a{number}", cpu=300) for number in range(8)]
        results = await asyncio.gather(*(b.submit(plan) for plan in plans))
        assert sum(not result.refresh_index for result in results) == 3
        assert len(b.placed()) == 3


async def test_urgent_plans_go_first() -> None:
    async with bench() as b:
        done: list[str] = []

        async def submit(name: str, priority: int) -> None:
            await b.submit(b.plan(name, priority=priority))
            done.append(name)

        await asyncio.gather(submit("low", 10), submit("high", 90), submit("middle", 50))
        assert done == ["high", "middle", "low"]


async def test_a_plan_of_a_worker_that_was_given_up_is_not_applied() -> None:
    async with bench() as b:
        b.held = False
        with pytest.raises(LepaError, match="token does not match"):
            await b.submit(b.plan("a"))
        assert b.placed() == []


async def test_a_plan_for_an_evaluation_that_has_ended_is_not_applied() -> None:
    """Its worker saw a state of before; another one was given the evaluation, and has done what it asks for."""
    async with bench() as b:
        await b.writer.write(lambda draft: draft.put_evaluation(make_eval("e", status="complete")))
        with pytest.raises(LepaError, match="has ended"):
            await b.submit(b.plan("a"))
        assert b.placed() == []


async def test_a_change_between_check_and_commit_brings_another_check() -> None:
    async with bench() as b:
        await b.submit(b.plan("a"))
        present = b.replica.snapshot.allocation("a")
        assert present is not None
        original = b.writer.draft_on
        changed = False

        def draft_on(snapshot: object) -> Draft:
            nonlocal changed
            draft = original(snapshot)  # type: ignore[arg-type]
            if not changed:
                changed = True
                b.store.apply([keys.put(keys.alloc_key("a"), replace(present, client_status="failed"))])
            return draft

        b.writer.draft_on = draft_on  # type: ignore[method-assign]
        result = await b.submit(Plan(eval_id="e", job=b.job(), updates=(replace(present, job_version=1),)))
        after = b.replica.snapshot.allocation("a")
        assert after is not None
        assert (after.client_status, after.job_version, result.refresh_index) == ("failed", 1, 0)


async def test_nothing_is_placed_for_a_job_that_was_stopped_meanwhile() -> None:
    async with bench() as b:
        plan = b.plan("a")
        await b.writer.write(lambda draft: deregister_job(draft, "default", "web", purge=False))
        result = await b.submit(plan)
        assert result.refresh_index > 0
        assert b.placed() == []


async def test_a_plan_larger_than_a_transaction_is_applied_in_parts() -> None:
    async with bench() as b:
        names = [f"a{number:03}" for number in range(100)]
        result = await b.submit(b.plan(*names, cpu=10))
        assert result.refresh_index == 0
        assert b.placed() == names


async def test_how_the_evaluation_ended_is_written_with_the_whole_plan_or_not_at_all() -> None:
    def opening(draft: Draft) -> None:
        draft.put_evaluation(make_eval("opening"))

    def closing(draft: Draft) -> None:
        draft.put_evaluation(make_eval("closing"))

    async with bench() as b:
        await b.applier.submit(b.plan("big", cpu=2_000), opening=opening, closing=closing)
        assert b.replica.snapshot.evaluation("opening") is None
        names = [f"a{number:03}" for number in range(70)]
        result = await b.applier.submit(b.plan(*names, cpu=10), opening=opening, closing=closing)
        await b.replica.wait_for(result.applied_index, 1)
        first, last = b.replica.snapshot.evaluation("opening"), b.replica.snapshot.evaluation("closing")
        assert first is not None
        assert last is not None
        assert first.create_index < last.create_index == result.applied_index


async def test_small_plans_that_wait_together_are_committed_together() -> None:
    async with bench() as b:
        before = (await b.store.read("")).revision
        results = await asyncio.gather(*(b.submit(b.plan(f"a{number}", cpu=10)) for number in range(8)))
        assert len(b.placed()) == 8
        assert {result.applied_index for result in results} <= {before + 1, before + 2}
        assert b.applier.under_way() == []


async def test_what_was_submitted_is_under_way_until_it_is_in_the_snapshot() -> None:
    async with bench() as b:
        submitted = asyncio.ensure_future(b.applier.submit(b.plan("a", "b")))
        while not submitted.done():
            await asyncio.sleep(0)
            seen = {alloc.id for alloc in b.applier.under_way()} | set(b.placed())
            assert seen == {"a", "b"}


async def test_a_group_that_was_overtaken_is_written_one_by_one() -> None:
    async with bench() as b:
        await b.submit(b.plan("a"))
        present = b.replica.snapshot.allocation("a")
        assert present is not None
        original, drafts = b.writer.draft_on, 0

        def draft_on(snapshot: Snapshot) -> Draft:
            nonlocal drafts
            draft, drafts = original(snapshot), drafts + 1
            if drafts == 1:  # of all three together
                b.store.apply([keys.put(keys.alloc_key("a"), replace(present, client_status="failed"))])
            return draft

        b.writer.draft_on = draft_on  # type: ignore[method-assign]
        update = Plan(eval_id="e", job=b.job(), updates=(replace(present, job_version=1),))
        results = await asyncio.gather(*(b.submit(plan) for plan in (b.plan("b"), update, b.plan("c"))))
        assert [result.refresh_index for result in results] == [0, 0, 0]
        assert b.placed() == ["a", "b", "c"]
        assert drafts == 4
        after = b.replica.snapshot.allocation("a")
        assert after is not None
        assert (after.client_status, after.job_version) == ("failed", 1)


async def test_nothing_is_placed_on_a_node_that_went_down_meanwhile() -> None:
    async with bench() as b:
        original, down = b.writer.draft_on, False

        def draft_on(snapshot: Snapshot) -> Draft:
            nonlocal down
            draft = original(snapshot)
            node = snapshot.node("node-1")
            if not down and node is not None:
                down = True
                b.store.apply([keys.put(keys.node_key("node-1"), replace(node, status="down"))])
            return draft

        b.writer.draft_on = draft_on  # type: ignore[method-assign]
        result = await b.submit(b.plan("a"))
        assert result.rejected_nodes == ("node-1",)
        assert b.placed() == []


async def test_plans_that_evict_are_committed_alone() -> None:
    async with bench() as b:
        await b.submit(b.plan("victim"))
        evicting = replace(
            b.plan("urgent"), stops=(AllocationStop(alloc_id="victim", desired_status="evict", preempted_by="urgent"),)
        )
        plans = [b.plan("a"), evicting, b.plan("b")]
        results = await asyncio.gather(*(b.submit(plan) for plan in plans))
        assert len({result.applied_index for result in results}) == 3
        assert b.placed() == ["a", "b", "urgent", "victim"]


async def test_an_empty_plan_changes_nothing() -> None:
    async with bench() as b:
        before = (await b.store.read("")).revision
        await b.submit(Plan(eval_id="e", job=b.job()))
        assert (await b.store.read("")).revision == before
