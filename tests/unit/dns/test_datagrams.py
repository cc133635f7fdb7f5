import socket
from collections.abc import Iterator

import pytest

from lepa.dns.datagrams import BATCH_MAX, SIZE_MAX, Datagrams


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.bind((request.param, 0))
        yield udp


@pytest.fixture
def client(server: socket.socket) -> Iterator[socket.socket]:
    with socket.socket(server.family, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5)
        udp.connect(server.getsockname()[:2])
        yield udp


def test_a_batch_comes_in_order_and_the_rest_waits(server: socket.socket, client: socket.socket) -> None:
    datagrams = Datagrams(server)
    sent = [b"%d" % number for number in range(BATCH_MAX + 3)]
    for message in sent:
        client.send(message)
    assert datagrams.receive(wait=True) == sent[:BATCH_MAX]
    assert datagrams.receive(wait=False) == sent[BATCH_MAX:]
    assert datagrams.receive(wait=False) == []


def test_answers_go_to_their_senders_and_gaps_are_fine(server: socket.socket, client: socket.socket) -> None:
    datagrams = Datagrams(server)
    with socket.socket(server.family, socket.SOCK_DGRAM) as other:
        other.settimeout(5)
        other.connect(server.getsockname()[:2])
        for sender, message in ((client, b"a"), (other, b"b"), (client, b"c")):
            sender.send(message)
        assert datagrams.receive(wait=True) == [b"a", b"b", b"c"]
        datagrams.put(1, b"for b\0" + b"x" * 5_000)
        datagrams.put(2, b"for c")
        assert datagrams.send() == 0
        assert other.recv(9_000) == b"for b\0" + b"x" * 5_000
        assert client.recv(9_000) == b"for c"
        assert datagrams.send() == 0


def test_the_sender_is_told_as_python_tells_it(server: socket.socket, client: socket.socket) -> None:
    datagrams = Datagrams(server)
    client.send(b"")
    assert datagrams.receive(wait=True) == [b""]
    assert datagrams.sender(0) == client.getsockname()[:2]


def test_a_long_datagram_is_cut_off(server: socket.socket, client: socket.socket) -> None:
    client.send(b"x" * (SIZE_MAX + 1))
    assert Datagrams(server).receive(wait=True) == [b"x" * SIZE_MAX]


def test_what_cannot_be_sent_is_counted_and_does_not_stop_the_others(
    server: socket.socket, client: socket.socket
) -> None:
    datagrams = Datagrams(server)
    for message in (b"a", b"b"):
        client.send(message)
    assert datagrams.receive(wait=True) == [b"a", b"b"]
    datagrams.put(0, b"x" * 70_000)
    datagrams.put(1, b"for b")
    assert datagrams.send() == 1
    assert client.recv(9_000) == b"for b"


def test_a_closed_socket_is_an_error(server: socket.socket) -> None:
    datagrams = Datagrams(server)
    server.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        datagrams.receive(wait=False)
