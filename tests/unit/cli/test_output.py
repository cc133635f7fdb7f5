"""How things look."""

import pytest

from lepa.cli.output import ago, bare, megabytes, moment, paint, pairs, short, size, span, table
from lepa.kit.durations import SECOND

NOW = 1_700_000_000 * SECOND


def test_columns_are_aligned_and_lines_end_with_their_last_cell() -> None:
    shown = table(("ID", "Name"), [("a", "x"), ("bbbb", None), ("c", True)])
    assert shown == "ID    Name\na     x\nbbbb  <none>\nc     true"


def test_colours_take_no_room() -> None:
    shown = table(("A", "B"), [(paint("x", "red", "bold"), 1), ("yy", 2)])
    assert bare(shown) == "A   B\nx   1\nyy  2"


def test_pairs_stand_under_each_other() -> None:
    assert pairs([("ID", 1), ("Job ID", "")]) == "ID     = 1\nJob ID = <none>"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (5, "5s"),
        (60, "1m"),
        (65, "1m5s"),
        (3600, "1h"),
        (3605, "1h"),
        (90_061, "1d1h"),
        (86_400 * 40, "1mo10d"),
    ],
)
def test_spans_have_two_units(seconds: int, shown: str) -> None:
    assert span(seconds) == shown


def test_ages_look_both_ways() -> None:
    assert ago(NOW - 65 * SECOND, NOW) == "1m5s ago"
    assert ago(NOW + 65 * SECOND, NOW) == "1m5s from now"
    assert ago(NOW, NOW) == "just now"
    assert ago(0, NOW) == "<none>"


def test_ids_are_short_unless_told() -> None:
    assert short("0123456789") == "01234567"
    assert short("0123456789", verbose=True) == "0123456789"


def test_moments_are_nanoseconds_or_texts() -> None:
    assert moment(5) == 5
    assert moment("1970-01-01T00:00:01Z") == SECOND
    assert moment("") == moment("rubbish") == 0


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5000 << 40, "5000.0 TiB")],
)
def test_sizes_have_a_unit(count: int, shown: str) -> None:
    assert size(count) == shown


def test_mebibytes_become_gibibytes() -> None:
    assert (megabytes(300), megabytes(8192)) == ("300 MiB", "8.0 GiB")
