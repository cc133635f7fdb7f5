"""Is the write-ahead log beside an SQLite file as it was written?

SQLite reads its log up to the first frame that does not fit its checksum and forgets the rest without a word. That is
right for what a power cut left half written: the one transaction that was not synced yet. It is wrong for a log that
was damaged later, because commits that were synced go with the rest. The two can be told apart: frames of a later
transaction are written only after the sync of the one before. So a frame that stands behind a commit that SQLite leaves
out was written after this commit was on the disk, and what is missing was there once.

No locks are in the log, so it may be read beside SQLite, and before it.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">8I")
"""Magic, version, page size, number of checkpoints, two salts, two checksums of what stands before."""
_FRAME: Final = struct.Struct(">6I")
"""Page, size of the file after a commit (0 for none), two salts, two checksums; then the page."""
_LITTLE, _BIG = 0x377F0682, 0x377F0683
_WORD: Final = 0xFFFFFFFF


class LogState(NamedTuple):
    """damage: what is wrong with it, "" for nothing. left_out: frames of a last transaction that was not whole."""

    damage: str = ""
    left_out: int = 0


def look(path: Path) -> LogState:
    """The log of the file at `path`."""
    log = Path(f"{path}-wal")
    content = log.read_bytes() if log.exists() else b""
    return look_at(content)


def look_at(content: bytes) -> LogState:
    """A whole log."""
    if len(content) <= _HEADER.size:
        return LogState()
    header = _HEADER.unpack_from(content)
    order = ">" if header[0] == _BIG else "<"
    if header[0] not in (_LITTLE, _BIG) or _sum(struct.unpack_from(f"{order}6I", content), 0, 0) != header[6:]:
        return LogState("the head of its log is not as it was written")
    frames = list(_frames(content, header[2], order, header[4:6], header[6:]))
    commits = [at for at, frame in enumerate(frames) if frame.sound and frame.commits]
    left_out = [frame for frame in frames[commits[-1] + 1 if commits else 0 :] if frame.ours]
    if any(frame.commits for frame in left_out[:-1]):
        return LogState("its log is not as it was written: writes that were kept cannot be read")
    return LogState(left_out=len(left_out))


class _Frame(NamedTuple):
    """ours: of this log, not left from what was there before. sound: it fits its checksum and what stands before."""

    ours: bool
    sound: bool
    commits: bool


def _frames(content: bytes, page_bytes: int, order: str, salts: Sequence[int], sums: Sequence[int]) -> Iterator[_Frame]:
    page = struct.Struct(f"{order}{page_bytes // 4}I")
    first_words = struct.Struct(f"{order}2I")
    at, whole = _HEADER.size, True
    while at + _FRAME.size <= len(content):
        found = _FRAME.unpack_from(content, at)
        ours = found[2:4] == salts
        whole = whole and ours and at + _FRAME.size + page_bytes <= len(content)
        if whole:
            start = _sum(first_words.unpack_from(content, at), *sums)
            sums = found[4:]
            whole = _sum(page.unpack_from(content, at + _FRAME.size), *start) == sums
        yield _Frame(ours, whole, found[1] != 0)
        at += _FRAME.size + page_bytes


def _sum(words: Sequence[int], first: int, second: int) -> tuple[int, int]:
    """SQLite's checksum, going on from one before."""
    pairs = iter(words)
    for one, other in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
