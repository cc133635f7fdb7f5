"""Go's duration texts and RFC 3339 times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.kit.durations import ZERO_TIME, format_duration, parse_duration, parse_rfc3339, rfc3339


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("30s", 30_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("250ms", 250_000_000),
        ("-1.5s", -1_500_000_000),
        ("+2m", 120_000_000_000),
        (".5h", 1_800_000_000_000),
        ("1h1m1s1ms1us1ns", 3_661_001_001_001),
        ("3µs", 3_000),
    ],
)
def test_duration_texts_are_read(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1s2", "1.2.3s", "- 1s", "1 s", "10000000h"])
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (250_000_000, "250ms"),
        (1_500_000_000, "1.5s"),
        (60_000_000_000, "1m0s"),
        (5_400_000_000_000, "1h30m0s"),
        (-30_000_000_000, "-30s"),
    ],
)
def test_durations_are_written_as_go_does(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_a_written_duration_reads_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@given(st.integers(min_value=1, max_value=4 * 10**18))
def test_a_written_time_reads_back(ns: int) -> None:
    assert parse_rfc3339(rfc3339(ns)) == ns


def test_the_zero_time_is_zero() -> None:
    assert rfc3339(0) == ZERO_TIME
    assert parse_rfc3339(ZERO_TIME) == parse_rfc3339("") == 0


def test_zones_are_taken_into_account() -> None:
    assert parse_rfc3339("2026-01-31T13:00:00+01:00") == parse_rfc3339("2026-01-31T12:00:00Z")


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31", "2026-01-31T12:00:00"])
def test_other_times_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid time|month|day"):
        parse_rfc3339(text)
