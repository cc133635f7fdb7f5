"""Pure: the newest lines of an event stream, from which many subscribers are served.

Lines stand in the order of their index and have places, counted from the first line that ever was. What follows a place
is joined once for all who have come as far as that.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

PIECE_MAX: Final = 64 * 1024
"""Bytes that are given at once, unless a single line is longer."""


class Piece(NamedTuple):
    """Lines that follow a place. chunk: the same as one chunk of HTTP/1.1. after: the place behind them."""

    lines: bytes
    chunk: bytes
    after: int


class Ring:
    """Lines up to a number of bytes, the newest at least. since: the index from which on none is missing."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.last_index = 0
        self.begin = 0
        self._indexes: list[int] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._pieces: dict[int, Piece] = {}

    @property
    def end(self) -> int:
        """The place behind the newest line."""
        return self.begin + len(self._lines)

    def add(self, index: int, line: bytes, bytes_max: int) -> None:
        """Add the newest line, and forget the oldest until all fit."""
        self._indexes.append(index)
        self._lines.append(line)
        self._size += len(line)
        self._pieces.clear()
        self.last_index = index
        gone = 0
        while self._size > bytes_max and gone < len(self._lines) - 1:
            self._size -= len(self._lines[gone])
            gone += 1
        if gone:
            self.since = self._indexes[gone - 1] + 1
            self.begin += gone
            del self._indexes[:gone], self._lines[:gone]

    def place_of(self, index: int) -> int:
        """The place of the first line with this index or a later one, `end` when there is none yet."""
        return self.begin + bisect_left(self._indexes, index)

    def piece(self, place: int) -> Piece:
        """What follows a place from `begin` on and before `end`."""
        found = self._pieces.get(place)
        if found is None:
            lines = list(self._short_enough(place))
            joined = b"".join(lines)
            found = Piece(joined, as_chunk(joined), place + len(lines))
            self._pieces[place] = found
        return found

    def _short_enough(self, place: int) -> Iterator[bytes]:
        size = 0
        for line in self._lines[place - self.begin :]:
            size += len(line)
            if size > PIECE_MAX and size > len(line):
                return
            yield line


def as_chunk(data: bytes) -> bytes:
    """Bytes as one chunk of HTTP/1.1 (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)
