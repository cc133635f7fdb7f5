"""lepa.serving.http_connection: what it makes of a stream, with heads that it knows and without."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.serving.http_connection import HEADS_KNOWN_MAX, Head, Headers, HttpConnection


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Echo:
    """Answers with what it was asked, at once or, for /later, when the test says so."""

    def __init__(self, knows: bool = True) -> None:
        self.connections: set[HttpConnection] = set()
        self.heads: dict[bytes, Head] = {} if knows else Forgetful()
        self.asked: list[tuple[bytes, bytes, Headers, bytes]] = []
        self.later: list[HttpConnection] = []

    def handle(
        self, connection: HttpConnection, method: bytes, url: bytes, headers: Headers, body: bytes | bytearray
    ) -> None:
        self.asked.append((method, url, headers, bytes(body)))
        if url == b"/later":
            self.later.append(connection)
        else:
            connection.ok(bytes(body))


class Forgetful(dict[bytes, Head]):
    def __setitem__(self, key: bytes, value: Head) -> None:
        pass


def request(path: str, body: bytes, extra: str = "", length: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{extra}Content-Length: {length or len(body)}\r\n\r\n"
    return head.encode() + body


def connected(owner: Echo) -> tuple[HttpConnection, Transport]:
    connection, transport = HttpConnection(owner), Transport()
    connection.connection_made(transport)
    return connection, transport


PIECES = st.sampled_from(
    [
        request("/a", b"one"),
        request("/a", b"two"),
        request("/a", b""),
        request("/b", b"three\r\n\r\nmore"),
        request("/v1/x", b"with", "X-Name: value\r\n"),
        request("/c", b"bye", "Connection: close\r\n"),
        request("/a", b"one") + request("/a", b"two"),
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET /g HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\n",
        request("/a", b"onetwo", length="3"),
        b"nonsense\r\n\r\n",
    ]
)


async def told(owner: Echo, pieces: list[bytes]) -> tuple[Any, bytes, bool]:
    connection, transport = connected(owner)
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    return owner.asked, transport.written, transport.closing


@given(st.lists(PIECES, max_size=8), st.integers(0, 400))
def test_knowing_heads_changes_no_answer(pieces: list[bytes], cut: int) -> None:
    stream = b"".join(pieces)
    for cuts in (pieces, [stream[:cut], stream[cut:]]):
        knowing, parsing = Echo(), Echo(knows=False)
        asyncio.run(told(knowing, pieces))
        knowing.asked = []
        found = asyncio.run(told(knowing, [piece for piece in cuts if piece]))
        assert found == asyncio.run(told(parsing, [piece for piece in cuts if piece]))


async def test_a_head_that_was_seen_is_not_parsed_again() -> None:
    owner = Echo()
    connection, transport = connected(owner)
    connection.data_received(request("/a", b"one"))
    connection._parser = None
    connection.data_received(request("/a", b"two"))
    assert [body for _, _, _, body in owner.asked] == [b"one", b"two"]
    assert transport.written.endswith(b"two")


async def test_what_is_asked_while_another_answer_is_due_waits_for_it() -> None:
    owner = Echo()
    connection, transport = connected(owner)
    connection.data_received(request("/a", b"one"))
    connection.data_received(request("/later", b"slow"))
    connection.data_received(request("/a", b"two"))
    assert len(owner.asked) == 2
    owner.later[0].ok(b"slow")
    await asyncio.sleep(0.01)
    assert transport.written.index(b"slow") < transport.written.index(b"two")


@pytest.mark.parametrize("number", [1, 3])
async def test_known_heads_are_bounded(number: int) -> None:
    owner = Echo()
    connection, _ = connected(owner)
    for name in range(number * HEADS_KNOWN_MAX + 5):
        connection.data_received(request(f"/{name}", b""))
    assert len(owner.heads) <= HEADS_KNOWN_MAX
