"""lepa.serving.container_rpc: the frames are those of Clipper's protocol, byte for byte."""

import struct

from lepa.serving.container_rpc import (
    HEARTBEAT_FRAMES,
    KEEP_ALIVE_FRAMES,
    WHO_ARE_YOU_FRAMES,
    Batch,
    Failure,
    Heartbeat,
    HeartbeatReply,
    Malformed,
    NewContainer,
    Outputs,
    decode_from_container,
    decode_from_frontend,
    encode_batch,
    encode_introduction,
    encode_new_container,
    encode_outputs,
)


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def u64(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def test_heartbeats_and_their_replies() -> None:
    assert list(HEARTBEAT_FRAMES) == [b"", u32(2)]
    assert list(KEEP_ALIVE_FRAMES) == [b"", u32(3), u32(2), u32(0)]
    assert list(WHO_ARE_YOU_FRAMES) == [b"", u32(3), u32(2), u32(1)]
    assert decode_from_container(HEARTBEAT_FRAMES) == Heartbeat()
    assert decode_from_frontend(KEEP_ALIVE_FRAMES) == HeartbeatReply(who=False)
    assert decode_from_frontend(WHO_ARE_YOU_FRAMES) == HeartbeatReply(who=True)


def test_a_batch_for_clippers_container_has_one_frame_an_input() -> None:
    frames = encode_batch(7, 3, [b"12345678", b""], packed=False)
    assert frames == [b"", u32(3), u32(1), u32(7), u32(0), u64(32), u64(3, 2, 8, 0), b"12345678", b""]
    assert decode_from_frontend(frames) == Batch(7, 3, [b"12345678", b""], packed=False)


def test_a_packed_batch_has_one_data_frame() -> None:
    frames = encode_batch(7, 3, [b"12345678", b"", b"x"], packed=True)
    assert frames[-1] == b"12345678x"
    assert decode_from_frontend(frames) == Batch(7, 3, [b"12345678", b"", b"x"], packed=True)


def test_outputs_of_clippers_container() -> None:
    frames = [b"", u32(1), u32(7), u64(24), u64(2, 3, 1), b"abc", b"d"]
    assert decode_from_container(frames) == Outputs(7, [b"abc", b"d"])
    assert encode_outputs(7, [b"abc", b"d"], packed=False) == frames


def test_a_failure_is_told_by_the_highest_bit_of_its_size() -> None:
    frames = encode_outputs(1, [b"ok", Failure("no")], packed=True)
    assert frames[4] == u64(2, 2, 2 | 1 << 63)
    assert decode_from_container(frames) == Outputs(1, [b"ok", Failure("no")])


def test_a_frontend_introduces_itself_with_a_keep_alive() -> None:
    frames = encode_introduction(b"front-1")
    assert frames == [*KEEP_ALIVE_FRAMES, b"front-1"]
    assert decode_from_frontend(frames) == HeartbeatReply(who=False, frontend=b"front-1")


def test_new_containers_of_three_kinds() -> None:
    ours = encode_new_container("m", "1", 3)
    assert ours == [b"", u32(0), b"m", b"1", b"3", u32(3, 3)]
    assert decode_from_container(ours) == NewContainer("m", "1", 3, 3, packed=True, introduced=True)
    python = [b"", u32(0), b"m", b"1", b"3", u32(3)]
    assert decode_from_container(python) == NewContainer("m", "1", 3, 3, packed=False)
    jvm = [b"", u32(0), b"m", b"1", b"3", u64(3)]
    assert decode_from_container(jvm) == NewContainer("m", "1", 3, 3, packed=False)


def test_malformed_messages_say_what_is_wrong() -> None:
    for frames in (
        [b""],
        [b"x", u32(2)],
        [b"", u32(9)],
        [b"", u32(0), b"m"],
        [b"", u32(0), b"m", b"1", b"x", u32(3)],
        [b"", u32(1), u32(7), u64(8)],
        [b"", u32(1), u32(7), u64(16), u64(2, 1)],
        [b"", u32(1), u32(7), u64(8), u64(1 << 60)],
        [b"", u32(1), u32(7), u64(24), u64(2, 3, 1), b"ab", b"d"],
        [b"", u32(1), u32(7), u64(24), u64(2, 3, 1), b"abc"],
    ):
        assert isinstance(decode_from_container(frames), Malformed), frames
    for frames in (
        [b"", u32(2)],
        [b"", u32(2), u32(2), u32(0)],
        [b"", u32(3), u32(1), u32(7), u32(0), u64(8)],
        [b"", u32(3), u32(1), u32(7), u32(1), u64(16), u64(3, 0)],
        [b"", u32(3), u32(1), u32(7), u32(0), u64(24), u64(3, 1, 5), b"abc"],
    ):
        assert isinstance(decode_from_frontend(frames), Malformed), frames


def test_a_container_that_knows_ours_tells_its_own_name_and_clippers_do_not() -> None:
    ours = decode_from_container(encode_new_container("m", "1", 3, "an-instance"))
    assert isinstance(ours, NewContainer)
    assert (ours.instance, ours.packed, ours.introduced) == ("an-instance", True, True)
    jvm = [b"", b"\0\0\0\0", b"m", b"1", b"3", b"\3\0\0\0\0\0\0\0"]
    assert decode_from_container(jvm) == NewContainer("m", "1", 3, 3, packed=False)
