"""Pure: the canonical form of HCL text, as `lepa fmt` writes it.

Lines stay lines; what changes is the white space in them. Two spaces for each level, where brackets that were opened on
one line count as one level; one space around `=` and operators; the `=` of neighbouring lines that hold a whole
argument stand under each other, and so do the comments behind neighbouring lines. Texts, heredocs and comments keep
every character. A text with a syntax error is given back as it is, with the diagnostics.
"""

from __future__ import annotations

from itertools import groupby

from msgspec import Struct

from lepa.jobspec import hcl
from lepa.jobspec.diagnostics import Diagnostic, Reporter, Source
from lepa.jobspec.tokens import COMMENT, END, IDENTIFIER, NEWLINE, Token, tokenise

INDENT = "  "

_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
_UNARY_AFTER = frozenset({"(", "[", "{", ",", "=", "=>", ":", "?", "==", "!=", "<", ">", "<=", ">=", "&&", "||"}) | set(
    "+-*/%!"
)
_WORDS_BEFORE_VALUES = frozenset({"in", "if"})


class Formatted(Struct, frozen=True):
    """A text in canonical form. changed: was it different before? diagnostics: why it could not be formatted."""

    text: str
    changed: bool
    diagnostics: tuple[Diagnostic, ...] = ()


def format_text(text: str, filename: str = "job.nomad.hcl") -> Formatted:
    """The canonical form of a text, or the text itself with the syntax errors in it."""
    report = Reporter(Source(filename, text))
    hcl.parse_body(report)
    if report.failed:
        return Formatted(text, False, tuple(report.found))
    formatted = fmt(text)
    return Formatted(formatted, formatted != text)


def fmt(text: str) -> str:
    """The canonical form of a text without syntax errors."""
    lines = _lines(tokenise(text.removeprefix("\ufeff")))
    _indent(lines)
    for column in (_align_values, _align_comments):
        column(lines)
    return "".join(f"{line.shown()}\n" for line in lines)


class Line(Struct):
    """One line, in three cells: what comes first, `= value`, and the comment behind them; and its indentation."""

    tokens: list[Token]
    head: str = ""
    value: str = ""
    comment: str = ""
    level: int = 0

    def shown(self) -> str:
        """The line as text."""
        content = " ".join(cell for cell in (self.head, self.value, self.comment) if cell)
        return INDENT * self.level + content if content else ""

    @property
    def whole(self) -> bool:
        """Does it end on the line where it begins? A heredoc or a long comment does not."""
        return not any("\n" in token.text for token in self.tokens)


def _lines(tokens: list[Token]) -> list[Line]:
    """The tokens in lines; the last one gets its end if it has none."""
    rows: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == NEWLINE:
            rows.append([])
        elif token.kind != END:
            rows[-1].append(token)
    return [_line(row) for row in (rows if rows[-1] else rows[:-1])]


def _line(tokens: list[Token]) -> Line:
    line = Line(tokens)
    content = tokens
    if len(tokens) > 1 and tokens[-1].kind == COMMENT:
        line.comment = tokens[-1].text.rstrip()
        content = tokens[:-1]
    equals = _assignment(content)
    line.head = _spaced(content[:equals])
    line.value = _spaced(content[equals:])
    return line


def _assignment(tokens: list[Token]) -> int:
    """Where `= value` begins, when the line holds the whole value; else the end of the line."""
    for index, token in enumerate(tokens):
        if token.kind == "=" and index:
            return index if _bracket_change(tokens[index:]) == 0 else len(tokens)
    return len(tokens)


def _indent(lines: list[Line]) -> None:
    """Each open bracket remembers the line that opened it; a line that closes more than it opens moves left itself."""
    opened: list[int] = []
    for number, line in enumerate(lines):
        change = _bracket_change(line.tokens)
        if change < 0:
            del opened[max(0, len(opened) + change) :]
        line.level = len(set(opened))
        opened.extend([number] * change)


def _bracket_change(tokens: list[Token]) -> int:
    return sum((token.kind in _OPENING) - (token.kind in _CLOSING) for token in tokens)


# Alignment


def _align_values(lines: list[Line]) -> None:
    """The `=` of neighbouring lines under each other."""
    for aligned, group in groupby(lines, lambda line: bool(line.value)):
        if aligned:
            chain = list(group)
            width = max(len(line.head) for line in chain)
            for line in chain:
                line.head = line.head.ljust(width)


def _align_comments(lines: list[Line]) -> None:
    """The comments behind neighbouring lines under each other."""
    for aligned, group in groupby(lines, lambda line: bool(line.comment) and line.whole):
        if aligned:
            chain = list(group)
            width = max(_width(line) for line in chain)
            for line in chain:
                gap = " " * (width - _width(line))
                if line.value:
                    line.value += gap
                else:
                    line.head += gap


def _width(line: Line) -> int:
    return len(INDENT) * line.level + len(line.head) + (1 + len(line.value) if line.value else 0)


# Spaces


def _spaced(tokens: list[Token]) -> str:
    words: list[str] = []
    unary = False
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        if before is not None and _space(before, token, unary):
            words.append(" ")
        unary = token.kind == "!" or (token.kind == "-" and (before is None or before.kind in _UNARY_AFTER))
        words.append(token.text.rstrip() if token.kind == COMMENT else token.text)
    return "".join(words)


def _space(left: Token, right: Token, after_unary: bool) -> bool:
    """Is there a space between these two? after_unary: `left` is a sign or a negation."""
    if after_unary or left.kind in ("(", "[", ".", "::") or right.kind in (")", "]", ",", ".", "...", "::"):
        return False
    if left.kind == "{" and right.kind == "}":
        return False
    if right.kind == "(" and left.kind == IDENTIFIER:
        return left.text in _WORDS_BEFORE_VALUES
    if right.kind == "[" and left.kind in (IDENTIFIER, ")", "]", "}"):
        return left.kind == IDENTIFIER and left.text in _WORDS_BEFORE_VALUES
    return True
