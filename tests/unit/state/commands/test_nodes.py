"""Nodes register, change, drain and go."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_job, make_node, make_service
from tests.world import World

from lepa.kit.durations import HOUR, rfc3339
from lepa.model.errors import LepaError
from lepa.model.node import DrainSpec, Node, NodeEvent
from lepa.state.commands import nodes as commands


def stored(world: World) -> Node:
    node = world.snapshot.node("node-1")
    assert node is not None
    return node


def messages(world: World) -> list[str]:
    return [event.message for event in stored(world).events]


def test_a_registered_node_has_a_class_and_an_event() -> None:
    world = World()
    _, evaluations = world.do(commands.register_node, make_node())
    assert stored(world).computed_class.startswith("v1:")
    assert messages(world) == ["Node registered"]
    assert stored(world).events[0].create_index == world.revision
    assert evaluations == ()


def test_registering_again_keeps_what_servers_know() -> None:
    world = World()
    world.node(make_node())
    world.do(commands.set_eligibility, "node-1", "ineligible")
    world.do(commands.register_node, make_node(meta={"rack": "r1"}))
    node = stored(world)
    assert (node.scheduling_eligibility, node.meta, len(node.events)) == ("ineligible", {"rack": "r1"}, 2)


def test_saying_the_same_again_writes_nothing() -> None:
    world = World()
    world.node(make_node())
    draft = world.draft()
    commands.register_node(draft, make_node())
    assert draft.empty


def test_a_node_that_comes_back_is_ready_with_an_event() -> None:
    world = World()
    world.node(make_node())
    world.do(commands.update_node_status, "node-1", "down", event="Node heartbeat missed")
    assert stored(world).last_missed_heartbeat_index == world.revision
    world.do(commands.update_node_status, "node-1", "ready")
    assert messages(world) == ["Node registered", "Node heartbeat missed", "Node reregistered by heartbeat"]
    world.do(commands.update_node_status, "node-1", "down")
    world.do(commands.register_node, make_node())
    assert messages(world)[-1] == "Node re-registered"


def test_a_change_of_status_looks_at_the_nodes_jobs() -> None:
    world = World()
    job = world.job(make_job())
    world.node(make_node())
    world.put_alloc(make_alloc(job=job))
    _, evaluations = world.do(commands.update_node_status, "node-1", "down")
    assert [(e.job_id, e.triggered_by, e.node_id) for e in evaluations] == [("web", "node-update", "node-1")]


def test_the_first_secret_is_the_nodes_own() -> None:
    world = World()
    world.node(make_node(secret_id="one"))
    with pytest.raises(LepaError, match="node secret ID does not match") as refused:
        world.do(commands.register_node, make_node(secret_id="two"))
    assert refused.value.code == "denied"
    with pytest.raises(LepaError, match="does not match"):
        commands.check_secret(world.draft(), "node-1", "two")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (make_node(""), "missing node ID"),
        (make_node(datacenter=""), "missing datacenter"),
        (make_node(name=""), "missing node name"),
        (make_node(status="tired"), 'invalid status "tired"'),
        (make_node(node_pool="all"), "not allowed to register in node pool"),
    ],
)
def test_a_node_has_to_say_who_it_is(node: Node, message: str) -> None:
    with pytest.raises(LepaError, match=message):
        World().do(commands.register_node, node)


def test_a_node_brings_its_pool_along() -> None:
    world = World()
    world.node(make_node(node_pool="gpu"))
    assert world.snapshot.node_pool("gpu") is not None


def test_a_drain_makes_a_node_ineligible_until_it_is_cancelled() -> None:
    world = World()
    world.node(make_node())
    world.do(commands.drain_node, "node-1", DrainSpec(deadline=HOUR), mark_eligible=False, meta={"why": "disk"})
    node = stored(world)
    assert node.drain_strategy is not None
    assert node.drain_strategy.force_deadline == rfc3339(world.now_ns + HOUR)
    assert (node.scheduling_eligibility, node.last_drain and node.last_drain.status) == ("ineligible", "draining")
    with pytest.raises(LepaError, match="eligible while it is draining"):
        world.do(commands.set_eligibility, "node-1", "eligible")
    world.now_ns += 5
    world.do(commands.drain_node, "node-1", DrainSpec(), mark_eligible=False)
    changed = stored(world).drain_strategy
    assert changed is not None
    assert changed.started_at == node.drain_strategy.started_at
    world.do(commands.drain_node, "node-1", None, mark_eligible=True)
    node = stored(world)
    assert (node.drain_strategy, node.scheduling_eligibility) == (None, "eligible")
    assert node.last_drain is not None
    assert node.last_drain.status == "canceled"
    assert messages(world)[1:] == ["Node drain strategy set", "Node drain strategy updated", "Node drain disabled"]


def test_a_complete_drain_stays_ineligible() -> None:
    world = World()
    world.node(make_node())
    world.do(commands.drain_node, "node-1", DrainSpec(), mark_eligible=False, meta={"why": "disk"})
    world.do(commands.complete_drain, "node-1")
    node = stored(world)
    assert (node.drain_strategy, node.scheduling_eligibility) == (None, "ineligible")
    assert node.last_drain is not None
    assert (node.last_drain.status, node.last_drain.meta) == ("complete", {"why": "disk"})


def test_the_same_eligibility_writes_nothing() -> None:
    world = World()
    world.node(make_node())
    draft = world.draft()
    commands.set_eligibility(draft, "node-1", "eligible")
    assert draft.empty


def test_a_purged_node_is_gone_with_its_services() -> None:
    world = World()
    job = world.job(make_job())
    world.node(make_node())
    world.put_alloc(make_alloc(job=job))
    world.do(lambda draft: draft.overwrite("services/default/web/service-1", make_service()))
    evaluations = world.do(commands.purge_node, "node-1")
    assert world.snapshot.node("node-1") is None
    assert list(world.snapshot.services()) == []
    assert [evaluation.job_id for evaluation in evaluations] == ["web"]
    with pytest.raises(LepaError, match="node not found"):
        world.do(commands.purge_node, "node-1")


def test_the_newest_events_are_kept() -> None:
    world = World()
    world.node(make_node())
    events = [NodeEvent(message=str(number), subsystem="Driver") for number in range(15)]
    world.do(commands.note_node_events, "node-1", events)
    assert messages(world) == [str(number) for number in range(5, 15)]
    assert replace(stored(world).events[0], create_index=0).subsystem == "Driver"
