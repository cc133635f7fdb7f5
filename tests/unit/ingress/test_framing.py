import pytest

from lepa.ingress.framing import (
    CHUNK_LINE_MAX,
    CHUNKED,
    NO_BODY,
    TRAILER_MAX,
    UNTIL_CLOSE,
    Chunked,
    Length,
    UntilClose,
    framing_of,
)

BODY = b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nTrailer: x\r\n\r\n"


def fed(data: bytes, step: int) -> tuple[int, Chunked]:
    framing, taken = Chunked(), 0
    for start in range(0, len(data), step):
        taken += framing.feed(data[start : start + step])
        if framing.done:
            break
    return taken, framing


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_chunks_end_where_they_say_however_they_come(step: int) -> None:
    taken, framing = fed(BODY + b"GET / HTTP/1.1\r\n", step)
    assert framing.done
    assert taken == len(BODY)


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\nhello\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhelloXY",
        b"5\r\nhello\n\n",
        b"ffffffffffffffff\r\n",
        b"5;" + b"x" * CHUNK_LINE_MAX + b"\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: " + b"b" * TRAILER_MAX + b"\r\n\r\n",
        b"0\r\n" + b"A: b\r\n" * 2_000,
    ],
)
@pytest.mark.parametrize("step", [1, 4096])
def test_malformed_chunks_are_refused(data: bytes, step: int) -> None:
    with pytest.raises(ValueError):
        fed(data, step)


def test_a_line_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        fed(b"1" * (CHUNK_LINE_MAX + 2), 1)


def test_a_length_takes_no_more() -> None:
    framing = Length(5)
    assert (framing.feed(b"hel"), framing.done) == (3, False)
    assert (framing.feed(b"lo world"), framing.done) == (2, True)


def test_until_close_takes_everything_and_never_ends() -> None:
    framing = UntilClose()
    assert (framing.feed(b"abc"), framing.done) == (3, False)


def test_no_body_takes_nothing() -> None:
    assert (NO_BODY.feed(b"abc"), NO_BODY.done) == (0, True)


def test_the_framing_of_a_body() -> None:
    kinds = [type(framing_of(body)).__name__ for body in (0, 7, CHUNKED, UNTIL_CLOSE)]
    assert kinds == ["NoBody", "Length", "Chunked", "UntilClose"]
