"""Follows one stream of a task over its rotated files, from where it was left.

The directory belongs to the tasks as much as to the agent: only plain files are opened, and never by way of a link.
"""

import contextlib
import os
import stat
from typing import NamedTuple

from lepa.drivers.supervisor.rotation import log_number

READ_BYTES = 256 * 1024
LINE_BYTES_MAX = 64 * 1024
"""A longer line is sent in pieces."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(NamedTuple):
    """A position: the file's number and the offset in it."""

    number: int = 0
    offset: int = 0


class Piece(NamedTuple):
    """Whole lines, where the next ones begin, and how many files were gone before anyone read them."""

    lines: list[bytes]
    place: Place
    files_lost: int = 0


class Tail:
    """directory, base: `<directory>/<base>.N`."""

    def __init__(self, directory: str, base: str) -> None:
        self._directory = directory
        self._base = base

    def newest(self) -> Place:
        """The end of what is there now."""
        numbers = self._numbers()
        if not numbers:
            return Place()
        with contextlib.suppress(OSError):
            return Place(numbers[-1], os.stat(self._path(numbers[-1]), follow_symlinks=False).st_size)
        return Place(numbers[-1])

    def read(self, place: Place, *, rest: bool = False) -> Piece:
        """What comes after `place`; an empty piece when there is nothing yet. rest: also a line without an end."""
        lost = 0
        numbers = self._numbers()
        if numbers and place.number < numbers[0]:
            lost = numbers[0] - place.number
            place = Place(numbers[0])
        data = self._bytes(place)
        whole = data[: data.rfind(b"\n") + 1]
        later = bool(numbers) and place.number < numbers[-1]
        if not whole and (len(data) >= LINE_BYTES_MAX or (data and (rest or later))):
            whole = data[:LINE_BYTES_MAX]
        if whole:
            lines = whole.split(b"\n")
            if not lines[-1]:
                lines.pop()
            return Piece(lines, Place(place.number, place.offset + len(whole)), lost)
        if later and not data:
            following = next((number for number in numbers if number > place.number), place.number)
            return self.read(Place(following), rest=rest)._replace(files_lost=lost)
        return Piece([], place, lost)

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        return sorted(number for name in names if (number := log_number(name, self._base)) is not None)

    def _bytes(self, place: Place) -> bytes:
        try:
            fd = os.open(self._path(place.number), _FLAGS)
        except OSError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            return os.pread(fd, READ_BYTES, place.offset)
        finally:
            os.close(fd)

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, f"{self._base}.{number}")
