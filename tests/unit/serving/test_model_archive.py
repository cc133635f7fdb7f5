"""lepa.serving.model_archive"""

import io
import tarfile
from pathlib import Path

import pytest

from lepa.model.errors import LepaError
from lepa.serving.model_archive import ArchiveImage, digest, pack, parse_image, unpack


def test_a_directory_survives_and_equal_files_have_equal_names(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "modules").mkdir(parents=True)
    (source / "model.json").write_text("{}")
    (source / "modules" / "a.py").write_text("x = 1")
    archive = pack(source)
    (source / "model.json").touch()
    assert pack(source) == archive
    unpack(archive, ArchiveImage("m", "1", digest(archive)), tmp_path / "target")
    assert (tmp_path / "target" / "modules" / "a.py").read_text() == "x = 1"


def test_an_image_names_its_archive() -> None:
    image = ArchiveImage("m", "1", "ab")
    assert parse_image(str(image)) == image
    assert image.path == "/admin/model_archive/m/1"
    for text in ("m", "archive:m", "/model"):
        with pytest.raises(LepaError, match="expected archive:NAME:VERSION:SHA256"):
            parse_image(text)


def test_another_archive_than_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="was published again"):
        unpack(b"other", ArchiveImage("m", "1", "ab"), tmp_path)


def test_an_archive_cannot_write_outside_of_its_directory(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    archive = buffer.getvalue()
    with pytest.raises(LepaError, match="cannot be unpacked"):
        unpack(archive, ArchiveImage("m", "1", digest(archive)), tmp_path / "in")
    assert not (tmp_path / "outside").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="cannot be unpacked"):
        unpack(b"junk", ArchiveImage("m", "1", digest(b"junk")), tmp_path)
