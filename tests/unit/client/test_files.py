"""Files and logs as the API shows them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lepa.client import files
from lepa.client.alloc_dir import AllocDir
from lepa.client.files import LogFiles, starting_point
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError

CLOCK = SystemClock()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[AllocDir]:
    found = AllocDir(tmp_path, "a")
    found.build(["web"])
    for number, text in enumerate(("one\n", "two\n", "three\n"), 3):
        (found.logs / f"web.stdout.{number}").write_text(text)
    yield found
    found.destroy()


async def logs(directory: AllocDir, offset: int = 0, origin: str = "start") -> bytes:
    frames = files.stream_logs(LogFiles(directory, "web", "stdout"), CLOCK, offset=offset, origin=origin, follow=False)
    return b"".join([frame.data async for frame in frames])


def test_entries(directory: AllocDir) -> None:
    entries = files.list_files(directory, "alloc/logs")
    assert [entry.name for entry in entries] == ["web.stdout.3", "web.stdout.4", "web.stdout.5"]
    assert entries[0].file_mode.startswith("-rw")
    root = files.stat_file(directory, "/")
    assert root.is_dir
    assert root.file_mode == "drwx--x--x"
    assert files.stat_file(directory, "alloc/logs/web.stdout.5").size == 6
    with pytest.raises(LepaError, match="no such file"):
        files.list_files(directory, "nothing")


def test_a_piece_of_a_file(directory: AllocDir) -> None:
    assert files.read_file(directory, "alloc/logs/web.stdout.5", 1, 3) == b"hre"
    assert files.read_file(directory, "alloc/logs/web.stdout.5", 100, -1) == b""


async def test_rotated_logs_are_one_text(directory: AllocDir) -> None:
    assert await logs(directory) == b"one\ntwo\nthree\n"
    assert await logs(directory, 5) == b"wo\nthree\n"
    assert await logs(directory, 8, "end") == b"o\nthree\n"
    assert await logs(directory, 1000, "end") == b"one\ntwo\nthree\n"
    assert [await logs(directory) for _ in range(5)] == [await logs(directory)] * 5


def test_where_reading_begins() -> None:
    sizes = [(1, 10), (2, 10), (3, 5)]
    assert starting_point(sizes, 0, "start") == (1, 0)
    assert starting_point(sizes, 12, "start") == (2, 2)
    assert starting_point(sizes, 99, "start") == (3, 5)
    assert starting_point(sizes, 0, "end") == (3, 5)
    assert starting_point(sizes, 7, "end") == (2, 8)
    assert starting_point(sizes, 99, "end") == (1, 0)


async def test_a_link_in_place_of_a_log_is_not_read(directory: AllocDir) -> None:
    """Case B257."""
    (directory.logs / "web.stdout.4").unlink()
    (directory.logs / "web.stdout.4").symlink_to("/etc/passwd")
    assert await logs(directory) == b"one\nthree\n"


async def test_a_followed_file_tells_of_its_truncation_and_end(directory: AllocDir) -> None:
    path = directory.logs / "web.stdout.5"
    frames = files.stream_file(directory, "alloc/logs/web.stdout.5", CLOCK, offset=2, origin="end", follow=True)
    async with contextlib.aclosing(frames):  # type: ignore[type-var]
        assert (await anext(frames)).data == b"e\n"
        path.write_text("")
        assert (await anext(frames)).file_event == "file truncated"
        path.write_text("new")
        assert (await anext(frames)).data == b"new"
        path.unlink()
        assert (await anext(frames)).file_event == "file deleted"


async def test_a_stream_without_follow_ends(directory: AllocDir) -> None:
    frames = files.stream_file(directory, "alloc/logs/web.stdout.3", CLOCK, offset=1, origin="start", follow=False)
    assert [frame.data async for frame in frames] == [b"ne\n"]
    with pytest.raises(LepaError, match="no such file"):
        await anext(files.stream_file(directory, "none", CLOCK, offset=0, origin="start", follow=False))
