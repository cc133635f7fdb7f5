from lepa.drivers.supervisor.messages import Exit, LogFiles
from lepa.drivers.supervisor.records import (
    TaskRecord,
    decode_record,
    encode_record,
    exit_record,
    forget_record,
    replay,
    snapshot_records,
)

RUNNING = TaskRecord("a", LogFiles("/a.stdout"), None, False, 7, 1234, 5678, ("/cg/a",), "/cg/a", {"stdout": 77})
ENDED = TaskRecord("b", None, LogFiles("/b.stderr", 2, 3), True, 8, 1, 2, exit=Exit(3, 0, False, "", 9))
STARTING = TaskRecord("c")


def test_a_snapshot_reads_back_as_it_was() -> None:
    read = replay(encode_record(record) for record in snapshot_records("boot", [RUNNING, ENDED, STARTING]))
    assert read.boot_id == "boot"
    assert list(read.tasks.values()) == [RUNNING, ENDED, STARTING]
    assert read.damaged == 0


def test_later_lines_change_what_earlier_ones_said() -> None:
    lines = [encode_record(record) for record in snapshot_records("boot", [RUNNING, ENDED])]
    lines += [encode_record(exit_record("a", Exit(5))), encode_record(forget_record("b"))]
    assert replay(lines).tasks == {"a": RUNNING._replace(exit=Exit(5))}


def test_a_damaged_line_costs_only_its_own_record() -> None:
    lines = [encode_record(record) for record in snapshot_records("boot", [RUNNING, ENDED])]
    for place in range(len(lines)):
        for broken in (lines[place][:-9], b"\0" + lines[place][1:], lines[place].replace(b"a", b"b", 1), b"\n"):
            read = replay([*lines[:place], broken, *lines[place + 1 :]])
            assert read.damaged >= 1
            assert set(read.tasks) <= {"a", "b"}


def test_a_line_with_the_wrong_checksum_is_no_record() -> None:
    line = encode_record({"op": "boot", "boot_id": "x"})
    assert decode_record(line) == {"op": "boot", "boot_id": "x"}
    assert decode_record(line.replace(b'"x"', b'"y"')) is None
