"""Where a command writes: plain in a pipe, with colours on a terminal."""

import sys
from typing import TextIO

from lepa.cli.output import bare, paint


class Terminal:
    """Standard output and standard error. live: may lines be drawn over again?"""

    def __init__(self, out: TextIO, errors: TextIO, *, colour: bool, live: bool) -> None:
        self._out = out
        self._errors = errors
        self.colour = colour
        self.live = live

    def line(self, text: str = "") -> None:
        """Print a line, or several."""
        self._out.write(f"{text if self.colour else bare(text)}\n")

    def write(self, data: bytes) -> None:
        """Print bytes as they are, at once."""
        self._out.flush()
        buffer = getattr(self._out, "buffer", None)
        if buffer is None:
            self._out.write(data.decode("utf-8", "replace"))
        else:
            buffer.write(data)
            buffer.flush()

    def write_error(self, data: bytes) -> None:
        """Bytes to standard error, at once."""
        self._errors.write(data.decode("utf-8", "replace"))
        self._errors.flush()

    def title(self, text: str) -> None:
        """Print an empty line and a heading."""
        self.line(f"\n{paint(text, 'bold')}")

    def error(self, text: str) -> None:
        """Print to standard error."""
        self._errors.write(f"{bare(text)}\n")

    def flush(self) -> None:
        """Let what was printed be seen."""
        self._out.flush()


def terminal(*, no_color: bool = False, force_color: bool = False) -> Terminal:
    """The process's own; colours where a person is looking, unless told otherwise."""
    live = sys.stdout.isatty()
    return Terminal(sys.stdout, sys.stderr, colour=force_color or (live and not no_color), live=live)
