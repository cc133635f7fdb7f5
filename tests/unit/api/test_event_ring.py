"""The ring of lines: places, indexes and what is given together."""

from hypothesis import given
from hypothesis import strategies as st

from lepa.api import event_ring
from lepa.api.event_ring import Ring, as_chunk


def ring(*indexes: int, since: int = 0, bytes_max: int = 1_000) -> Ring:
    made = Ring(since)
    for index in indexes:
        made.add(index, b"%d\n" % index, bytes_max)
    return made


def test_what_follows_a_place_is_given_together_and_framed() -> None:
    three = ring(1, 4, 9)
    assert three.piece(1) == (b"4\n9\n", b"4\r\n4\n9\n\r\n", 3)
    assert three.piece(1) is three.piece(1), "all who are level get the very same bytes"


def test_places_are_found_by_index() -> None:
    three = ring(1, 4, 9)
    assert [three.place_of(index) for index in (0, 1, 2, 4, 9, 10)] == [0, 0, 1, 1, 2, 3]
    assert (three.begin, three.end, three.last_index) == (0, 3, 9)


def test_the_oldest_lines_are_forgotten_but_never_the_newest() -> None:
    small = ring(1, 4, 9, bytes_max=4)
    assert (small.begin, small.since, small.piece(1).lines) == (1, 2, b"4\n9\n")
    small.add(10, b"long line\n", 4)
    assert (small.begin, small.since, small.piece(3)) == (3, 10, (b"long line\n", as_chunk(b"long line\n"), 4))


def test_a_new_line_is_in_what_is_given_next() -> None:
    one = ring(1)
    assert one.piece(0).after == 1
    one.add(2, b"2\n", 1_000)
    assert one.piece(0).lines == b"1\n2\n"


@given(st.lists(st.integers(1, event_ring.PIECE_MAX * 2), max_size=8), st.integers(1, 2**18))
def test_a_reader_that_keeps_up_sees_every_line_once(sizes: list[int], bytes_max: int) -> None:
    made, place, seen = Ring(0), 0, b""
    for index, size in enumerate(sizes, 1):
        made.add(index, b"%d" % (index % 10) * size + b"\n", bytes_max)
        while place < made.end:
            piece = made.piece(place)
            assert len(piece.lines) <= event_ring.PIECE_MAX or piece.after == place + 1
            seen, place = seen + piece.lines, piece.after
    assert seen == b"".join(b"%d" % (index % 10) * size + b"\n" for index, size in enumerate(sizes, 1))
