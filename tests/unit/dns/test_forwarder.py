import socket
from collections.abc import Iterator
from selectors import DefaultSelector

import dns.message
import pytest

from lepa.dns import forwarder as forwarding
from lepa.dns.forwarder import Forwarder

ASKED = dns.message.make_query("example.com", "A").to_wire()
WAIT_MAX_S = 5.0


class StoppedClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def now_ns(self) -> int:
        return int(self.time * 1e9)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Recursor:
    """A resolver that says what the test wants it to say."""

    def __init__(self, kind: int) -> None:
        self.socket = socket.socket(socket.AF_INET, kind)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(WAIT_MAX_S)
        if kind == socket.SOCK_STREAM:
            self.socket.listen(4)

    @property
    def address(self) -> tuple[str, int]:
        return self.socket.getsockname()


class Setting:
    """A forwarder, its selector driven by the test, and what it delivered."""

    def __init__(self, *recursors: Recursor) -> None:
        self.clock = StoppedClock()
        self.selector = DefaultSelector()
        addresses = tuple(recursor.address for recursor in recursors)
        self.forwarder = Forwarder(self.selector, self.clock, addresses, timeout_s=2.0)
        self.delivered: list[bytes | None] = []

    def submit(self, over_tcp: bool = False) -> None:
        self.forwarder.submit(ASKED, over_tcp, self.delivered.append)
        self.turn()

    def turn(self) -> None:
        for key, events in self.selector.select(WAIT_MAX_S):
            self.forwarder.ready(key.data, events)


def reply(rcode: int = 0, ident: bytes = ASKED[:2]) -> bytes:
    message = dns.message.make_response(dns.message.from_wire(ASKED))
    message.set_rcode(rcode)
    return ident + message.to_wire()[2:]


@pytest.fixture
def recursors() -> Iterator[tuple[Recursor, Recursor]]:
    pair = Recursor(socket.SOCK_DGRAM), Recursor(socket.SOCK_DGRAM)
    yield pair
    for recursor in pair:
        recursor.socket.close()


def test_the_reply_of_the_first_recursor_is_delivered(recursors: tuple[Recursor, Recursor]) -> None:
    setting = Setting(*recursors)
    setting.submit()
    question, sender = recursors[0].socket.recvfrom(512)
    assert question == ASKED
    recursors[0].socket.sendto(reply(), sender)
    setting.turn()
    assert setting.delivered == [reply()]
    assert setting.forwarder.wake_at() is None


def test_there_is_no_such_name_is_a_reply(recursors: tuple[Recursor, Recursor]) -> None:
    setting = Setting(*recursors)
    setting.submit()
    recursors[0].socket.sendto(reply(rcode=3), recursors[0].socket.recvfrom(512)[1])
    setting.turn()
    assert setting.delivered == [reply(rcode=3)]


def test_a_reply_to_something_else_is_passed_over(recursors: tuple[Recursor, Recursor]) -> None:
    setting = Setting(*recursors)
    setting.submit()
    sender = recursors[0].socket.recvfrom(512)[1]
    for answer in (b"", b"junk", reply(ident=bytes(255 - octet for octet in ASKED[:2])), reply()):
        recursors[0].socket.sendto(answer, sender)
        setting.turn()
    assert setting.delivered == [reply()]


@pytest.mark.parametrize("how", ["late", "servfail"])
def test_the_next_recursor_is_asked_when_one_is_of_no_use(recursors: tuple[Recursor, Recursor], how: str) -> None:
    setting = Setting(*recursors)
    setting.submit()
    sender = recursors[0].socket.recvfrom(512)[1]
    if how == "late":
        assert setting.forwarder.wake_at() == 102.0
        setting.clock.time = 102.0
        setting.forwarder.expire()
    else:
        recursors[0].socket.sendto(reply(rcode=2), sender)
        setting.turn()
    setting.turn()
    recursors[1].socket.sendto(reply(), recursors[1].socket.recvfrom(512)[1])
    setting.turn()
    assert setting.delivered == [reply()]


def test_none_is_delivered_when_all_are_late(recursors: tuple[Recursor, Recursor]) -> None:
    setting = Setting(*recursors)
    setting.submit()
    for now in (102.0, 104.0):
        setting.clock.time = now
        setting.forwarder.expire()
    assert setting.delivered == [None]
    assert setting.forwarder.failed == 1


def test_too_many_at_once_fail_at_once(recursors: tuple[Recursor, Recursor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "PENDING_MAX", 1)
    setting = Setting(*recursors)
    setting.submit()
    setting.forwarder.submit(ASKED, False, setting.delivered.append)
    assert setting.delivered == [None]
    setting.forwarder.close()
    assert setting.forwarder.wake_at() is None


def test_over_tcp_the_whole_framed_reply_is_awaited() -> None:
    recursor = Recursor(socket.SOCK_STREAM)
    setting = Setting(recursor)
    setting.submit(over_tcp=True)
    stream, _ = recursor.socket.accept()
    stream.settimeout(WAIT_MAX_S)
    assert stream.recv(512) == len(ASKED).to_bytes(2, "big") + ASKED
    framed = len(reply()).to_bytes(2, "big") + reply()
    for part in (framed[:1], framed[1:5], framed[5:]):
        assert setting.delivered == []
        stream.send(part)
        setting.turn()
    assert setting.delivered == [reply()]
    stream.close()
    recursor.socket.close()


def test_a_recursor_that_hangs_up_or_refuses_is_of_no_use() -> None:
    recursor, gone = Recursor(socket.SOCK_STREAM), Recursor(socket.SOCK_STREAM)
    setting = Setting(recursor, gone)
    gone_address = gone.address
    gone.socket.close()
    setting.forwarder = Forwarder(setting.selector, setting.clock, (recursor.address, gone_address), 2.0)
    setting.submit(over_tcp=True)
    stream, _ = recursor.socket.accept()
    stream.close()
    while not setting.delivered:
        setting.turn()
    assert setting.delivered == [None]
    recursor.socket.close()
