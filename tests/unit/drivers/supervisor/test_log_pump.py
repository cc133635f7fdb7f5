import os
from pathlib import Path

from lepa.drivers.supervisor.log_pump import LogPump, RotatedFile, find_pipe, open_pipe, pipe_number
from lepa.drivers.supervisor.messages import LogFiles


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_files_are_cut_at_line_ends_and_the_oldest_go(tmp_path: Path) -> None:
    file = RotatedFile(LogFiles(str(tmp_path / "t.stdout"), files_max=2, bytes_max=8))
    file.write(memoryview(b"one\ntwo\nthree\nfour\n"))
    file.close()
    assert contents(tmp_path) == {"t.stdout.1": "three\n", "t.stdout.2": "four\n"}


def test_a_new_writer_goes_on_in_the_newest_file_and_knows_whether_a_line_is_open(tmp_path: Path) -> None:
    (tmp_path / "t.stdout.4").write_text("half")
    file = RotatedFile(LogFiles(str(tmp_path / "t.stdout"), bytes_max=5))
    file.write(memoryview(b" line\nnext\n"))
    file.close()
    assert contents(tmp_path) == {"t.stdout.4": "half line\n", "t.stdout.5": "next\n"}


def test_a_link_in_the_place_of_a_log_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/t.stdout.0").symlink_to(tmp_path / "victim")
    file = RotatedFile(LogFiles(str(tmp_path / "logs/t.stdout")))
    file.write(memoryview(b"data\n"))
    assert file.dropped_bytes == 5
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_pipe_is_carried_into_files_until_its_last_writer_is_gone(tmp_path: Path) -> None:
    reader, writer = open_pipe()
    pump = LogPump(reader, LogFiles(str(tmp_path / "t.stdout")))
    os.write(writer, b"hello\n")
    assert pump.pump()
    assert pump.pump()
    os.close(writer)
    assert not pump.pump()
    pump.close()
    assert contents(tmp_path) == {"t.stdout.0": "hello\n"}


def test_what_was_written_while_nobody_read_is_found_again(tmp_path: Path) -> None:
    reader, writer = open_pipe()
    number = pipe_number(reader)
    os.close(reader)
    os.write(writer, b"kept\n")
    pump = LogPump(find_pipe(number, [2**22 + 1, os.getpid()]), LogFiles(str(tmp_path / "t.stdout")))
    pump.pump()
    os.close(writer)
    assert not pump.pump()
    pump.close()
    assert contents(tmp_path) == {"t.stdout.0": "kept\n"}


def test_a_pipe_that_nobody_holds_is_not_found() -> None:
    assert find_pipe(1, [os.getpid()]) == -1
