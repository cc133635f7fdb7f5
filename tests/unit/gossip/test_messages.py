"""Bytes that real agents sent, read and written again; what peers get wrong."""

import pytest

from lepa.gossip import messages as w
from lepa.gossip.coordinates import Coordinate, encode_ping
from lepa.gossip.errors import Malformed
from lepa.gossip.keyring import Keyring, key_bytes
from lepa.gossip.packets import Framing
from lepa.gossip.streams import StreamReader
from lepa.gossip.streams import read as read_stream
from lepa.gossip.tags import decode_tags

LOCALHOST = bytes([127, 0, 0, 1])
PING = bytes.fromhex(
    "0085a44e6f6465a5616c706861a55365714e6f01aa536f7572636541646472a47f000001aa536f757263654e6f64"
    "65a7636861726c6965aa536f75726365506f7274cd461c"
)
ACK = bytes.fromhex(
    "0282a75061796c6f6164da00820184aa41646a7573746d656e74cb0000000000000000a54572726f72cb3ff80000"
    "00000000a6486569676874cb3ee4f8b588e368f1a356656398cb0000000000000000cb0000000000000000cb0000"
    "000000000000cb0000000000000000cb0000000000000000cb0000000000000000cb0000000000000000cb000000"
    "0000000000a55365714e6f01"
)
INDIRECT = bytes.fromhex(
    "0188a44e61636bc3a44e6f6465a7636861726c6965a4506f7274cd461ca55365714e6f11aa536f75726365416464"
    "72a47f000001aa536f757263654e6f6465a5627261766faa536f75726365506f7274cd461ba6546172676574a47f"
    "000001"
)
NACK = bytes.fromhex("0b81a55365714e6f15")
SUSPECT = bytes.fromhex("0383a446726f6da5627261766fab496e6361726e6174696f6e01a44e6f6465a7636861726c6965")
COMPOUND = bytes.fromhex(
    "0cbfe6279507040"
    "06a0061004a0017"
    "0486a441646472a47f000001ab496e6361726e6174696f6e01a44d657461da002bff84a6657870656374a133a472"
    "6f6c65a56e6f6d6164a6726567696f6ea6676c6f62616ca26463a3646331a44e6f6465a5627261766fa4506f7274"
    "cd461ba356736ea6010502020505"
    "0486a441646472a47f000001ab496e6361726e6174696f6e01a44d657461da0022ff83a26463a3646331a4726f6c"
    "65a56e6f6d6164a6726567696f6ea6676c6f62616ca44e6f6465a5616c706861a4506f7274cd461aa356736ea601"
    "0502020505"
    "0486a441646472a47f000001ab496e6361726e6174696f6e01a44d657461abff81a4726f6c65a3776562a44e6f64"
    "65a7636861726c6965a4506f7274cd461ca356736ea6010502020505"
    "080182a54c54696d6501a44e6f6465a7636861726c6965"
)
SEALED = bytes.fromhex(
    "01b76c73e15358fe9c133e50beb3be58ef21ff0e55c19575fb880b385d94681b498af04a9c553c443406d77711ce"
    "cbc8de83f84a649c4691f86e9e1a4a5069141ef773f37078db7fe3d05d835791b08060dfd3a4a9df654ee9d188db"
    "3810a2985f84ac18506a03117fa6181ad888a0c7d3b2837d96cf57c359376803277348e8f2adb477933020d4c45d"
    "0f886b0d67bcff5b00800013fa50e640d3b5626c840e7f05c36d0fbe6eaceb8aa6dcd488e56eac42fe5d51a941e4"
    "1ecbb920ad810147da28a36b57b575ed76cd046dcbe02c0f12d79f6e662b40ce0123efa81b1d4be38fa6e4e584b6"
    "7428b5e45e636a2e962c0e99cb51f264f39cee68ea0d400c40837393027e6cf5c4f90f37da47012bfc07df09f881"
    "dad5781d59bd"
)
KEY = "Iucpgm6bFoa2uWi9kj/aTIQN7PZHbK4HRYw07h+iQr4="
COMPRESSED_ACK = bytes.fromhex(
    "0982a4416c676f00a3427566da00620005083a05254c1e366fc290d10640500042aa82905153670e9d3665dcd059"
    "06a0a3c78ea58ac891f346ceb21ff83e763485a44c9a336836fa2087af16a27168e28db252660c268e2a3b020d3a"
    "5465d18f473d26151a9469d35253cac471f2264040"
)

SEEN = {
    "ping": (PING, w.Ping(1, "alpha", LOCALHOST, 17948, "charlie")),
    "ack": (ACK, w.Ack(1, encode_ping(Coordinate()))),
    "indirect": (INDIRECT, w.IndirectPing(17, LOCALHOST, 17948, "charlie", True, LOCALHOST, 17947, "bravo")),
    "nack": (NACK, w.Nack(21)),
    "suspect": (SUSPECT, w.Suspect(1, "charlie", "bravo")),
    "dead": (b"\x05" + SUSPECT[1:], w.Dead(1, "charlie", "bravo")),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_real_agents_sent_is_read_and_written_byte_for_byte(name: str) -> None:
    data, message = SEEN[name]
    assert w.decode(data) == message
    assert w.encode(message) == data


def test_a_compound_with_a_crc_is_unfolded() -> None:
    parts = Framing().open_packet(COMPOUND)
    alive = [w.decode(part) for part in parts]
    assert [message.node for message in alive[:3]] == ["bravo", "alpha", "charlie"]  # type: ignore[union-attr]
    assert decode_tags(alive[0].meta) == {  # type: ignore[union-attr]
        "expect": "3",
        "role": "nomad",
        "region": "global",
        "dc": "dc1",
    }
    assert alive[2].versions == bytes([1, 5, 2, 2, 5, 5])  # type: ignore[union-attr]
    assert isinstance(alive[3], w.UserMessage)
    assert Framing().packet(parts[:2], b"", crc=True)[:1] == b"\x0c"
    assert Framing().packet(parts, b"", crc=True) == COMPOUND


def test_a_sealed_packet_is_opened_with_any_installed_key() -> None:
    keyring = Keyring([bytes(16), key_bytes(KEY)])
    parts = Framing(keyring).open_packet(SEALED)
    assert [len(part) for part in parts] == [106, 97, 74]


def test_a_compressed_message_is_unpacked() -> None:
    assert Framing().open_packet(COMPRESSED_ACK) == [ACK]


def test_a_changed_byte_is_noticed() -> None:
    spoilt = COMPOUND[:-1] + b"x"
    with pytest.raises(Malformed, match="crc"):
        Framing().open_packet(spoilt)
    with pytest.raises(Malformed):
        Framing(Keyring([key_bytes(KEY)])).open_packet(SEALED[:-1] + b"x")


def test_the_whole_parts_of_a_compound_that_was_cut_short_are_used() -> None:
    without_crc = COMPOUND[5:]
    assert len(Framing().open_packet(without_crc[:-3])) == 3


def test_versions_are_six_or_none() -> None:
    """A list of three crashed a real agent (memberlist pull request 368)."""
    alive = w.Alive(1, "n", LOCALHOST, 7946, b"", bytes([1, 5, 2]))
    with pytest.raises(Malformed, match="versions"):
        w.decode(w.encode(alive))


def test_keys_that_are_missing_have_no_value_and_others_are_skipped() -> None:
    assert w.decode(bytes.fromhex("0082a55365714e6f07a3666f6fa0")) == w.Ping(7, "")
    assert w.decode(PING + b"trailing") == SEEN["ping"][1]
    assert w.decode(bytes.fromhex("0b81a57365716e6f15")) == w.Nack(0), "names are in one case"


@pytest.mark.parametrize(
    "body", ["81a55365714e6fff", "81a55365714e6fcb3ff0000000000000", "81a55365714e6fcf0000000100000000"]
)
def test_a_number_that_is_none_is_refused(body: str) -> None:
    with pytest.raises(Malformed):
        w.decode(b"\x0b" + bytes.fromhex(body))


def test_a_name_may_be_any_bytes() -> None:
    said = w.decode(bytes.fromhex("0383a446726f6da162ab496e6361726e6174696f6e01a44e6f6465a2ff41"))
    assert isinstance(said, w.Suspect)
    assert w.encode(said).endswith(b"\xa2\xff\x41")


def test_a_push_pull_is_read_once_it_is_whole() -> None:
    node = w.NodeState("a", LOCALHOST, 7946, b"\xff\x80", 3, w.DEAD_STATE, bytes([1, 5, 2, 2, 5, 5]))
    state = w.PushPull(True, (node, node._replace(name="b")), b"user")
    for framing in (Framing(), Framing(Keyring([bytes(16)])), Framing(Keyring([bytes(32)]), b"label")):
        data = framing.stream(w.encode_push_pull(state), bytes(12))
        assert all(read_stream(data[:size], framing) is None for size in range(len(data)))
        assert read_stream(data, framing) == state


def test_streams_say_what_is_wrong_about_their_keys() -> None:
    state = w.encode_push_pull(w.PushPull(True, (), b""))
    plain, sealed = Framing(), Framing(Keyring([bytes(16)]))
    with pytest.raises(Malformed, match="Remote state is encrypted and encryption is not configured"):
        read_stream(sealed.stream(state, bytes(12)), plain)
    with pytest.raises(Malformed, match="Encryption is configured but remote state is not encrypted"):
        read_stream(plain.stream(state, b""), sealed)
    with pytest.raises(Malformed, match="No installed keys could decrypt the message"):
        read_stream(Framing(Keyring([bytes(32)])).stream(state, bytes(12)), sealed)


def test_a_state_that_says_it_is_huge_is_refused_at_once() -> None:
    header = bytes.fromhex("0683a44a6f696ec3a54e6f64657301ac5573657253746174654c656ece7fffffff")
    with pytest.raises(Malformed, match="number"):
        read_stream(header, Framing())
    with pytest.raises(Malformed, match="sealed message"):
        read_stream(b"\x0a\x7f\xff\xff\xff\x01", Framing(Keyring([bytes(16)])))


def chunks_until_refused(start: bytes, chunk: bytes) -> int:
    stream = StreamReader(Framing())
    assert stream.feed(start) is None
    for count in range(100_000):
        try:
            assert stream.feed(chunk) is None
        except Malformed:
            return count
    raise AssertionError("never refused")


def test_a_long_stream_is_read_once_and_nonsense_is_given_up_early() -> None:
    """However the bytes are cut, time grows with their number and not with its square."""
    nodes = tuple(w.NodeState(f"n{n}", LOCALHOST, 7946, bytes(500), 1, 0, bytes(6)) for n in range(3000))
    state = w.PushPull(True, nodes, bytes(500_000))
    data = w.encode_push_pull(state)
    stream = StreamReader(Framing())
    found = [stream.feed(data[at : at + 1000]) for at in range(0, len(data), 1000)]
    assert found[-1] == state
    assert found[:-1] == [None] * (len(found) - 1)

    endless = b"\xdd\x00\xff\xff\xff"
    few = w.PIECE_MAX // 1000 + 2
    tiny = 3000
    assert chunks_until_refused(b"\x00\xdc\xff\xff", b"\xc0") <= tiny
    assert chunks_until_refused(b"\x06" + endless, bytes(1000)) <= few
    assert chunks_until_refused(b"\x00" + endless, bytes(1000)) <= few
    assert chunks_until_refused(data[:100] + b"\xdf\x00\x7f\xff\xff", b"\xa0\x91" * 500) <= few
