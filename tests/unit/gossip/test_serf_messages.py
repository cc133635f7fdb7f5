"""Serf's messages as real agents sent them."""

import pytest

from lepa.gossip import serf_messages as s
from lepa.gossip.errors import Malformed
from lepa.gossip.queries import is_meant

LOCALHOST = bytes([127, 0, 0, 1])
ANSWER = bytes.fromhex("0585a5466c61677301a446726f6da5627261766fa24944ce45069deca54c54696d6501a75061796c6f6164c0")
SEEN = {
    "leave": (
        bytes.fromhex("0083a54c54696d6502a44e6f6465a7636861726c6965a55072756e65c2"),
        s.LeaveIntent(2, "charlie", False),
    ),
    "join": (bytes.fromhex("0182a54c54696d6501a44e6f6465a7636861726c6965"), s.JoinIntent(1, "charlie")),
    "event": (
        bytes.fromhex("0384a24343c3a54c54696d6501a44e616d65a66465706c6f79a75061796c6f6164a6616263313233"),
        s.UserEvent(1, "deploy", b"abc123", True),
    ),
    "answer": (ANSWER, s.QueryResponse(1, 0x45069DEC, "bravo", 1, b"")),
    "query": (
        bytes.fromhex(
            "048ba441646472a47f000001a746696c7465727392a80091a5627261766fb60182a445787072a56e6f6d6164a3"
            "546167a4726f6c65a5466c61677301a24944ce45069deca54c54696d6501a44e616d65a46c6f6164a75061796c6f"
            "6164a331356da4506f7274cd461aab52656c6179466163746f7201aa536f757263654e6f6465a5616c706861a754"
            "696d656f7574cebebc2000"
        ),
        s.Query(
            1,
            0x45069DEC,
            LOCALHOST,
            17946,
            "alpha",
            (s.nodes_filter(("bravo",)), s.tag_filter("role", "nomad")),
            1,
            1,
            3_200_000_000,
            "load",
            b"15m",
        ),
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_real_agents_sent_is_read_and_written_byte_for_byte(name: str) -> None:
    data, message = SEEN[name]
    assert s.decode(data) == message
    assert s.encode(message) == data  # type: ignore[arg-type]


def test_a_relayed_answer() -> None:
    data = bytes.fromhex(
        "0982a8446573744164647283a24950a47f000001a4506f7274cd461aa45a6f6e65a0a8446573744e616d65a5616c706861"
    )
    to = s.Destination(LOCALHOST, 17946, "alpha")
    assert s.decode_relay(data + ANSWER) == (to, ANSWER)
    assert s.encode_relay(to, ANSWER) == data + ANSWER


def test_a_state_of_512_empty_slots() -> None:
    fresh = s.SerfState(1, {"a": 1}, (), 1, (), 1)
    data = s.encode(fresh)
    assert s.decode(data) == fresh
    assert b"\xa6Events\xc0" in data
    slots = data.replace(b"\xa6Events\xc0", b"\xa6Events\xdc\x02\x00" + 512 * b"\xc0")
    assert s.decode(slots) == fresh


def test_events_of_a_state() -> None:
    state = s.SerfState(4, {}, ("gone",), 3, (s.EventsAt(2, (s.NamedPayload("deploy", b"1"),)),), 1)
    assert s.decode(s.encode(state)) == state


def test_filters() -> None:
    query = SEEN["query"][1]
    assert isinstance(query, s.Query)
    assert is_meant(query, "bravo", {"role": "nomad"})
    assert not is_meant(query, "bravo", {"role": "web"})
    assert not is_meant(query, "alpha", {"role": "nomad"})
    assert is_meant(query._replace(filters=()), "anybody", {})
    for broken in (b"", b"\x07", s.tag_filter("role", "("), s.tag_filter("role", "a" * 1000)):
        with pytest.raises(Malformed):
            is_meant(query._replace(filters=(broken,)), "bravo", {})
