"""Clusters of many members on a virtual network: who is gone is found, nobody else is, and all agree in the end."""

import pytest
from tests.gossip_world import GossipWorld

from lepa.gossip import internal_queries as internal
from lepa.gossip import serf_messages as s
from lepa.gossip.profile import LAN, WAN
from lepa.gossip.serf import EventHeard

DETECTED_S = 7.0
"""A killed member of three has to be known by the others within this on the LAN profile."""
OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def cluster(count: int, seed: int = 1, **settings: object) -> GossipWorld:
    world = GossipWorld(seed, **settings)  # type: ignore[arg-type]
    for number in range(count):
        world.start(f"n{number}")
    world.join_all()
    everybody = {f"n{number}": "alive" for number in range(count)}
    world.run_until(lambda: world.agreed(everybody), 30.0)
    return world


def all_fail(world: GossipWorld, *names: str) -> bool:
    return all(host.statuses()[name] == "failed" for host in world.hosts.values() for name in names)


@pytest.mark.parametrize("hundred", range(4))
def test_one_of_three_that_is_killed_is_found_in_time(hundred: int) -> None:
    slowest = 0.0
    for seed in range(50 * hundred, 50 * hundred + 50):
        world = cluster(3, seed)
        world.run(5.0 + seed % 50 * 0.05)
        world.kill("n2")
        slowest = max(slowest, world.run_until(lambda world=world: all_fail(world, "n2"), 10.0))
        assert slowest <= DETECTED_S, f"seed {seed}: {slowest} s"


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_accused_while_one_member_stalls_2_s_of_every_10(seed: int) -> None:
    world = cluster(3, seed)
    for _ in range(60):
        world.stall("n1", 2.0)
        world.run(10.0)
    assert world.failures() == []
    assert world.hosts["n0"].serf.membership.counts["probes_failed"] > 0, "the stalls were not noticed at all"


def test_packet_loss_makes_nobody_fail_and_the_dead_are_found_all_the_same() -> None:
    world = cluster(25, seed=3, loss=0.05)
    world.run(60.0)
    assert world.failures() == []
    for name in ("n3", "n8", "n20"):
        world.kill(name)
    least, most, _ = LAN.suspicion_bounds(25)
    taken = world.run_until(lambda: all_fail(world, "n3", "n8", "n20"), most + 10.0)
    assert taken < least + 15.0
    assert {name for _, _, name in world.failures()} == {"n3", "n8", "n20"}


def test_the_wan_profile_takes_its_time() -> None:
    world = GossipWorld(5, profile=WAN, delay_s=0.4)
    for name in "abc":
        world.start(name)
    world.join_all()
    world.run_until(lambda: world.agreed(dict.fromkeys("abc", "alive")), 20.0)
    world.kill("c")
    taken = world.run_until(lambda: all_fail(world, "c"), 60.0)
    assert 30.0 < taken < 50.0


def test_whoever_leaves_is_left_and_not_failed() -> None:
    world = cluster(5, seed=4)
    world.act("n4", lambda serf: serf.intend_to_leave(world.now))
    world.run_until(lambda: not world.hosts["n4"].serf.is_telling_intent, 5.0)
    world.act("n4", lambda serf: serf.leave(world.now))
    world.run_until(lambda: not world.hosts["n4"].serf.membership.is_telling_farewell, 5.0)
    world.kill("n4")
    world.run(3.0)
    assert {host.statuses()["n4"] for host in world.hosts.values()} == {"left"}
    assert world.failures() == []


def test_a_member_that_left_may_come_back_elsewhere() -> None:
    world = cluster(3, seed=6)
    world.act("n2", lambda serf: serf.intend_to_leave(world.now))
    world.run(2.0)
    world.act("n2", lambda serf: serf.leave(world.now))
    world.run(3.0)
    world.kill("n2")
    world.start("n2", elsewhere=True)
    world.join("n2", "n0")
    world.run_until(lambda: world.agreed(dict.fromkeys(("n0", "n1", "n2"), "alive")), 10.0)
    addresses = {host.serf.members.get("n2").addr for host in world.hosts.values()}  # type: ignore[union-attr]
    assert addresses == {bytes([10, 0, 0, 4])}


def test_a_member_that_was_killed_comes_back_under_its_name() -> None:
    world = cluster(4, seed=7)
    world.kill("n3")
    world.run_until(lambda: all_fail(world, "n3"), 30.0)
    world.start("n3")
    world.join("n3", "n1")
    world.run_until(lambda: world.agreed({f"n{i}": "alive" for i in range(4)}), 10.0)


def test_both_halves_of_a_parted_cluster_find_each_other_again() -> None:
    world = cluster(6, seed=8)
    one, other = ["n0", "n1", "n2"], ["n3", "n4", "n5"]
    for near in one:
        for far in other:
            world.cut(near, far)
    world.run_until(lambda: all(world.hosts[n].statuses()[f] == "failed" for n in one for f in other), 60.0)
    world.cuts.clear()
    world.run_until(lambda: world.agreed({f"n{i}": "alive" for i in range(6)}), 120.0)


def test_a_member_that_hears_but_is_not_heard_is_found() -> None:
    """It pings others all the time; nothing that is sent to it arrives, so it answers nobody."""
    world = cluster(3, seed=9)
    world.cuts |= {("n0", "n2"), ("n1", "n2")}
    world.run_until(
        lambda: world.hosts["n0"].statuses()["n2"] == "failed" and world.hosts["n1"].statuses()["n2"] == "failed", 30.0
    )


def test_one_cut_link_makes_nobody_fail() -> None:
    """Others ping for those who cannot reach each other."""
    world = cluster(5, seed=10)
    world.cut("n0", "n1")
    world.run(120.0)
    assert world.failures() == []


def test_an_event_reaches_everybody_once() -> None:
    world = cluster(12, seed=11, loss=0.1)
    world.act("n5", lambda serf: serf.tell("deploy", b"abc", world.now))
    world.run(10.0)
    for host in world.hosts.values():
        heard = [event.event for _, event in host.events if isinstance(event, EventHeard)]
        assert [(event.name, event.payload) for event in heard] == [("deploy", b"abc")]


def test_everybody_answers_a_question() -> None:
    world = cluster(6, seed=12)
    pending = world.hosts["n0"].serf.ask("who", b"", world.now, want_acks=True, timeout_s=3.0)
    world.act("n0", lambda serf: None)
    world.run(4.0)
    assert pending.acks == set(world.hosts)


def test_keys_are_rotated_while_gossip_goes_on() -> None:
    world = GossipWorld(13)
    for name in "abc":
        world.start(name, keys=(OLD,))
    world.join_all()
    everybody = dict.fromkeys("abc", "alive")
    world.run_until(lambda: world.agreed(everybody), 10.0)
    for question, key in ((internal.INSTALL_KEY, NEW), (internal.USE_KEY, NEW), (internal.REMOVE_KEY, OLD)):
        payload = s.encode(s.KeyRequest(key))
        pending = world.hosts["b"].serf.ask(question, payload, world.now)
        world.act("b", lambda serf: None)
        world.run(5.0)
        assert {s.decode(answer) for answer in pending.answers.values()} == {s.KeyResponse(True)}
        assert len(pending.answers) == 3
    assert {host.serf.framing.keyring.keys for host in world.hosts.values()} == {(NEW,)}  # type: ignore[union-attr]
    world.run(30.0)
    assert world.failures() == []
    assert all(host.serf.counts["dropped_key"] == 0 for host in world.hosts.values())


def test_a_member_with_another_key_is_never_heard() -> None:
    world = GossipWorld(14)
    world.start("a", keys=(OLD,))
    world.start("b", keys=(OLD,))
    world.join("b", "a")
    world.start("stranger", keys=(NEW,))
    alive = world.hosts["stranger"].serf.membership.broadcasts.take(1000, 4, 10)
    stranger = world.hosts["stranger"].serf.framing.packet(alive, bytes(12), crc=False)
    world.run(2.0)
    world.act("a", lambda serf: serf.packet(stranger, (bytes([10, 0, 0, 3]), 7946), world.now))
    world.run(10.0)
    assert "stranger" not in world.hosts["a"].statuses()
    assert world.hosts["a"].serf.counts["dropped_key"] == 1


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> str:
        world = cluster(5, seed, loss=0.1)
        world.kill("n4")
        world.run(20.0)
        return world.trace

    assert trace(15) == trace(15)
    assert trace(15) != trace(16)
