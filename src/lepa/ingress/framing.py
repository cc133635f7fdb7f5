"""Pure: where the body of an HTTP message ends (RFC 9112, section 6), without looking at more of it than needed.

A framing is fed what follows the head, piece by piece, and says how many bytes of each piece belong to the body; they
are passed on as they came, chunk sizes included. Chunks are checked strictly, for two readers that part messages
differently can be told different stories.
"""

import re
from typing import Protocol

CHUNK_LINE_MAX = 256
"""Bytes of a line with a chunk's size and extensions."""
TRAILER_MAX = 8_192
"""Bytes of all lines after the last chunk."""
SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n\0]*)?\r\n")
TRAILER_LINE = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*)?\r\n")


CHUNKED, UNTIL_CLOSE = -1, -2
"""Bodies whose length is not known beforehand."""


def framing_of(body: int) -> "Framing":
    """The framing of a body of this length, or CHUNKED or UNTIL_CLOSE."""
    if not body:
        return NO_BODY
    if body > 0:
        return Length(body)
    return Chunked() if body == CHUNKED else UntilClose()


class Framing(Protocol):
    """The rest of a body."""

    done: bool
    """Whether the body is complete."""

    def feed(self, data: bytes) -> int:
        """How many bytes at the beginning of `data` belong to the body. Raises ValueError for a malformed body."""


class NoBody:
    """A message that ends with its head."""

    __slots__ = ()
    done = True

    def feed(self, data: bytes) -> int:
        """Nothing belongs to it."""
        return 0


NO_BODY = NoBody()


class Length:
    """A body of a size known beforehand."""

    __slots__ = ("done", "left")

    def __init__(self, size: int) -> None:
        self.left = size
        self.done = size == 0

    def feed(self, data: bytes) -> int:
        """At most what is left."""
        taken = min(len(data), self.left)
        self.left -= taken
        self.done = not self.left
        return taken


class UntilClose:
    """A body that ends with its connection."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> int:
        """All of it."""
        return len(data)


class Chunked:
    """A body in chunks, with trailers."""

    __slots__ = ("_left", "_line", "_trailer", "done")

    def __init__(self) -> None:
        self.done = False
        self._left = 0
        """Bytes of the chunk that still come, its line end included; 0 between chunks."""
        self._line = b""
        """The beginning of a line that has not come whole."""
        self._trailer = -1
        """Bytes of trailers so far; -1 before them."""

    def feed(self, data: bytes) -> int:
        """Bytes up to the end of the body, or all of them. Raises ValueError."""
        place, size = 0, len(data)
        while place < size and not self.done:
            if self._left:
                place = self._skip(data, place)
            else:
                place = self._take_line(data, place)
        return place

    def _skip(self, data: bytes, place: int) -> int:
        """Pass the chunk's bytes, and check the two that end it."""
        taken = min(self._left, len(data) - place)
        end = place + taken
        for offset, expected in ((2, 13), (1, 10)):
            at = end + self._left - taken - offset
            if place <= at < end and data[at] != expected:
                raise ValueError("a chunk does not end where it said")
        self._left -= taken
        return end

    def _take_line(self, data: bytes, place: int) -> int:
        end = data.find(b"\n", place)
        whole = end >= 0
        stop = end + 1 if whole else len(data)
        line = self._line + data[place:stop]
        if len(line) > (CHUNK_LINE_MAX if self._trailer < 0 else TRAILER_MAX):
            raise ValueError("a line of a chunked body is too long")
        if not whole:
            self._line = line
            return stop
        self._line = b""
        if self._trailer < 0:
            self._begin_chunk(line)
        else:
            self._pass_trailer(line)
        return stop

    def _begin_chunk(self, line: bytes) -> None:
        found = SIZE_LINE.fullmatch(line)
        if not found:
            raise ValueError("a chunk has no size")
        size = int(found[1], 16)
        if size:
            self._left = size + 2
        else:
            self._trailer = 0

    def _pass_trailer(self, line: bytes) -> None:
        self._trailer += len(line)
        if self._trailer > TRAILER_MAX or not TRAILER_LINE.fullmatch(line):
            raise ValueError("trailers are malformed or too long")
        self.done = line == b"\r\n"
