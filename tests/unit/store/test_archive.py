"""A whole state as one file, and back."""

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.model.errors import LepaError
from lepa.store.archive import read, write
from lepa.store.protocol import Entry, Image

NOW = 1_700_000_000_123_456_789

entries = st.lists(
    st.builds(Entry, st.text(min_size=1), st.binary(), st.integers(0, 2**63), st.integers(0, 2**63)), max_size=20
)


def packed(*found: Entry, revision: int = 7) -> bytes:
    return b"".join(write(Image(revision, list(found)), NOW, "cluster", "eu", "0.1"))


@given(entries, st.integers(0, 2**63))
def test_an_archive_gives_back_what_was_put_in(found: list[Entry], revision: int) -> None:
    archive = read(io.BytesIO(packed(*found, revision=revision)))
    assert archive.image == Image(revision, found)
    meta = archive.meta
    assert (meta.index, meta.cluster, meta.region, meta.created) == (revision, "cluster", "eu", NOW)


def test_other_tools_read_it_and_its_checksums_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.snap"
    path.write_bytes(packed(Entry("jobs/a", b"x" * 1_000, 1, 2)))
    subprocess.run(["tar", "-xzf", path, "-C", tmp_path], check=True)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "state.bin").stat().st_size == 24 + len("jobs/a") + 1_000


def test_a_large_state_comes_in_pieces_of_bounded_size() -> None:
    image = Image(1, [Entry(f"k/{at}", bytes(100_000), 1, 1) for at in range(100)])
    assert max(map(len, write(image, NOW, "", "", ""))) < 1 << 20


def test_every_damaged_byte_is_noticed_or_does_not_matter() -> None:
    found = [Entry("jobs/a", b"value of a", 1, 2), Entry("jobs/b", b"value of b", 3, 4)]
    raw = packed(*found)
    for at in range(0, len(raw), 3):
        broken = bytearray(raw)
        broken[at] ^= 0x55
        try:
            archive = read(io.BytesIO(bytes(broken)))
        except LepaError:
            continue
        assert list(archive.entries) == found  # it was a byte of gzip's own, such as a time


def test_an_archive_that_is_cut_short_is_refused() -> None:
    raw = packed(Entry("jobs/a", b"value of a" * 100, 1, 2))
    for length in range(0, len(raw), 7):
        with pytest.raises(LepaError, match=r"damaged|not a snapshot"):
            read(io.BytesIO(raw[:length]))


def test_checksums_are_checked_though_gzip_is_content() -> None:
    raw = bytearray(gzip.decompress(packed(Entry("jobs/a", b"value of a", 1, 2))))
    at = raw.index(b"value of a")
    raw[at] ^= 1
    with pytest.raises(LepaError, match="checksums do not fit"):
        read(io.BytesIO(gzip.compress(bytes(raw))))


def test_something_else_is_refused_by_what_it_holds() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("state.snap"))
    with pytest.raises(LepaError, match=r'not a snapshot of lepa: it holds "state.snap"'):
        read(io.BytesIO(out.getvalue()))
    with pytest.raises(LepaError, match="damaged"):
        read(io.BytesIO(b"\x1f\x8bhello"))


def test_what_was_never_a_snapshot_is_not_called_a_damaged_one() -> None:
    with pytest.raises(LepaError, match=r"^this is not a snapshot: `lepa operator snapshot save` writes one"):
        read(io.BytesIO(b'job "web" {\n}\n'))
