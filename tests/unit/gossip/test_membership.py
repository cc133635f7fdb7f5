"""One member and what it is told."""

from lepa.gossip import messages as w
from lepa.gossip.membership import Membership
from lepa.gossip.messages import ALIVE_STATE, DEAD_STATE, LEFT_STATE, SUSPECT_STATE, NodeState
from lepa.gossip.orders import Changed, Conflict, ExchangeStates, Gone, Joined, PingByStream, SendPacket
from lepa.gossip.profile import LAN
from lepa.kit.sources import SeededRandom

VERSIONS = bytes([1, 5, 2, 2, 5, 5])
ME, A, B = (bytes([10, 0, 0, n]) for n in (1, 2, 3))
PORT = 7946


def member(**settings: object) -> Membership:
    me = NodeState("me", ME, PORT, b"", 1, ALIVE_STATE, VERSIONS)
    made = Membership(me, LAN, SeededRandom(1), 0.0, room=1300, **settings)  # type: ignore[arg-type]
    made.poll()
    return made


def alive(
    name: str = "a", addr: bytes = A, incarnation: int = 1, meta: bytes = b"", versions: bytes = VERSIONS
) -> w.Alive:
    return w.Alive(incarnation, name, addr, PORT, meta, versions)


def tell(made: Membership, *said: w.Message, now: float = 0.0, source: bytes = A) -> None:
    for message in said:
        made.received(w.encode(message), (source, PORT), now)


def news(made: Membership) -> list[w.Message]:
    """What it would pass on."""
    return [w.decode(data) for data in made.broadcasts.take(10_000, 100, 100)]


def sent(made: Membership) -> list[tuple[bytes, w.Message]]:
    packets = [order for order in made.poll() if isinstance(order, SendPacket)]
    return [(order.to[0], w.decode(order.parts[0])) for order in packets]


def test_a_member_joins_changes_and_is_passed_on() -> None:
    made = member()
    tell(made, alive(), alive(meta=b"x", incarnation=2), alive(meta=b"y", incarnation=1))
    assert [type(event) for event in made.events()] == [Joined, Changed]
    assert made.nodes["a"].meta == b"x", "an older word does not count"
    assert alive(meta=b"x", incarnation=2) in news(made)


def test_an_alive_without_a_usable_range_or_address_is_ignored() -> None:
    made = member()
    tell(made, alive(versions=bytes([0, 0, 2, 2, 5, 5])), alive(versions=bytes([3, 1, 2, 2, 5, 5])), alive(addr=b""))
    assert made.nodes.keys() == {"me"}
    tell(made, alive(versions=b""))
    assert "a" in made.nodes, "very old peers say no versions"


def test_who_may_not_join_does_not() -> None:
    made = member(admit=lambda node: "no" if node.meta == b"foreign" else "")
    tell(made, alive(meta=b"foreign"))
    assert made.nodes.keys() == {"me"}
    state = w.PushPull(True, (NodeState("a", A, PORT, b"foreign", 1, ALIVE_STATE, VERSIONS),))
    assert made.refusal(state) == "no"
    assert made.refusal(state._replace(join=False)) == "", "only joining is refused as a whole"


def test_states_that_share_no_protocol_are_refused() -> None:
    odd = NodeState("a", A, PORT, b"", 1, ALIVE_STATE, bytes([4, 5, 4, 2, 5, 5]))
    assert member().refusal(w.PushPull(False, (odd,))) == "no protocol version is understood by all members"


def test_what_is_said_of_oneself_is_refuted_with_a_newer_word() -> None:
    made = member()
    tell(made, w.Suspect(1, "me", "a"))
    assert (made.me.incarnation, made.health) == (2, 1)
    tell(made, w.Dead(7, "me", "a"))
    assert made.me.incarnation == 8
    tell(made, alive("me", ME, incarnation=9, meta=b"not mine"))
    assert made.me.incarnation == 10
    assert made.me.state == ALIVE_STATE
    tell(made, w.Suspect(3, "me", "a"))
    assert made.me.incarnation == 10, "an old accusation is nothing"
    assert w.Alive(10, "me", ME, PORT, b"", VERSIONS) in news(made)


def test_a_name_at_another_address_is_a_conflict_until_its_owner_has_left() -> None:
    made = member()
    tell(made, alive(), alive(addr=B, incarnation=5), alive("me", B, incarnation=5))
    conflicts = [event for event in made.events() if isinstance(event, Conflict)]
    assert conflicts == [Conflict("a", (A, PORT), (B, PORT)), Conflict("me", (ME, PORT), (B, PORT))]
    tell(made, w.Dead(1, "a", "a"))
    tell(made, alive(addr=B, incarnation=1))
    assert made.nodes["a"].addr == B


def test_a_suspect_has_four_seconds_to_answer_in_a_small_cluster() -> None:
    made = member()
    tell(made, alive(), alive("b", B))
    tell(made, w.Suspect(1, "a", "b"), now=1.0)
    assert made.nodes["a"].state == SUSPECT_STATE
    made.events()
    while made.wake_at() < 4.99:
        made.tick(made.wake_at())
        tell(
            made, *(w.Ack(message.seq) for _, message in sent(made) if isinstance(message, w.Ping)), now=made.wake_at()
        )
    assert made.nodes["a"].state == SUSPECT_STATE
    made.tick(5.0)
    assert made.nodes["a"].state == DEAD_STATE
    assert [type(event) for event in made.events() if not isinstance(event, Joined)][-1:] == [Gone]
    tell(made, alive(incarnation=1), now=5.1)
    assert made.nodes["a"].state == DEAD_STATE, "only a newer word of its own brings it back"
    tell(made, alive(incarnation=2), now=5.2)
    assert made.nodes["a"].state == ALIVE_STATE


def test_who_leaves_by_itself_has_left() -> None:
    made = member()
    tell(made, alive(), w.Dead(1, "a", "a"))
    assert made.nodes["a"].state == LEFT_STATE


def test_hearsay_of_death_is_only_suspicion() -> None:
    made = member()
    tell(made, alive())
    made.merge(w.PushPull(False, (NodeState("a", A, PORT, b"", 1, DEAD_STATE, VERSIONS),)), 0.0)
    assert made.nodes["a"].state == SUSPECT_STATE


def test_pings_are_answered_where_they_say() -> None:
    made = member()
    tell(made, w.Ping(7, "me"), w.Ping(8, ""), w.Ping(9, "another"), w.Ping(10, "me", B, 5))
    orders = [order for order in made.poll() if isinstance(order, SendPacket)]
    assert [(order.to, w.decode(order.parts[0])) for order in orders] == [
        ((A, PORT), w.Ack(7)),
        ((A, PORT), w.Ack(8)),
        ((B, 5), w.Ack(10)),
    ]


def test_a_ping_for_somebody_else_is_passed_on_and_its_answer_back() -> None:
    made = member()
    tell(made, w.IndirectPing(77, B, PORT, "b", True, A, PORT, "a"))
    ((to, ping),) = sent(made)
    assert to == B
    assert isinstance(ping, w.Ping)
    assert ping.node == "b"
    tell(made, w.Ack(ping.seq, b"place"), source=B)
    assert sent(made) == [(A, w.Ack(77))]


def test_the_asker_is_told_in_time_that_there_is_no_answer() -> None:
    made = member()
    tell(made, w.IndirectPing(77, B, PORT, "b", True), w.IndirectPing(78, B, PORT, "b", False))
    made.poll()
    made.tick(LAN.probe_timeout_s + 0.01)
    assert (A, w.Nack(77)) in sent(made)
    assert (A, w.Nack(78)) not in sent(made)


def run_probe(made: Membership, until: float) -> list[object]:
    orders: list[object] = []
    while made.wake_at() <= until:
        made.tick(made.wake_at())
        orders += made.poll()
    return orders


def until_stream_ping(made: Membership) -> tuple[list[object], float]:
    """All orders until somebody is pinged over a stream, and when that was."""
    orders: list[object] = []
    while True:
        at = made.wake_at()
        assert at < 5.0
        made.tick(at)
        orders += made.poll()
        if any(isinstance(order, PingByStream) for order in orders):
            return orders, at


def test_a_silent_member_is_asked_for_by_others_and_over_a_stream_before_it_is_suspected() -> None:
    made = member()
    tell(made, alive(), alive("b", B))
    made.nodes["b"].heard_at = 100.0  # so that the other one is probed
    orders, at = until_stream_ping(made)
    asked = [order for order in orders if isinstance(order, SendPacket) and order.parts[0][0] == w.INDIRECT_PING]
    assert [order.to[0] for order in asked] == [B]
    assert [order.to[0] for order in orders if isinstance(order, PingByStream)] == [A]
    run_probe(made, at + 0.55)
    assert made.nodes["a"].state == SUSPECT_STATE
    assert made.health == 1, "the helper did not answer either: perhaps it is oneself"


def test_an_answer_over_a_stream_is_an_answer() -> None:
    made = member()
    tell(made, alive())
    orders, at = until_stream_ping(made)
    (ping,) = (order for order in orders if isinstance(order, PingByStream))
    made.stream_acked(ping.seq, at + 0.1)
    run_probe(made, at + 0.55)
    assert made.nodes["a"].state == ALIVE_STATE


def test_a_late_tick_accuses_nobody() -> None:
    made = member()
    tell(made, alive())
    run_probe(made, 1.0)
    made.tick(made.wake_at() + 3.0)
    assert made.nodes["a"].state == ALIVE_STATE
    assert made.health == 1


def test_the_dead_are_told_so_for_a_while_and_then_forgotten() -> None:
    made = member()
    tell(made, alive(), w.Dead(1, "a", "b"))
    orders = run_probe(made, 20.0)
    assert any(isinstance(order, SendPacket) and order.to[0] == A for order in orders)
    run_probe(made, LAN.gossip_to_dead_s + 2.0)
    assert made.nodes.keys() == {"me"}


def test_states_are_exchanged_now_and_then() -> None:
    made = member()
    tell(made, alive(incarnation=1))
    orders = run_probe(made, 0.9)
    assert not any(isinstance(order, ExchangeStates) for order in orders)
    made.nodes["a"].heard_at = made.nodes["a"].probed_at = 1e9
    while not (found := [order for order in run_probe(made, made.wake_at()) if isinstance(order, ExchangeStates)]):
        tell(made, alive(incarnation=made.nodes["a"].incarnation + 1), now=made.wake_at())
        assert made.wake_at() < 31.0
    assert found == [ExchangeStates((A, PORT), "a")]


def test_whoever_leaves_says_so_and_answers_no_accusation() -> None:
    made = member()
    tell(made, alive())
    made.leave(1.0)
    assert made.is_telling_farewell
    assert w.Dead(1, "me", "me") in news(made)
    tell(made, w.Suspect(5, "me", "a"), alive("me", ME, incarnation=9))
    assert made.me.state == LEFT_STATE
    assert made.size() == 1
