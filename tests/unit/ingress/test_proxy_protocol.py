import pytest

from lepa.ingress.proxy_protocol import SIGNATURE, V1_MAX, V2_MAX, Source, header, read_header

CAME = Source("10.9.9.9", 1, "10.8.8.8", 2)
FOUR = Source("192.0.2.1", 56324, "198.51.100.7", 443)
SIX = Source("2001:db8::1", 56324, "2001:db8::2", 443)


@pytest.mark.parametrize("source", [FOUR, SIX])
@pytest.mark.parametrize("version", [1, 2])
def test_what_is_written_is_read(source: Source, version: int) -> None:
    written = header(source, version)
    assert read_header(written + b"rest", CAME) == (source, len(written))
    assert all(read_header(written[:size], CAME) is None for size in range(len(written)))


def test_version_1_as_the_specification_shows_it() -> None:
    assert header(FOUR, 1) == b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n"
    assert header(SIX, 1) == b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"


def test_addresses_of_two_families_are_unknown() -> None:
    mixed = Source("192.0.2.1", 1, "::1", 2)
    for version in (1, 2):
        written = header(mixed, version)
        assert read_header(written, CAME) == (CAME, len(written))


def test_who_is_unknown_is_the_balancer() -> None:
    assert read_header(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\nx", CAME) == (CAME, 35)
    local = SIGNATURE + b"\x20\x00\x00\x00"
    assert read_header(local + b"x", CAME) == (CAME, 16)


def test_extensions_of_version_2_are_passed_over() -> None:
    body = bytes([192, 0, 2, 1, 198, 51, 100, 7]) + (56324).to_bytes(2, "big") + (443).to_bytes(2, "big") + b"\x03abcd"
    raw = SIGNATURE + b"\x21\x11" + len(body).to_bytes(2, "big") + body
    assert read_header(raw + b"GET", CAME) == (FOUR, len(raw))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"PROXX",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 99999\r\n",
        b"PROXY TCP4 ::1 ::2 1 2\r\n",
        b"PROXY TCP4 nonsense 5.6.7.8 1 2\r\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY " + b"x" * V1_MAX,
        SIGNATURE + b"\x11\x11\x00\x0c",
        SIGNATURE + b"\x22\x11\x00\x0c",
        SIGNATURE + b"\x21\x11" + (V2_MAX + 1).to_bytes(2, "big"),
        SIGNATURE + b"\x21\x11\x00\x04abcd",
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_header(data, CAME)
