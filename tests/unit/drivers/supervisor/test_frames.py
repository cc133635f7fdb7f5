import pytest

from lepa.drivers.supervisor.frames import FRAME_BYTES_MAX, BrokenFrame, Frame, FrameReader, encode_frame


def test_a_frame_survives_being_cut_anywhere() -> None:
    wire = encode_frame({"id": 1, "do": "start"}, b"\0\xff") + encode_frame({"event": "x"})
    for size in (1, 2, 3, 7, len(wire)):
        reader = FrameReader()
        frames = [frame for at in range(0, len(wire), size) for frame in reader.feed(wire[at : at + size])]
        assert frames == [Frame({"id": 1, "do": "start"}, b"\0\xff"), Frame({"event": "x"}, b"")]


@pytest.mark.parametrize(
    "wire", [b"\xff" * 8, b"\0\0\0\x02\0\0\0\0[]", b"\0\0\0\x01\0\0\0\0{", b"\0\0\0\x01\0\0\0\0\xff"]
)
def test_what_is_not_a_frame_is_refused(wire: bytes) -> None:
    with pytest.raises(BrokenFrame):
        FrameReader().feed(wire)


def test_a_frame_too_large_is_never_sent() -> None:
    with pytest.raises(ValueError, match="larger than"):
        encode_frame({}, bytes(FRAME_BYTES_MAX))
