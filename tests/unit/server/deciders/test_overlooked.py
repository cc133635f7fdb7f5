"""Jobs that need a look for which nobody has asked: after a server died between two transactions, and else."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_job, make_node
from tests.world import NOW_NS, World

from lepa.kit.durations import SECOND, rfc3339
from lepa.model.allocation import DesiredTransition
from lepa.model.node import DrainSpec
from lepa.server.deciders.overlooked import Look, find_overlooked
from lepa.state.commands.allocations import migrate_allocations
from lepa.state.commands.nodes import drain_node, purge_node, update_node_status
from lepa.state.reducer import reduce
from lepa.store.protocol import Limits

JOBS = 9
LIMITS = Limits(operations_max=4, bytes_max=1 << 20)


def settled() -> World:
    """A node with one running allocation of each of some jobs, of which all evaluations are done; and a system job."""
    world = World()
    world.node(make_node())
    for number in range(JOBS):
        run(world, f"job-{number}")
    run(world, "everywhere", type="system")
    return world


def run(world: World, job_id: str, **fields: Any) -> None:
    job = world.job(make_job(job_id, **fields))
    world.put_alloc(make_alloc(f"alloc-{job_id}", job=job))
    finish_evaluations(world)


def finish_evaluations(world: World) -> None:
    for evaluation in list(world.snapshot.evaluations()):
        if evaluation.status == "pending":
            world.put_eval(replace(evaluation, status="complete", snapshot_index=world.revision))


def crash_after(world: World, transactions: int, command: Any, *args: Any, **options: Any) -> int:
    """Write only the first transactions of a command, as a server that dies does; how many there would have been."""
    draft = world.draft()
    command(draft, *args, **options)
    txns = draft.txns(LIMITS)
    kept = {operation.key for txn in txns[:transactions] for operation in txn.operations}
    world.revision += 1
    changes = [change for change in draft.changes(world.revision) if change.key in kept]
    world.snapshot = reduce(world.snapshot, changes).snapshot
    return len(txns)


def asked(world: World) -> set[str]:
    return {e.job_id for e in world.snapshot.evaluations() if e.status == "pending"}


@pytest.mark.parametrize("transactions", [1, 2, 3])
@pytest.mark.parametrize("command", [(update_node_status, "node-1", "down"), (purge_node, "node-1")])
def test_a_crash_while_a_node_is_lost_overlooks_nobody(transactions: int, command: Any) -> None:
    world = settled()
    assert crash_after(world, transactions, *command) == 3
    before = asked(world)
    orders = find_overlooked(world.snapshot)
    assert {order.job_id for order in orders if order.job_id != "everywhere"} == {
        f"job-{number}" for number in range(JOBS)
    } - before
    world.carry_out(orders)
    assert asked(world) >= {f"job-{number}" for number in range(JOBS)}
    assert find_overlooked(world.snapshot) == ()


@pytest.mark.parametrize("transactions", [3, 4])
def test_a_crash_while_allocations_are_asked_to_move_overlooks_nobody(transactions: int) -> None:
    world = settled()
    world.do(drain_node, "node-1", DrainSpec(deadline=3600 * SECOND), mark_eligible=False)
    crash_after(world, transactions, migrate_allocations, [f"alloc-job-{number}" for number in range(JOBS)])
    told = {a.job_id for a in world.snapshot.allocations() if a.desired_transition.migrate}
    assert told == {f"job-{number}" for number in range(JOBS)}
    world.carry_out(find_overlooked(world.snapshot))
    assert asked(world) >= told


def test_a_node_that_joined_is_shown_to_system_jobs() -> None:
    world = settled()
    crash_after(world, 1, lambda draft: draft.put_node(make_node("node-2")))
    (order,) = find_overlooked(world.snapshot)
    assert (order.job_id, order.trigger) == ("everywhere", "node-update")


def test_nobody_is_overlooked_in_a_settled_state() -> None:
    assert find_overlooked(settled().snapshot) == ()


@pytest.mark.parametrize(
    ("kind", "client_status", "overlooked"),
    [("service", "failed", True), ("service", "complete", True), ("batch", "complete", False), ("batch", "lost", True)],
)
def test_a_job_with_less_than_it_wants_is_looked_at_once(kind: str, client_status: str, overlooked: bool) -> None:
    world = World()
    run(world, "web", type=kind)
    world.put_alloc(replace(world.alloc("alloc-web"), client_status=client_status))
    orders = find_overlooked(world.snapshot)
    assert [order.trigger for order in orders] == (["queued-allocs"] if overlooked else [])
    world.carry_out(orders)
    finish_evaluations(world)
    assert find_overlooked(world.snapshot) == ()


def test_a_job_whose_evaluation_is_gone_is_looked_at() -> None:
    world = World()
    world.job(make_job())
    (evaluation,) = world.snapshot.evaluations()
    world.forget(f"evals/{evaluation.id}")
    assert find_overlooked(world.snapshot) == (
        Look("default", "web", "queued-allocs", "fewer allocations live than are wanted"),
    )
    stopped = World()
    stopped.job(make_job(stop=True))
    assert find_overlooked(stopped.snapshot) == ()


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({}, True),
        ({"status": "blocked"}, False),
        ({"wait_until": rfc3339(NOW_NS + 3600 * SECOND), "triggered_by": "alloc-failure"}, False),
        ({"wait_until": rfc3339(NOW_NS + 60 * SECOND), "triggered_by": "failed-follow-up"}, True),
    ],
)
def test_only_an_evaluation_that_is_about_to_look_is_waited_for(fields: dict[str, Any], waits: bool) -> None:
    world = settled()
    world.put_eval(make_eval("waiting", job=make_job("job-8"), **fields))
    crash_after(world, 1, update_node_status, "node-1", "down")
    assert ("job-8" not in {order.job_id for order in find_overlooked(world.snapshot)}) == waits


def test_unknown_allocations_of_a_disconnected_node_are_where_they_should_be() -> None:
    world = settled()
    unknown = replace(world.alloc("alloc-job-8"), client_status="unknown", desired_transition=DesiredTransition())
    world.put_alloc(unknown)
    crash_after(world, 1, update_node_status, "node-1", "disconnected")
    assert "job-8" not in {order.job_id for order in find_overlooked(world.snapshot)}
