"""Entries of a stranger's tar archive."""

import io
import tarfile
from pathlib import Path

import pytest

from lepa.kit.tar_guard import TarGuard, UnsafeEntry, open_for_reading


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "entries",
    [
        [entry("a"), entry("d", tarfile.DIRTYPE), entry("./d/b")],
        [entry("d/link", tarfile.SYMTYPE, "../a")],
        [entry("link", tarfile.SYMTYPE, "d/b"), entry("a")],
        [entry("a"), entry("d/hard", tarfile.LNKTYPE, "a")],
    ],
)
def test_what_stays_inside_may_be_unpacked(entries: list[tarfile.TarInfo]) -> None:
    guard = TarGuard()
    for one in entries:
        guard.check(one)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry("../out")], "leads outside"),
        ([entry("/etc/passwd")], "leads outside"),
        ([entry("a/../../out")], "leads outside"),
        ([entry("link", tarfile.SYMTYPE, "/etc")], "leads outside"),
        ([entry("d/link", tarfile.SYMTYPE, "../../out")], "leads outside"),
        ([entry("link", tarfile.SYMTYPE, "a/../../out")], "leads outside"),
        ([entry("hard", tarfile.LNKTYPE, "../../etc/passwd")], "leads outside"),
        ([entry("dev", tarfile.CHRTYPE)], "device or a pipe"),
        ([entry("pipe", tarfile.FIFOTYPE)], "device or a pipe"),
        ([entry("p/q/s", tarfile.SYMTYPE, "../.."), entry("p/q/s/l", tarfile.SYMTYPE, "../../../x")], "through a link"),
        ([entry("s", tarfile.SYMTYPE, "d"), entry("hard", tarfile.LNKTYPE, "s/x")], "through a link"),
        ([entry("s", tarfile.SYMTYPE, "d"), entry("s")], "replaces a link"),
    ],
)
def test_what_could_lead_out_is_refused(entries: list[tarfile.TarInfo], message: str) -> None:
    guard = TarGuard()
    for one in entries[:-1]:
        guard.check(one)
    with pytest.raises(UnsafeEntry, match=message):
        guard.check(entries[-1])


def test_an_archive_is_unpacked_as_the_guard_says(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        file = entry("d/a")
        file.size = 2
        made.addfile(file, io.BytesIO(b"hi"))
        made.addfile(entry("link", tarfile.SYMTYPE, "d/a"))
    packed.seek(0)
    with tarfile.open(fileobj=packed) as opened:
        guard = open_for_reading(opened)
        for one in opened:
            guard.check(one)
            opened.extract(one, tmp_path, set_attrs=False)
    assert (tmp_path / "link").read_bytes() == b"hi"
