"""Archives from strangers."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from lepa.client.hooks import archives
from lepa.model.errors import LepaError


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


def zipped(name: str, data: bytes, mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, data)
    return out.getvalue()


def unpack(folder: Path, data: bytes, kind: str, **bounds: int) -> Path:
    (folder / "archive").write_bytes(data)
    target = folder / "target"
    target.mkdir()
    archives.unpack(folder / "archive", kind, target, f"file.{kind}", **bounds)
    return target


def test_a_tar_with_links(tmp_path: Path) -> None:
    data = tar((entry("dir/file"), b"text"), (entry("link", tarfile.SYMTYPE, "dir/file"), b""))
    target = unpack(tmp_path, data, "tar.xz")
    assert (target / "link").read_bytes() == b"text"


def test_a_zip_keeps_what_may_be_executed(tmp_path: Path) -> None:
    target = unpack(tmp_path, zipped("bin/tool", b"x", 0o100755), "zip")
    assert (target / "bin/tool").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("kind", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_single_files(tmp_path: Path, kind: str, pack: object) -> None:
    assert callable(pack)
    assert (unpack(tmp_path, pack(b"text"), kind) / "file").read_bytes() == b"text"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("tar", tar((entry("../out"), b"x"))),
        ("tar", tar((entry("dev", tarfile.CHRTYPE), b""))),
        ("tar", tar((entry("link", tarfile.SYMTYPE, "/etc"), b""))),
        ("tar", tar((entry("hard", tarfile.LNKTYPE, "../../etc/passwd"), b""))),
        ("tar", tar((entry("d", tarfile.SYMTYPE, "."), b""), (entry("d/../../out"), b"x"))),
        ("zip", zipped("../out", b"x")),
        ("zip", zipped("/out", b"x")),
        ("zip", zipped("link", b"/etc", 0o120777)),
        ("zip", b"PK nothing"),
        ("tar", b"nothing"),
        ("gz", b"nothing"),
        ("gz", gzip.compress(b"x" * 1000, mtime=0)[:-12]),
        ("xz", b"nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_hostile_or_broken_is_refused(tmp_path: Path, kind: str, data: bytes) -> None:
    with pytest.raises(LepaError):
        unpack(tmp_path, data, kind)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("gz", gzip.compress(bytes(100_000), mtime=0)),
        ("zip", zipped("x", bytes(100_000))),
        ("tar", tar((entry("x"), bytes(100_000)))),
    ],
)
def test_a_bomb_is_stopped_at_the_bound(tmp_path: Path, kind: str, data: bytes) -> None:
    """Case B247."""
    with pytest.raises(LepaError, match="more than 50000 bytes"):
        unpack(tmp_path, data, kind, size=50_000)
    assert sum(path.stat().st_size for path in (tmp_path / "target").iterdir()) <= 50_000


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="more than 3 entries"):
        unpack(tmp_path, tar(*((entry(str(n)), b"") for n in range(5))), "tar", files=3)


def test_a_file_through_a_link_of_the_same_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match='entry "l/y" leads through a link of the archive'):
        unpack(
            tmp_path,
            tar((entry("d", tarfile.DIRTYPE), b""), (entry("l", tarfile.SYMTYPE, "d"), b""), (entry("l/y"), b"x")),
            "tar",
        )
