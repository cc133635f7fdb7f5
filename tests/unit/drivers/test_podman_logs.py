"""Following Podman's file over its rotations."""

import os
from pathlib import Path

from tests.clocks import ManualClock

from lepa.drivers.podman_logs import PodmanLogs, parse_line, read_place
from lepa.drivers.supervisor.messages import LogFiles


def test_lines_and_pieces_of_lines() -> None:
    assert parse_line(b"2024-01-01T00:00:00.1Z stdout F a b\n") == ("stdout", b"a b\n")
    assert parse_line(b"2024-01-01T00:00:00.1Z stderr P half\n") == ("stderr", b"half")
    assert parse_line(b"2024-01-01T00:00:00.1Z stdout F \n") == ("stdout", b"\n")
    assert parse_line(b"torn\n")[1] == b""


async def test_a_replaced_file_is_read_to_its_end_first(tmp_path: Path) -> None:
    path = tmp_path / "ctr.log"
    path.write_text("t stdout F one\nt stderr F bad\n")
    files = {"stdout": LogFiles(str(tmp_path / "out")), "stderr": LogFiles(str(tmp_path / "err"))}
    logs = PodmanLogs(str(path), files, str(tmp_path / "at" / "place"), ManualClock())
    assert logs._copy()
    with path.open("a") as file:
        file.write("t stdout P tw")
    assert not logs._copy(), "the line has not ended"
    with path.open("a") as file:
        file.write("o\nt stdout F  and more\n")
    (tmp_path / "new").write_text("t stdout F three\n")
    os.replace(tmp_path / "new", path)
    await logs.run(lambda: True)
    assert (tmp_path / "out.0").read_text() == "one\ntwo and more\nthree\n"
    assert (tmp_path / "err.0").read_text() == "bad\n"
    place = read_place(str(tmp_path / "at" / "place"))
    assert place.inode == path.stat().st_ino
    with path.open("a") as file:
        file.write("t stdout F four\n")
    await PodmanLogs(str(path), files, str(tmp_path / "at" / "place"), ManualClock()).run(lambda: True)
    assert (tmp_path / "out.0").read_text().endswith("three\nfour\n")
    assert read_place(str(tmp_path / "nothing")) == (0, 0)
