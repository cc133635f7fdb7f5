"""Following rotated files."""

import os
from pathlib import Path

import pytest

from lepa.client.shipping.tail import LINE_BYTES_MAX, Place, Tail


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(str(tmp_path), "main.stdout")


def write(folder: Path, number: int, text: str) -> None:
    with (folder / f"main.stdout.{number}").open("a") as file:
        file.write(text)


def test_whole_lines_over_a_rotation(tail: Tail, tmp_path: Path) -> None:
    assert tail.read(Place()) == ([], Place(), 0)
    write(tmp_path, 0, "one\ntwo\nthr")
    piece = tail.read(Place())
    assert piece == ([b"one", b"two"], Place(0, 8), 0)
    assert tail.read(piece.place).lines == []
    write(tmp_path, 0, "ee\n")
    piece = tail.read(piece.place)
    assert piece == ([b"three"], Place(0, 14), 0)
    write(tmp_path, 1, "four\n\n")
    assert tail.read(piece.place) == ([b"four", b""], Place(1, 6), 0)
    assert tail.newest() == Place(1, 6)


def test_files_that_went_unread_are_counted(tail: Tail, tmp_path: Path) -> None:
    write(tmp_path, 3, "late\n")
    assert tail.read(Place(0, 100)) == ([b"late"], Place(3, 5), 3)


def test_a_line_without_an_end_is_sent_with_the_end_of_its_file_or_task(tail: Tail, tmp_path: Path) -> None:
    write(tmp_path, 0, "cut")
    assert tail.read(Place()).lines == []
    assert tail.read(Place(), rest=True) == ([b"cut"], Place(0, 3), 0)
    write(tmp_path, 1, "next\n")
    assert tail.read(Place()).lines == [b"cut"]


def test_an_endless_line_comes_in_pieces(tail: Tail, tmp_path: Path) -> None:
    write(tmp_path, 0, "x" * (2 * LINE_BYTES_MAX))
    piece = tail.read(Place())
    assert piece.lines == [b"x" * LINE_BYTES_MAX]
    assert piece.place == Place(0, LINE_BYTES_MAX)


def test_links_and_pipes_in_the_place_of_a_file_are_not_followed(tail: Tail, tmp_path: Path) -> None:
    """Case B257, and S5: a task may put anything into its log directory."""
    (tmp_path / "secret").write_text("host's own\n")
    (tmp_path / "main.stdout.0").symlink_to(tmp_path / "secret")
    assert tail.read(Place(), rest=True).lines == []
    (tmp_path / "main.stdout.0").unlink()
    os.mkfifo(tmp_path / "main.stdout.0")
    assert tail.read(Place(), rest=True).lines == []
