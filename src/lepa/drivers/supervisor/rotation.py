"""Pure: where a task's output is cut into files.

Files `<base>.0`, `<base>.1`, … are broken at line ends: a line that has begun is finished in its file even when the
file grows past its limit, by at most LINE_BYTES_MAX; only longer lines are cut.
"""

from collections.abc import Iterable
from typing import NamedTuple

LINE_BYTES_MAX = 64 * 1024
"""How far a file may grow past its limit so that a line stays whole."""


class Cut(NamedTuple):
    """How to write a piece of output: `take` bytes of it to the present file, the rest to the next one if `rotate`."""

    take: int
    rotate: bool


def cut(piece: bytes | memoryview, size: int, limit: int, mid_line: bool) -> Cut:
    """Decide how much of `piece` goes into a file that has `size` of `limit` bytes.

    mid_line: the file ends inside a line. A rotation is never decided for an empty file.
    """
    if size + len(piece) <= limit:
        return Cut(len(piece), rotate=False)
    room = max(0, limit - size)
    fitting = bytes(piece[:room]).rfind(b"\n") + 1
    if fitting:
        return Cut(fitting, rotate=True)
    if size and not mid_line:
        return Cut(0, rotate=True)
    reach = room + max(0, LINE_BYTES_MAX - max(0, size - limit))
    line_end = bytes(piece[:reach]).find(b"\n") + 1
    if line_end:
        return Cut(line_end, rotate=True)
    return Cut(min(len(piece), reach), rotate=len(piece) >= reach)


def log_number(name: str, base: str) -> int | None:
    """The rotation number of a file: "web.stdout.12" of base "web.stdout" is 12; None for any other file."""
    stem, _, number = name.rpartition(".")
    return int(number) if stem == base and number.isascii() and number.isdigit() else None


def newest(names: Iterable[str], base: str) -> int:
    """The highest rotation number among `names`, 0 when there is none."""
    return max((number for name in names if (number := log_number(name, base)) is not None), default=0)


def expired(names: Iterable[str], base: str, current: int, files_max: int) -> list[str]:
    """The files to remove so that at most `files_max` remain, `current` included."""
    oldest_kept = current - max(1, files_max) + 1
    return sorted(name for name in names if (number := log_number(name, base)) is not None and number < oldest_kept)
