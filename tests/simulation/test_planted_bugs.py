"""Bugs that are planted on purpose: a simulation that does not find them proves nothing."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.simulation.world import World, simulate

from lepa.model.allocation import Allocation
from lepa.scheduler import group_step, plan_check, ports
from lepa.server import forwarding, plan_applier, worker
from lepa.server.deciders import heartbeats
from lepa.server.endpoints import queries
from lepa.state import replica
from lepa.state.commands import allocations
from lepa.state.commands.draft import Draft
from lepa.store.election import Election, StepDown
from lepa.store.protocol import Change

MINUTES = 1.5
SEEDS = range(7, 13)
"""How many seeds may be needed to find a bug."""

Plant = Callable[[pytest.MonkeyPatch], Callable[[World], None] | None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def no_fence(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """The store takes commits whatever their fence says, and a leader that stood still goes on."""
    never_steps_down(patch)

    def prepare(world: World) -> None:
        for server in world.servers.values():
            server.disk.fenced = False
        world.faults = ("stop_leader",)

    return prepare


def count_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A group of n gets n + 1."""
    right = group_step.GroupStep.__init__

    def wrong(self: Any, now: Any, group: Any, *rest: Any) -> None:
        right(self, now, replace(group, count=group.count + 1) if group.count else group, *rest)

    patch.setattr(group_step.GroupStep, "__init__", wrong)


def names_from_zero(patch: pytest.MonkeyPatch) -> None:
    """New allocations are named without a look at those that are there."""
    right = group_step.NameIndex

    def wrong(job_id: str, group: str, taken: Any) -> Any:
        return right(job_id, group, ())

    patch.setattr(group_step, "NameIndex", wrong)


def port_freed_early(patch: pytest.MonkeyPatch) -> None:
    """Ports of allocations that run are taken for free."""
    patch.setattr(ports.NodePorts, "_free_dynamic_port", lambda self, port, seed: 20_000 + seed % 4)
    patch.setattr(plan_check, "ports_collide", lambda after, updates: False)


def plans_unchecked(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Plans are applied as they come, and workers see nothing of each other."""
    right = plan_applier.check_plan

    def wrong(plan: Any, view: Any) -> Any:
        return replace(right(plan, view), updates=plan.updates, stops=plan.stops, rejected_nodes=(), refresh_index=0)

    patch.setattr(plan_applier, "check_plan", wrong)
    patch.setattr(plan_applier, "check_stands", lambda plan, before, after: True)
    patch.setattr(plan_applier.PlanApplier, "under_way", lambda self: [])
    patch.setattr(worker.Turns, "take", _no_turns)

    def prepare(world: World) -> None:
        world.node_cpu = 1_500

    return prepare


def _no_turns(self: Any, number: int, *, alone: bool) -> Any:
    from contextlib import AsyncExitStack

    return AsyncExitStack()


def heartbeat_not_reset(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat is answered and not noted."""

    def wrong(self: Any, node_id: str, now: float, spread: float) -> float:
        if node_id not in self._deadlines:
            self._set(node_id, now + 10.0)
        return 2.0

    patch.setattr(heartbeats.Heartbeats, "beat", wrong)


def silence_unnoticed(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Nodes that are gone for good are not missed."""
    patch.setattr(heartbeats.Heartbeats, "expired", lambda self, now: [])

    def prepare(world: World) -> None:
        world.faults = ("lose_node",)

    return prepare


def ended_runs_again(patch: pytest.MonkeyPatch) -> None:
    """A server believes whatever a node says, also of what had ended."""
    right = allocations._merge

    def wrong(draft: Draft, present: Allocation, report: Allocation) -> Allocation:
        found = right(draft, present, report)
        again = present.client_status in ("complete", "failed")
        return replace(found, client_status="running") if again else found

    patch.setattr(allocations, "_merge", wrong)


def never_steps_down(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """A leader goes on whatever becomes of its lease."""
    right = Election.poll

    def wrong(self: Election, now: float) -> Any:
        return [order for order in right(self, now) if not isinstance(order, StepDown)]

    patch.setattr(Election, "poll", wrong)
    patch.setattr(Election, "leads", lambda self, now: True)

    def prepare(world: World) -> None:
        world.faults = ("stop_leader",)

    return prepare


def disk_that_lies(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Some commits are answered and never made."""

    def prepare(world: World) -> None:
        for server in world.servers.values():
            server.disk.lies = 0.02

    return prepare


def change_lost(patch: pytest.MonkeyPatch) -> None:
    """A copy of the state overlooks a change now and then."""
    right, seen = replica.reduce, [0]

    def wrong(snapshot: Any, changes: Any) -> Any:
        seen[0] += 1
        kept = [change for change in changes if not (seen[0] % 50 == 0 and _is_allocation(change))]
        return right(snapshot, kept) if kept else right(snapshot, changes)

    patch.setattr(replica, "reduce", wrong)


def _is_allocation(change: Change) -> bool:
    return change.key.startswith("allocs/")


def follower_answers(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Every server answers reads from what it has."""
    right = forwarding.Forwarder.call

    async def wrong(self: Any, method: Any, request: Any) -> Any:
        return await (self._local.call(method, request) if method.kind == "read" else right(self, method, request))

    patch.setattr(forwarding.Forwarder, "call", wrong)

    def prepare(world: World) -> None:
        world.faults = ("cut_disk",)

    return prepare


def change_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a change waits until its time is over."""

    async def wrong(self: replica.Replica, watches: Any, index: int, timeout_s: float) -> Any:
        await self._clock.sleep(timeout_s)
        return self.snapshot

    patch.setattr(replica.Replica, "changed", wrong)


def index_falls(patch: pytest.MonkeyPatch) -> None:
    """An answer now and then has an index of before."""
    right, seen = queries._reply, [0]

    def wrong(value: Any, index: int) -> Any:
        seen[0] += 1
        return right(value, max(1, index - 50) if seen[0] % 20 == 0 else index)

    patch.setattr(queries, "_reply", wrong)


PLANTED: dict[Plant, str] = {
    no_fence: "heartbeat",
    count_off_by_one: "V5",
    names_from_zero: "V5",
    port_freed_early: "V6",
    plans_unchecked: "V6",
    heartbeat_not_reset: "",
    silence_unnoticed: "is gone and is ready",
    ended_runs_again: "V8",
    never_steps_down: "lead",
    disk_that_lies: "",
    change_lost: "",
    follower_answers: "V3",
    change_wakes_nobody: "V2",
    index_falls: "V2: index",
}
"""What a violation of each says."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = plant(monkeypatch) or (lambda world: None)
    for seed in SEEDS:
        if any(PLANTED[plant] in found for found in simulate(seed, MINUTES, prepare).violations):
            return
    pytest.fail(f"{plant.__doc__} Nobody noticed in {len(SEEDS)} runs.")
