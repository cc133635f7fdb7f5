"""lepa.serving.zmtp, with libzmq on the other side where that can tell."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from lepa.serving.zmtp import MESSAGE_BYTES_MAX, Decoder, ZmtpError, encode, hello

HELLO = hello("DEALER")
MESSAGES = st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=6), max_size=5)


def decoder() -> Decoder:
    made = Decoder()
    assert made.feed(HELLO) == []
    return made


@given(MESSAGES, st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_messages_survive_any_cut_of_the_stream(messages: list[list[bytes]], cuts: list[int]) -> None:
    stream = HELLO + b"".join(map(encode, messages))
    found: list[list[bytes]] = []
    decoding, position, turn = Decoder(), 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        found += decoding.feed(stream[position : position + size])
        position += size
        turn += 1
    assert found == messages


@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_on(noise: bytes) -> None:
    decoding = decoder()
    with contextlib.suppress(ZmtpError):
        messages = decoding.feed(noise)
        assert sum(map(len, messages)) <= len(noise)


def greeting(version: int = 3, mechanism: bytes = b"NULL") -> bytes:
    return b"\xff" + bytes(8) + bytes((0x7F, version, 0)) + mechanism.ljust(20, b"\0") + bytes(32)


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (b"GET / HTTP/1.1\r\n", "does not greet as ZeroMQ does"),
        (b"\xff" + bytes(9), "does not greet as ZeroMQ does"),
        (greeting(version=1), "speaks version 1"),
        (greeting(mechanism=b"CURVE"), "mechanism CURVE"),
        (greeting() + encode([b"early"]), "before it was ready"),
        (HELLO + b"\x02" + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big"), "at most 1073741824 bytes"),
        (HELLO + b"\x04\x00", "malformed command"),
        (HELLO + b"\x04\x03\x05PI", "malformed command"),
        (greeting() + b"\x04\x09\x05ERROR\x02no", "it refused the connection: no"),
    ],
)
def test_a_peer_that_does_not_speak_it_is_told_from_one_that_does(sent: bytes, sentence: str) -> None:
    with pytest.raises(ZmtpError, match=sentence):
        Decoder().feed(sent)


def test_a_ping_is_answered_with_its_context() -> None:
    decoding = decoder()
    assert decoding.feed(b"\x04\x0a\x04PING\x00\x0aabc") == []
    assert decoding.to_send == b"\x04\x08\x04PONGabc"


@pytest.fixture
def router() -> Iterator[Any]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = context.socket(zmq.ROUTER)
    made.rcvtimeo = 5000
    made.heartbeat_ivl = 200
    made.heartbeat_timeout = 5000
    yield made
    made.close(0)
    context.term()


def test_libzmq_understands_us_and_we_understand_it(router: Any) -> None:
    port = router.bind_to_random_port("tcp://127.0.0.1")
    sent = [b"", b"x" * 255, b"y" * 256, b"z" * 70_000]
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.settimeout(5)
        peer.sendall(HELLO)
        decoding = Decoder()
        found: list[list[bytes]] = []
        while not decoding.ready:
            assert decoding.feed(peer.recv(65536)) == []
        peer.sendall(encode(sent))
        routing_id, *heard = router.recv_multipart()
        assert heard == sent
        router.send_multipart([routing_id, *sent])
        while not found or not decoding.to_send:
            found += decoding.feed(peer.recv(65536))
        assert found == [sent]
        assert decoding.to_send.startswith(b"\x04\x05\x04PONG")
