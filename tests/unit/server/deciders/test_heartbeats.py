"""Which nodes are silent."""

from tests.builders import make_alloc, make_group, make_job, make_node
from tests.world import World

from lepa.kit.durations import HOUR
from lepa.model.policies import DisconnectStrategy
from lepa.server.deciders.heartbeats import Heartbeats, MarkSilent, disconnected_too_long, silent
from lepa.server.settings import HeartbeatSettings

SETTINGS = HeartbeatSettings(min_ttl_s=10, max_per_s=2, grace_s=5, failover_ttl_s=300)


def test_a_node_is_silent_after_its_time_and_a_grace() -> None:
    beats = Heartbeats(SETTINGS)
    assert beats.beat("a", now=0, spread=0) == 10
    assert beats.wake_at() == 15
    assert beats.expired(14.9) == []
    assert beats.expired(15) == ["a"]
    assert beats.expired(100) == []


def test_a_beat_moves_the_deadline_on() -> None:
    beats = Heartbeats(SETTINGS)
    beats.beat("a", now=0, spread=0)
    beats.beat("a", now=10, spread=0)
    assert beats.expired(15) == []
    assert beats.expired(25) == ["a"]


def test_many_nodes_beat_less_often() -> None:
    beats = Heartbeats(SETTINGS)
    for number in range(100):
        beats.beat(f"node-{number}", now=0, spread=0)
    assert beats.beat("node-0", now=0, spread=0.5) == 75


def test_a_new_leader_gives_everybody_time() -> None:
    beats = Heartbeats(SETTINGS)
    beats.start([make_node("a"), make_node("b", status="down")], now=0)
    assert len(beats) == 1
    assert beats.expired(299) == []
    assert beats.expired(300) == ["a"]


def test_a_forgotten_node_is_not_missed() -> None:
    beats = Heartbeats(SETTINGS)
    beats.beat("a", now=0, spread=0)
    beats.forget("a")
    assert beats.expired(1_000) == []


def test_the_heap_does_not_grow_with_beats() -> None:
    beats = Heartbeats(SETTINGS)
    for now in range(1_000):
        beats.beat("a", now=now, spread=0)
    assert len(beats._heap) <= 2 * len(beats) + 65


def test_a_silent_node_is_down_unless_something_outlives_the_connection() -> None:
    world = World()
    world.node(make_node())
    assert silent(world.snapshot, "node-1") == MarkSilent("node-1", "down")
    job = world.job(make_job(groups=(make_group(disconnect=DisconnectStrategy(lost_after=HOUR)),)))
    world.put_alloc(make_alloc(job=job))
    order = silent(world.snapshot, "node-1")
    assert order == MarkSilent("node-1", "disconnected")
    world.carry_out([order, order])
    node = world.snapshot.node("node-1")
    assert node is not None
    assert (node.status, node.events[-1].message) == ("disconnected", "Node heartbeat missed")
    assert disconnected_too_long(world.snapshot) == []
    world.put_alloc(make_alloc(job=job, client_status="lost", desired_status="stop"))
    assert disconnected_too_long(world.snapshot) == [MarkSilent("node-1", "down")]
