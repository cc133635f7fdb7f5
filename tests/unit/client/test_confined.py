"""Files below a directory that strangers write to."""

import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path

import pytest

from lepa.client import confined
from lepa.client.alloc_dir import AllocDir
from lepa.client.files import list_files
from lepa.model.errors import LepaError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "dir/file").write_text("text")
    (root / "out").symlink_to("../outside")
    (root / "absolute").symlink_to(tmp_path / "outside/secret")
    (root / "in").symlink_to("dir")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    return root


def read(root: Path, path: str) -> bytes:
    with confined.open_file(root, path) as file:
        return file.read()


def test_files_and_links_inside_can_be_read(root: Path) -> None:
    assert read(root, "/dir/file") == b"text"
    assert read(root, "in/file") == b"text"
    assert read(root, "dir/../in/./file") == b"text"


@pytest.mark.parametrize("path", ["out/secret", "absolute", "../outside/secret", "dir/../../outside/secret"])
def test_what_leads_outside_is_refused(root: Path, path: str) -> None:
    with pytest.raises(LepaError, match="escapes"):
        read(root, path)
    with pytest.raises(LepaError, match="escapes"):
        confined.write_file(root, os.path.join(path, "new"), b"")


@pytest.mark.parametrize("path", ["one", "two/file", "x" * 300, "x/" * 5000])
def test_what_leads_nowhere_is_told(root: Path, path: str) -> None:
    with pytest.raises(LepaError):
        read(root, path)


def test_a_link_put_in_place_after_the_look_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = confined.inside

    def swap(base: Path, path: str) -> Path:
        found = real(base, path)
        if (root / "dir").is_dir() and not (root / "dir").is_symlink():
            (root / "dir").rename(root / "old")
            (root / "dir").symlink_to("../outside")
        return found

    monkeypatch.setattr(confined, "inside", swap)
    with pytest.raises(LepaError):
        read(root, "dir/secret")


ROUNDS = 250
EXCHANGE = 2
"""Of renameat2: both names change places at one moment."""


def test_a_task_that_swaps_its_folder_all_the_time_leads_nobody_out(root: Path, tmp_path: Path) -> None:
    """S5, a thousand calls: read, list, write and move in while a folder is a link every other moment."""
    source, ended = tmp_path / "source", threading.Event()
    source.mkdir()
    alloc = AllocDir(tmp_path, "root")

    (root / "spare").symlink_to("../outside")
    exchange = ctypes.CDLL(None, use_errno=True).renameat2

    def swap() -> None:
        while not ended.is_set():
            assert exchange(-1, bytes(root / "dir"), -1, bytes(root / "spare"), EXCHANGE) == 0

    task = threading.Thread(target=swap)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    task.start()
    done = dict.fromkeys(("read", "list", "write", "move"), 0)
    try:
        for _ in range(ROUNDS):
            with contextlib.suppress(LepaError):
                assert read(root, "dir/secret") == b""
            with contextlib.suppress(LepaError):
                done["read"] += read(root, "dir/file") == b"text"
            with contextlib.suppress(LepaError):
                assert "secret" not in [entry.name for entry in list_files(alloc, "dir")]
                done["list"] += 1
            with contextlib.suppress(LepaError):
                confined.write_file(root, "dir/new", b"x")
                done["write"] += 1
            (source / "came").write_text("x")
            with contextlib.suppress(LepaError):
                confined.move_into(source, root, "dir")
                done["move"] += 1
    finally:
        ended.set()
        task.join()
        sys.setswitchinterval(interval)
    assert sorted(os.listdir(tmp_path / "outside")) == ["secret"]
    assert (tmp_path / "outside/secret").read_text() == "secret"
    assert all(done.values()), f"nothing was ever done: {done}"


def test_pipes_and_directories_are_no_files(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(LepaError, match="not a regular file"):
        read(root, "pipe")
    with pytest.raises(LepaError, match="is a directory"):
        read(root, "dir")
    with pytest.raises(LepaError, match="no such file"):
        read(root, "dir/none")
    with pytest.raises(LepaError, match="is a directory"):
        read(root, "/")


def test_a_file_is_written_whole_and_a_link_is_replaced(root: Path, tmp_path: Path) -> None:
    confined.write_file(root, "new/deep/file", b"data", mode=0o640)
    assert (root / "new/deep/file").read_bytes() == b"data"
    assert (root / "new/deep/file").stat().st_mode & 0o777 == 0o640
    confined.write_file(root, "absolute", b"mine")
    assert not (root / "absolute").is_symlink()
    assert (tmp_path / "outside/secret").read_text() == "secret"
    assert not list((root / "new/deep").glob(".*"))


def test_a_full_disk_is_our_trouble_and_a_closed_file_the_callers() -> None:
    assert confined.cannot("x", OSError(28, "No space left on device")).code == "internal"
    assert confined.cannot("x", PermissionError(13, "Permission denied")).code == "invalid"


def test_directories_are_merged_and_equal_names_replaced(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "file").write_text("new")
    (source / "sub/one").write_text("1")
    (source / "link").symlink_to("file")
    confined.move_into(source, root, "dir")
    assert (root / "dir/file").read_text() == "new"
    assert (root / "dir/sub/one").read_text() == "1"
    assert (root / "dir/link").is_symlink()
    with pytest.raises(LepaError, match="escapes"):
        confined.move_into(source, root, "out")


def test_a_nul_character_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="NUL"):
        confined.inside(tmp_path, "a\0b")
