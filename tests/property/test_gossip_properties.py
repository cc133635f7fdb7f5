"""Gossip under bytes from anywhere, and what holds for any choice of them.

Modules: lepa.gossip.raw_msgpack, lepa.gossip.lzw, lepa.gossip.packets, lepa.gossip.streams, lepa.gossip.fields,
lepa.gossip.errors, lepa.gossip.orders, lepa.gossip.broadcasts, lepa.gossip.chance.
"""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gossip_world import GossipWorld

from lepa.gossip import lzw, raw_msgpack
from lepa.gossip import messages as w
from lepa.gossip import serf_messages as s
from lepa.gossip.broadcasts import Broadcasts
from lepa.gossip.chance import choose
from lepa.gossip.coordinates import Coordinate, Place, decode_ping, encode_ping
from lepa.gossip.errors import Malformed
from lepa.gossip.keyring import Keyring
from lepa.gossip.packets import Framing, compound
from lepa.gossip.profile import LAN, WAN
from lepa.gossip.streams import read as read_stream
from lepa.gossip.suspicion import timeout
from lepa.gossip.tags import decode_tags, encode_tags
from lepa.kit.sources import SeededRandom

KEY = bytes(range(32))

texts = st.text(max_size=40).filter(lambda text: text.isprintable())
numbers = st.integers(0, (1 << 32) - 1)
addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
ports = st.integers(0, 65535)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.binary(max_size=300)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.binary(max_size=20), inner, max_size=20),
    max_leaves=20,
)
messages: st.SearchStrategy[w.Message] = st.one_of(
    st.builds(w.Ping, numbers, texts, addresses, ports, texts),
    st.builds(w.IndirectPing, numbers, addresses, ports, texts, st.booleans(), addresses, ports, texts),
    st.builds(w.Ack, numbers, st.binary(max_size=200)),
    st.builds(w.Nack, numbers),
    st.builds(w.Suspect, numbers, texts, texts),
    st.builds(w.Dead, numbers, texts, texts),
    st.builds(
        w.Alive,
        numbers,
        texts,
        addresses,
        ports,
        st.binary(max_size=512),
        st.binary(min_size=6, max_size=6),
    ),
    st.builds(w.UserMessage, st.binary(max_size=300)),
)


@given(values)
def test_values_survive_a_round_trip(value: Any) -> None:
    data = raw_msgpack.encode(value)
    assert raw_msgpack.decode(data) == (value, len(data))
    for size in range(len(data)):
        with pytest.raises(Malformed):
            raw_msgpack.decode(data[:size])


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_a_value_or_malformed(data: bytes) -> None:
    try:
        value, end = raw_msgpack.decode(data)
    except Malformed:
        return
    assert 0 < end <= len(data)
    assert raw_msgpack.decode(raw_msgpack.encode(value))[0] == value or "nan" in repr(value)


@given(messages)
def test_messages_survive_a_round_trip(message: w.Message) -> None:
    assert w.decode(w.encode(message)) == message


@given(st.lists(messages, min_size=1, max_size=6), st.booleans(), st.sampled_from([(), (KEY,)]), st.binary(max_size=5))
def test_packets_survive_a_round_trip(found: list[w.Message], crc: bool, keys: tuple[bytes, ...], label: bytes) -> None:
    framing = Framing(Keyring(keys) if keys else None, label)
    parts = [w.encode(message) for message in found]
    assert framing.open_packet(framing.packet(parts, bytes(12), crc=crc)) == parts


@given(st.binary(max_size=3000))
def test_what_go_compresses_is_unpacked(data: bytes) -> None:
    assert lzw.unpack(go_lzw(data), 10_000) == data


@given(st.sampled_from([b"a" * 200_000, bytes(range(256)) * 400, b"ab" * 70_000]))
@settings(max_examples=3, deadline=None)
def test_unpacking_goes_through_full_tables_and_stops_at_its_bound(data: bytes) -> None:
    packed = go_lzw(data)
    assert lzw.unpack(packed, len(data)) == data
    with pytest.raises(Malformed, match="more than"):
        lzw.unpack(packed, len(data) - 1)


def go_lzw(data: bytes) -> bytes:
    """LZW as Go's compress/lzw writes it, from its description: low bits first, a clear code at the start and whenever
    the table of 12 bits is full."""
    out, held, bits = bytearray(), 0, 0
    table: dict[bytes, int] = {}
    highest, width = 257, 9

    def put(code: int) -> None:
        nonlocal held, bits
        held |= code << bits
        bits += width
        while bits >= 8:
            out.append(held & 255)
            held >>= 8
            bits -= 8

    def counted(pair: bytes | None) -> None:
        nonlocal highest, width, table
        highest += 1
        if highest == 1 << width:
            width += 1
        if highest == 4095:
            width = min(width, 12)
            put(256)
            table, highest, width = {}, 257, 9
        elif pair is not None:
            table[pair] = highest

    put(256)
    piece = b""
    for byte in data:
        longer = piece + bytes([byte])
        if len(longer) == 1 or longer in table:
            piece = longer
            continue
        put(table[piece] if len(piece) > 1 else piece[0])
        counted(longer)
        piece = bytes([byte])
    if piece:
        put(table[piece] if len(piece) > 1 else piece[0])
        counted(None)
    put(257)
    if bits:
        out.append(held & 255)
    return bytes(out)


def live_world(*keys: bytes) -> GossipWorld:
    world = GossipWorld(3)
    for name in "abc":
        world.start(name, keys=keys)
    world.join_all()
    world.run(3.0)
    assert world.agreed(dict.fromkeys("abc", "alive"))
    return world


@given(st.lists(st.binary(max_size=1400), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_garbage_is_counted_and_changes_nothing(packets: list[bytes]) -> None:
    """S14."""
    world = live_world(KEY)
    before, counted = world.views(), sum(world.hosts["a"].serf.counts.values())
    for data in packets:
        world.act("a", lambda serf, data=data: serf.packet(data, (bytes([10, 0, 0, 9]), 1), world.now))
    assert world.views() == before
    dropped = sum(world.hosts["a"].serf.counts.values()) - counted
    assert dropped == 2 * len(packets), "each is counted as a packet and as dropped"


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_changed_bytes_of_real_packets_stop_nobody(data: st.DataObject) -> None:
    """S14: bits are flipped and pieces cut out of what members of an open cluster send; the cluster goes on."""
    world = GossipWorld(4)
    caught: list[bytes] = []
    world.taps.append(caught.append)
    for name in "abc":
        world.start(name)
    world.join_all()
    world.act("a", lambda serf: serf.tell("deploy", b"1", world.now))
    world.act("b", lambda serf: serf.ask("who", b"", world.now, want_acks=True))
    world.run(3.0)
    for _ in range(data.draw(st.integers(1, 20))):
        packet = bytearray(data.draw(st.sampled_from(caught)))
        for _ in range(data.draw(st.integers(1, 6))):
            packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
        start = 5 if packet[0] == w.HAS_CRC else 0
        cut = bytes(packet[start : data.draw(st.integers(start, len(packet)))])
        world.act("a", lambda serf, cut=cut: serf.packet(cut, (bytes([10, 0, 0, 2]), 7946), world.now))
    world.run(5.0)
    assert {"a", "b", "c"} <= world.hosts["a"].statuses().keys()


@given(st.binary(max_size=400), st.sampled_from([(), (KEY,)]), st.sampled_from([b"", b"x"]))
def test_streams_from_anywhere_are_a_message_or_malformed_or_short(
    data: bytes, keys: tuple[bytes, ...], label: bytes
) -> None:
    for begun in (data, b"\x06" + data, b"\x08" + data, b"\x09" + data):
        try:
            read_stream(begun, Framing(Keyring(keys) if keys else None, label))
        except Malformed:
            continue


@given(st.binary(max_size=200))
def test_serf_bytes_from_anywhere_are_a_message_or_malformed(data: bytes) -> None:
    for begun in (bytes([kind]) + data for kind in range(12)):
        for read in (s.decode, s.decode_relay, s.decode_filter, decode_ping):
            try:
                read(begun)  # type: ignore[operator]
            except Malformed:
                continue


@given(st.dictionaries(texts, texts, max_size=5))
def test_tags_survive_a_round_trip_and_have_one_encoding(tags: dict[str, str]) -> None:
    if len(raw_msgpack.encode(tags)) < 500:
        meta = encode_tags(tags)
        assert decode_tags(meta) == tags
        assert encode_tags(dict(reversed(tags.items()))) == meta


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.binary(min_size=1, max_size=300)), max_size=40), st.integers(1, 5)
)
def test_news_is_sent_as_often_as_it_has_to_be_and_no_more(said: list[tuple[str, bytes]], transmits: int) -> None:
    queue = Broadcasts()
    for key, data in said:
        queue.add(key, data)
    sent: dict[bytes, int] = {}
    for _ in range(1000):
        taken = queue.take(400, transmits, 255)
        assert sum(len(data) + 2 for data in taken) <= 400
        for data in taken:
            sent[data] = sent.get(data, 0) + 1
        if not taken:
            break
    last = dict(said)
    assert len(queue) == 0
    assert set(sent) == set(last.values())
    assert all(count == transmits * list(last.values()).count(data) for data, count in sent.items())


@given(st.integers(2, 5000), st.integers(0, 10))
def test_suspicion_lies_between_its_bounds_and_shrinks_with_accusers(members: int, accusers: int) -> None:
    for profile in (LAN, WAN):
        least, most, wanted = profile.suspicion_bounds(members)
        times = [timeout(c, wanted, least, most) for c in range(min(accusers, max(wanted, 0)) + 1)]
        assert all(least <= time <= most for time in times)
        assert times == sorted(times, reverse=True)
        if wanted > 0:
            assert math.isclose(timeout(wanted, wanted, least, most), least, abs_tol=0.001)


def test_suspicion_takes_as_long_as_memberlist_says() -> None:
    assert LAN.suspicion_bounds(3) == (4.0, 24.0, 0)
    assert LAN.suspicion_bounds(10)[0] == 4.0
    assert LAN.suspicion_bounds(100)[:2] == (8.0, 48.0)
    assert LAN.suspicion_bounds(1000)[:2] == (12.0, 72.0)
    assert WAN.suspicion_bounds(5) == (30.0, 180.0, 0)
    assert [LAN.transmits(n) for n in (3, 100, 1000)] == [4, 12, 16]
    assert [LAN.push_pull_scale(n) for n in (32, 33, 65)] == [1, 2, 3]


@given(st.lists(st.integers(), max_size=20), st.integers(0, 25), st.integers(0, 1000))
def test_a_choice_has_no_doubles(items: list[int], count: int, seed: int) -> None:
    places = list(enumerate(items))
    chosen = choose(SeededRandom(seed), places, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(items))
    assert set(chosen) <= set(places)


coordinates = st.builds(
    Coordinate,
    st.tuples(*[st.floats(-10, 10)] * 8),
    st.floats(0, 1.5),
    st.floats(1e-5, 1),
    st.floats(-1, 1),
)


@given(st.lists(st.tuples(coordinates, st.floats(-1, 20)), max_size=30))
def test_a_place_always_makes_sense(measured: list[tuple[Coordinate, float]]) -> None:
    place = Place(SeededRandom(1))
    for there, rtt_s in measured:
        assert decode_ping(encode_ping(there)) == there
        place.measured("peer", there, rtt_s)
        assert place.here.makes_sense
        assert place.here.height >= 1e-5


def compressed(data: bytes) -> bytes:
    return bytes([w.COMPRESS]) + raw_msgpack.encode({"Algo": 0, "Buf": go_lzw(data)})


def test_what_is_compressed_once_is_read_and_twice_is_not() -> None:
    nack = w.encode(w.Nack(1))
    assert Framing().open_packet(compressed(nack)) == [nack]
    assert Framing().open_packet(compressed(compound([nack, nack]))) == [nack, nack]
    for bomb in (compressed(compressed(nack)), compressed(compound([compressed(nack)]))):
        with pytest.raises(Malformed, match="compressed twice"):
            Framing().open_packet(bomb)
    nested = nack
    for _ in range(6):
        nested = compound([nested])
    with pytest.raises(Malformed, match="compounds within compounds"):
        Framing().open_packet(nested)
    with pytest.raises(Malformed, match="more than 65536 bytes"):
        Framing().open_packet(compressed(bytes(70_000)))
