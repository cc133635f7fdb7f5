"""Pure: what is wrong with a job file, where it is, and how a person is told.

The parser works with offsets into one text, which cost nothing; lines and columns are worked out only when something
has to be said. Lines and columns count from 1; a column counts characters; an end column is the one after the last.
"""

import re
from bisect import bisect_right
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning"]

DIAGNOSTICS_MAX = 100
"""A file that is wrong in more places than this is not a job file; the rest would help nobody."""

EXCERPT_WIDTH_MAX = 300
"""A place further right than this is in a line that no terminal shows; then there is no excerpt."""


class Source:
    """A text with the name that people know it by."""

    __slots__ = ("_line_starts", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._line_starts: list[int] = []

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of the character at `offset`."""
        if not self._line_starts:
            self._line_starts = [0, *(newline.end() for newline in re.finditer("\n", self.text))]
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of one line, without its end."""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

    def where(self, start: int, end: int) -> str:
        """`file:line,column-column`, as messages point at another place."""
        (line, column), (end_line, end_column) = self.position(start), self.position(end)
        return _place(self.name, line, column, end_line, end_column)


class Diagnostic(Struct, frozen=True):
    """One thing that is wrong (error) or doubtful (warning) in a file.

    summary: a few words that stay the same for every case of this kind. detail: a sentence that names the culprit and
    says what to do. excerpt: the source line; empty when the place is not in a text, or far out in a very long line.
    """

    severity: Severity
    summary: str
    detail: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    excerpt: str = ""

    def render(self) -> str:
        """One line: `job.nomad.hcl:3,5-9: Unsupported argument; An argument named "cuont" is not expected here.`"""
        message = f"{self.summary}; {self.detail}" if self.detail else self.summary
        if not self.line:
            return f"{self.file}: {message}" if self.file else message
        return f"{_place(self.file, self.line, self.column, self.end_line, self.end_column)}: {message}"

    def render_excerpt(self) -> str:
        """Several lines for a terminal: the message, the place, the source line and a caret under the culprit."""
        lines = [f"{self.severity.capitalize()}: {self.summary}"]
        if self.excerpt:
            margin = " " * len(str(self.line))
            lines += [f"{margin}--> {self.file}:{self.line}:{self.column}", f"{margin} |"]
            lines += [f"{self.line} | {self._shown()}", f"{margin} | {self._underline()}"]
        elif self.file:
            lines.append(f"  --> {self.file}:{self.line}:{self.column}" if self.line else f"  --> {self.file}")
        return "\n".join([*lines, self.detail]) if self.detail else "\n".join(lines)

    def _shown(self) -> str:
        return self.excerpt.replace("\t", " ")

    def _underline(self) -> str:
        last = min(self.end_column, len(self.excerpt) + 1) if self.end_line == self.line else len(self.excerpt) + 1
        return " " * (self.column - 1) + "^" * max(1, last - self.column)


def _place(file: str, line: int, column: int, end_line: int, end_column: int) -> str:
    end = f"{end_column}" if end_line == line else f"{end_line},{end_column}"
    return f"{file}:{line},{column}-{end}"


class Refusal(Exception):
    """A piece of a text that cannot be understood, raised where that is found and reported where one can go on."""

    def __init__(self, start: int, end: int, summary: str, detail: str = "") -> None:
        super().__init__(summary)
        self.start = start
        self.end = end
        self.summary = summary
        self.detail = detail


class Reporter:
    """Collects diagnostics about one source; reporters made with `beside` share the collection."""

    __slots__ = ("found", "source")

    def __init__(self, source: Source, found: list[Diagnostic] | None = None) -> None:
        self.source = source
        self.found: list[Diagnostic] = [] if found is None else found

    def beside(self, source: Source) -> "Reporter":
        """A reporter about another source with the same collection."""
        return Reporter(source, self.found)

    def error(self, start: int, end: int, summary: str, detail: str = "") -> None:
        """Note an error about the characters from `start` to before `end`."""
        self._note("error", start, end, summary, detail)

    def warning(self, start: int, end: int, summary: str, detail: str = "") -> None:
        """Note a doubt about the characters from `start` to before `end`."""
        self._note("warning", start, end, summary, detail)

    def refuse(self, refusal: Refusal) -> None:
        """Note a refusal that was raised about this source."""
        self._note("error", refusal.start, refusal.end, refusal.summary, refusal.detail)

    def general(self, summary: str, detail: str = "") -> None:
        """Note an error that has no place in a text, such as a flag."""
        self._add(Diagnostic("error", summary, detail, self.source.name))

    @property
    def failed(self) -> bool:
        """Was any error noted?"""
        return any(each.severity == "error" for each in self.found)

    @property
    def full(self) -> bool:
        """Would another finding be dropped?"""
        return len(self.found) >= DIAGNOSTICS_MAX

    def _note(self, severity: Severity, start: int, end: int, summary: str, detail: str) -> None:
        source = self.source
        size = len(source.text)
        start = min(start, size)
        (line, column), (end_line, end_column) = source.position(start), source.position(min(max(start, end), size))
        excerpt = source.line(line)[:EXCERPT_WIDTH_MAX] if column < EXCERPT_WIDTH_MAX else ""
        self._add(Diagnostic(severity, summary, detail, source.name, line, column, end_line, end_column, excerpt))

    def _add(self, diagnostic: Diagnostic) -> None:
        if not self.full and diagnostic not in self.found:
            self.found.append(diagnostic)
