"""lepa.serving.message_socket, over loopback."""

import socket
import struct
from collections.abc import Iterator

import pytest

from lepa.serving import message_socket, zmtp
from lepa.serving.message_socket import MessageSocket, PeerGone

HELLO = zmtp.hello("DEALER")


@pytest.fixture
def pair() -> Iterator[tuple[MessageSocket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        made = MessageSocket(listener.accept()[0], HELLO)
    peer.settimeout(5)
    yield made, peer
    made.close()
    peer.close()


def received(made: MessageSocket, peer: socket.socket, data: bytes, count: int) -> list[list[bytes]]:
    peer.sendall(data)
    found: list[list[bytes]] = []
    for _ in range(1000):
        found += made.receive()
        if len(found) >= count:
            return found
    raise AssertionError(found)


def hear_for_ever(made: MessageSocket) -> None:
    for _ in range(1000):
        made.receive()


def talk_for_ever(made: MessageSocket) -> None:
    for _ in range(20):
        made.send([bytes(100)])


def read(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


def test_messages_wait_until_the_peer_is_ready(pair: tuple[MessageSocket, socket.socket]) -> None:
    made, peer = pair
    made.send([b"", b"early"])
    assert made.pending
    made.flush()
    assert read(peer, len(HELLO)) == HELLO
    peer.settimeout(0.05)
    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.settimeout(5)
    assert received(made, peer, HELLO + zmtp.encode([b"", b"hi"]), 1) == [[b"", b"hi"]]
    early = zmtp.encode([b"", b"early"])
    assert read(peer, len(early)) == early


def test_what_the_kernel_does_not_take_waits_and_goes_later(pair: tuple[MessageSocket, socket.socket]) -> None:
    made, peer = pair
    made.flush()
    assert received(made, peer, HELLO + zmtp.encode([b"x"]), 1) == [[b"x"]]
    large = bytes(16 << 20)
    made.send([large])
    made.send([b"after"])
    assert made.pending
    wanted = HELLO + zmtp.encode([large]) + zmtp.encode([b"after"])
    got = bytearray()
    while len(got) < len(wanted):
        made.flush()
        got += peer.recv(1 << 20)
    assert got == wanted
    assert not made.pending


def test_a_peer_that_reads_nothing_is_given_up(
    pair: tuple[MessageSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_socket, "UNSENT_BYTES_MAX", 1000)
    made, _ = pair
    with pytest.raises(PeerGone, match="more than 1000 bytes unread"):
        talk_for_ever(made)


@pytest.mark.parametrize(("said", "sentence"), [(b"", "closed the connection"), (b"HTTP/1.1 200", "does not greet")])
def test_a_peer_that_leaves_or_is_another_is_told(
    pair: tuple[MessageSocket, socket.socket], said: bytes, sentence: str
) -> None:
    made, peer = pair
    peer.sendall(said)
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(PeerGone, match=sentence):
        hear_for_ever(made)


def test_a_reset_ends_it(pair: tuple[MessageSocket, socket.socket]) -> None:
    made, peer = pair
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(PeerGone, match="reset"):
        made.receive()
