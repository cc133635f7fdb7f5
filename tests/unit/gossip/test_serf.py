"""One member of a Serf cluster and what it is told.

Modules: lepa.gossip.serf, lepa.gossip.serf_members, lepa.gossip.lamport, lepa.gossip.queries,
lepa.gossip.internal_queries.
"""

import pytest

from lepa.gossip import internal_queries as internal
from lepa.gossip import messages as w
from lepa.gossip import serf_messages as s
from lepa.gossip.keyring import KEYS_MAX, Keyring
from lepa.gossip.lamport import TIME_END
from lepa.gossip.orders import SendPacket
from lepa.gossip.packets import Framing
from lepa.gossip.serf import EventHeard, KeysChanged, QueryHeard, Serf, Settings
from lepa.gossip.serf_members import MemberEvent
from lepa.gossip.tags import encode_tags
from lepa.kit.sources import SeededRandom

VERSIONS = bytes([1, 5, 2, 2, 5, 5])
ME, A = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
PORT = 7946
KEY = bytes(range(16))


def member(*keys: bytes) -> Serf:
    settings = Settings("me", ME, PORT, {"role": "nomad"})
    made = Serf(settings, Framing(Keyring(keys) if keys else None), SeededRandom(1), 0.0)
    made.poll()
    made.events()
    return made


def tell(made: Serf, *said: w.Message | bytes, now: float = 0.0) -> None:
    parts = [w.encode(each) if not isinstance(each, bytes) else bytes([w.USER]) + each for each in said]
    made.packet(made.framing.packet(parts, bytes(12), crc=True), (A, PORT), now)


def joined(*names: str) -> Serf:
    made = member()
    for number, name in enumerate(names, 2):
        meta = encode_tags({"role": name})
        tell(made, w.Alive(1, name, bytes([10, 0, 0, number]), PORT, meta, VERSIONS))
    return made


def statuses(made: Serf) -> dict[str, str]:
    return {each.name: each.status for each in made.members.all()}


def kinds(made: Serf) -> list[str]:
    return [event.kind for event in made.events() if isinstance(event, MemberEvent)]


def answers(made: Serf) -> list[s.QueryResponse]:
    found = []
    for order in made.poll():
        if isinstance(order, SendPacket) and order.parts[0][:2] == bytes([w.USER, s.QUERY_RESPONSE]):
            response = s.decode(order.parts[0][1:])
            assert isinstance(response, s.QueryResponse)
            found.append(response)
    return found


def query(name: str, payload: bytes = b"", **fields: object) -> s.Query:
    whole = s.Query(5, 77, A, PORT, "a", (), 0, 0, 10**9, name, payload)
    return whole._replace(**fields)  # type: ignore[arg-type]


def test_left_by_will_or_failed() -> None:
    made = joined("a", "b")
    tell(made, s.encode(s.LeaveIntent(3, "a")))
    assert statuses(made)["a"] == "leaving"
    tell(made, w.Dead(1, "a", "a"), w.Dead(1, "b", "me"))
    assert statuses(made) == {"me": "alive", "a": "left", "b": "failed"}
    assert kinds(made) == ["join", "join", "leave", "failed"]


def test_a_word_that_comes_late_counts_all_the_same() -> None:
    """Packets are read in any order: who is dead before its leave intent is read has left in the end."""
    made = joined("a")
    tell(made, w.Dead(1, "a", "a"), s.encode(s.LeaveIntent(3, "a")))
    assert statuses(made)["a"] == "left"


def test_an_old_intent_is_nothing() -> None:
    made = joined("a")
    tell(made, s.encode(s.JoinIntent(9, "a")), s.encode(s.LeaveIntent(8, "a")))
    assert statuses(made)["a"] == "alive"
    tell(made, s.encode(s.LeaveIntent(10, "a")), s.encode(s.JoinIntent(11, "a")))
    assert statuses(made)["a"] == "alive", "it stays after all"
    assert made.clock.time == 12


def test_an_intent_waits_for_its_member() -> None:
    made = member()
    tell(made, s.encode(s.LeaveIntent(4, "a")))
    tell(made, w.Alive(1, "a", A, PORT, b"", VERSIONS))
    assert statuses(made)["a"] == "leaving"


def test_who_is_said_to_leave_and_does_not_says_so() -> None:
    made = joined("a")
    tell(made, s.encode(s.LeaveIntent(20, "me")))
    assert statuses(made)["me"] == "alive"
    assert made.members.ltimes()["me"] == 22, "its join is later than the leave that was said"


def test_a_clock_cannot_be_driven_to_its_end() -> None:
    made = joined("a")
    tell(made, s.encode(s.LeaveIntent(TIME_END, "a")), s.encode(s.UserEvent(TIME_END + 5, "x")))
    assert made.clock.time < 100
    assert made.event_clock.time == 1


def test_those_who_failed_are_sent_away_or_forgotten() -> None:
    made = joined("a", "b")
    tell(made, w.Dead(1, "a", "me"), w.Dead(1, "b", "me"))
    assert made.send_away("a", 1.0)
    assert made.send_away("b", 1.0, prune=True)
    assert not made.send_away("nobody", 1.0)
    assert not made.send_away("me", 1.0)
    assert statuses(made) == {"me": "alive", "a": "left"}
    assert kinds(made)[-2:] == ["leave", "reap"]


def test_who_is_gone_for_long_is_forgotten() -> None:
    made = joined("a")
    tell(made, w.Dead(1, "a", "me"))
    made.tick(24 * 3600.0)
    assert "a" in statuses(made)
    made.tick(25 * 3600.0)
    assert statuses(made) == {"me": "alive"}


def test_an_event_is_heard_once_and_an_old_one_never() -> None:
    made = joined("a")
    event = s.encode(s.UserEvent(600, "deploy", b"1"))
    tell(made, event, event, s.encode(s.UserEvent(600, "deploy", b"2")), s.encode(s.UserEvent(1, "old")))
    heard = [event.event.payload for event in made.events() if isinstance(event, EventHeard)]
    assert heard == [b"1", b"2"]
    with pytest.raises(ValueError, match="at most 512 bytes"):
        made.tell("big", bytes(600), 0.0)


def test_questions_are_told_and_answered() -> None:
    made = joined("a")
    tell(made, s.encode(query("load", b"15m", flags=s.ACK_FLAG)), s.encode(query("load", b"15m")))
    assert answers(made) == [s.QueryResponse(5, 77, "me", s.ACK_FLAG)]
    (heard,) = (event.query for event in made.events() if isinstance(event, QueryHeard))
    made.answer(heard, b"0.7")
    assert answers(made) == [s.QueryResponse(5, 77, "me", 0, b"0.7")]
    with pytest.raises(ValueError, match="at most 1024 bytes"):
        made.answer(heard, bytes(2000))


def test_a_question_for_others_is_only_passed_on() -> None:
    made = joined("a")
    tell(made, s.encode(query("load", filters=(s.nodes_filter(("a",)),), flags=s.ACK_FLAG)))
    assert answers(made) == []
    assert not [event for event in made.events() if isinstance(event, QueryHeard)]


def test_an_answer_goes_a_second_way_when_it_is_asked_for() -> None:
    made = joined("a", "b")
    tell(made, s.encode(query("load", flags=s.ACK_FLAG, relay_factor=1)))
    relayed = [order for order in made.poll() if isinstance(order, SendPacket) and order.parts[0][1] == s.RELAY]
    assert [order.to[0] for order in relayed] == [bytes([10, 0, 0, 3])], "through b, not the asker"
    to, inner = s.decode_relay(relayed[0].parts[0][1:])
    assert (to.addr, to.name) == (A, "a")
    tell(made, s.encode_relay(s.Destination(A, PORT, "a"), inner))
    assert [response.source for response in answers(made)] == ["me"], "what others relay through it is passed on"


def test_keys_are_changed_by_question_and_never_the_one_in_use() -> None:
    made = member(KEY)
    tell(made, w.Alive(1, "a", A, PORT, b"", VERSIONS))

    def asked(name: str, key: bytes, number: int) -> s.KeyResponse:
        tell(made, s.encode(query(name, s.encode(s.KeyRequest(key)), id=number)))
        (response,) = answers(made)
        found = s.decode(response.payload)
        assert isinstance(found, s.KeyResponse)
        return found

    other = bytes(range(32))
    assert asked(internal.INSTALL_KEY, other, 1).result
    assert any(isinstance(event, KeysChanged) for event in made.events())
    assert asked(internal.INSTALL_KEY, b"short", 2).message == "a gossip key has 16, 24 or 32 bytes, not 5"
    assert asked(internal.USE_KEY, bytes(24), 3).message == "requested key is not in the keyring"
    assert asked(internal.REMOVE_KEY, KEY, 4).message == "removing the primary key is not allowed"
    assert asked(internal.USE_KEY, other, 5).result
    assert asked(internal.REMOVE_KEY, KEY, 6).result
    assert len(asked(internal.LIST_KEYS, b"", 7).keys) == 1
    results = [asked(internal.INSTALL_KEY, bytes([n]) * 16, 10 + n) for n in range(1, KEYS_MAX + 1)]
    assert [result.result for result in results].count(False) == 1
    assert "remove one first" in results[-1].message


def test_without_encryption_there_are_no_keys_to_change() -> None:
    made = joined("a")
    tell(made, s.encode(query(internal.LIST_KEYS)))
    (response,) = answers(made)
    assert s.decode(response.payload) == s.KeyResponse(False, internal.NO_KEYRING)


def test_others_may_ask_who_owns_a_name() -> None:
    made = joined("a")
    tell(made, s.encode(query(internal.CONFLICT, b"a", id=1)), s.encode(query(internal.CONFLICT, b"me", id=2)))
    (response,) = answers(made)
    assert response.payload[0] == s.CONFLICT_RESPONSE
    assert b"10" not in response.payload
    assert A in response.payload
