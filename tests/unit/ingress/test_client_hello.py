import ssl

import pytest

from lepa.ingress.client_hello import HELLO_MAX, server_name


def hello(name: str | None) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("name", ["a.example.com", "A.Example.Com", "x" * 60 + ".example.com"])
def test_the_name_that_openssl_asks_for(name: str) -> None:
    assert server_name(hello(name)) == name.lower()


def test_no_name_is_asked_for() -> None:
    assert server_name(hello(None)) == ""


def test_more_must_come_first() -> None:
    data = hello("a.example.com")
    assert all(server_name(data[:size]) is None for size in range(len(data)))
    assert server_name(data + b"more") == "a.example.com"


def test_a_message_in_many_records() -> None:
    data = hello("a.example.com")
    message = data[5:]
    pieces = [message[start : start + 7] for start in range(0, len(message), 7)]
    parted = b"".join(data[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert server_name(parted) == "a.example.com"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\xff\xff" + b"\x01" + b"x" * HELLO_MAX,
    ],
)
def test_what_is_no_hello_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        server_name(data)


def test_lengths_that_do_not_hold_name_nobody() -> None:
    assert server_name(b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03") == ""
