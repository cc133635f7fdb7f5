"""Properties of what the supervisor decides: frames, journal lines, and where output is cut."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lepa.drivers.supervisor.frames import Frame, FrameReader, encode_frame
from lepa.drivers.supervisor.records import decode_record, encode_record, replay
from lepa.drivers.supervisor.rotation import LINE_BYTES_MAX, cut

TEXTS = st.text(max_size=20)
HEADS = st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS | st.lists(TEXTS), max_size=5)


@given(st.lists(st.tuples(HEADS, st.binary(max_size=50)), max_size=5), st.integers(1, 40))
def test_frames_survive_any_way_of_arriving(messages: list[tuple[dict[str, Any], bytes]], size: int) -> None:
    wire = b"".join(encode_frame(head, body) for head, body in messages)
    reader = FrameReader()
    arrived = [frame for at in range(0, len(wire), size) for frame in reader.feed(wire[at : at + size])]
    assert arrived == [Frame(head, body) for head, body in messages]


@given(HEADS)
def test_a_journal_line_survives_its_round_trip(record: dict[str, Any]) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_a_journal_of_rubbish_is_damaged_and_never_fatal(lines: list[bytes]) -> None:
    read = replay(lines)
    assert read.damaged == len(lines)
    assert read.tasks == {}


@given(st.lists(st.integers(0, 200), max_size=60), st.integers(1, 300), st.integers(1, 100))
def test_output_is_whole_in_order_and_cut_at_line_ends(lengths: list[int], limit: int, piece_size: int) -> None:
    text = b"".join(b"%d " % number + b"x" * length + b"\n" for number, length in enumerate(lengths))
    files = [bytearray()]
    for at in range(0, len(text), piece_size):
        piece = text[at : at + piece_size]
        while piece:
            present = files[-1]
            decided = cut(piece, len(present), limit, mid_line=bool(present) and present[-1] != 0x0A)
            present += piece[: decided.take]
            piece = piece[decided.take :]
            assert not decided.rotate or present
            if decided.rotate:
                files.append(bytearray())
    assert b"".join(files) == text
    assert all(file.endswith(b"\n") for file in files[:-1])
    assert all(len(file) <= limit + LINE_BYTES_MAX for file in files)
    assert all(file.rindex(b"\n", 0, -1) < limit for file in files if len(file) > limit and file.count(b"\n") > 1)
