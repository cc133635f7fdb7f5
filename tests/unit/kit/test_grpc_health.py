"""One call of gRPC's health service as bytes."""

from struct import pack

import pytest

from lepa.kit.grpc_health import FRAME_MAX, PREFACE, RECEIVED_MAX, Exchange

SETTINGS, DATA, HEADERS, RST_STREAM, PING, GOAWAY = 0x4, 0x0, 0x1, 0x3, 0x6, 0x7


def frame(kind: int, flags: int = 0, stream: int = 1, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + pack(">I", stream) + payload


def message(body: bytes) -> bytes:
    return b"\0" + pack(">I", len(body)) + body


def test_the_opening_names_the_service() -> None:
    opening = Exchange("a:1", "pkg.Web").opening
    assert opening.startswith(PREFACE)
    assert b"/grpc.health.v1.Health/Check" in opening
    assert opening.endswith(message(b"\x0a\x07pkg.Web"))


def test_a_long_authority_is_encoded() -> None:
    assert b"\x7f\x49" + b"a" * 200 in Exchange("a" * 200).opening


@pytest.mark.parametrize(
    ("body", "answer"),
    [(b"\x08\x01", "SERVING"), (b"\x08\x02", "NOT_SERVING"), (b"\x08\x03", "SERVICE_UNKNOWN"), (b"", "UNKNOWN"),
     (b"\x08\x09", "ERROR"), (b"\x12\x01", "ERROR")],
)  # fmt: skip
def test_answers(body: bytes, answer: str) -> None:
    exchange = Exchange("a:1")
    exchange.receive(frame(SETTINGS, stream=0) + frame(HEADERS, 4) + frame(DATA, 0, 1, message(body)))
    assert exchange.answer == answer


def test_an_answer_may_come_octet_by_octet_in_several_frames() -> None:
    exchange, whole = Exchange("a:1"), message(b"\x08\x01")
    sent = frame(DATA, 0, 1, whole[:3]) + frame(DATA, 0x8, 1, b"\x02" + whole[3:] + b"\0\0")
    for octet in sent:
        assert exchange.answer is None
        exchange.receive(bytes((octet,)))
    assert exchange.answer == "SERVING"


def test_settings_and_pings_are_acknowledged() -> None:
    exchange = Exchange("a:1")
    assert exchange.receive(frame(SETTINGS, stream=0)) == frame(SETTINGS, 1, 0)
    assert exchange.receive(frame(PING, 0, 0, b"12345678")) == frame(PING, 1, 0, b"12345678")
    assert exchange.receive(frame(SETTINGS, 1, 0)) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        frame(HEADERS, 5),
        frame(RST_STREAM, 0, 1, b"\0\0\0\1"),
        frame(GOAWAY, 0, 0, b"\0" * 8),
        (FRAME_MAX + 1).to_bytes(3, "big") + b"\0" * 6,
        b"\x01" + frame(DATA, 1, 1, message(b""))[1:],
        frame(DATA, 0, 1, b"\x01" + message(b"\x08\x01")[1:]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_everything_else_is_an_error(sent: bytes) -> None:
    exchange = Exchange("a:1")
    exchange.receive(sent)
    exchange.receive(b"")
    assert exchange.answer == "ERROR"


def test_an_endless_answer_is_given_up() -> None:
    exchange = Exchange("a:1")
    for _ in range(RECEIVED_MAX // FRAME_MAX + 1):
        exchange.receive(frame(HEADERS, 0, 3, b"x" * FRAME_MAX))
    assert exchange.answer == "ERROR"
