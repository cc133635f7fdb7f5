"""Files below a directory that strangers write to."""

import os
from pathlib import Path

import pytest

from lepa.client import confined
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
