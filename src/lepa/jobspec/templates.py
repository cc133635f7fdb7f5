"""Pure: takes quoted strings and heredocs apart into texts, interpolations and directives.

`split` finds the pieces: decoded texts and raw sequences (`${ }`, `%{ }`) as tokens. The expression parser turns each
sequence into an expression or a Directive; `nest` then gives the directives their bodies.
"""

import re
from collections.abc import Sequence as Many

from msgspec import Struct

from lepa.jobspec.diagnostics import Refusal
from lepa.jobspec.syntax import Expression, Part, TemplateFor, TemplateIf
from lepa.jobspec.tokens import COMMENT, END, Token, tokenise_sequence

_STOP = {
    True: re.compile(r"\$\$\{|%%\{|[$%]\{|\\", re.DOTALL),
    False: re.compile(r"\$\$\{|%%\{|[$%]\{"),
}
_SIMPLE_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_CODE_POINT = re.compile(r"u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")


class Sequence(Struct):
    """A raw `${ }` (interpolation) or `%{ }` (directive): its tokens without brackets and strip marks, then END.

    strip_before, strip_after: white space of the text on that side is dropped (`~`).
    """

    directive: bool
    tokens: list[Token]
    start: int
    end: int
    strip_before: bool
    strip_after: bool


class Directive(Struct):
    """A parsed `%{ }`; keyword is if, else, endif, for or endfor."""

    keyword: str
    start: int
    end: int
    expression: Expression | None = None
    key_name: str | None = None
    value_name: str = ""


Piece = str | Sequence


def split_quoted(text: str, start: int, end: int) -> list[Piece]:
    """The pieces between the quotes of a quoted string."""
    return _stripped(_pieces(text, start, end, quoted=True))


def split_heredoc(text: str, start: int, end: int, *, flush: bool) -> list[Piece]:
    """The pieces of a heredoc's lines, one text a line at most.

    flush (`<<-`): the white space that all lines have in common at their beginning goes; blank lines do not count.
    """
    lines: list[Piece] = []
    for piece in _pieces(text, start, end, quoted=False):
        lines.extend(piece.splitlines(keepends=True) if isinstance(piece, str) else (piece,))
    pieces = _stripped(lines)
    return _flushed(pieces) if flush else pieces


def _pieces(text: str, position: int, end: int, *, quoted: bool) -> list[Piece]:
    pieces: list[Piece] = []
    words: list[str] = []
    while stop := _STOP[quoted].search(text, position, end):
        words.append(text[position : stop.start()])
        position = stop.end()
        mark = stop[0]
        if mark == "\\":
            character, position = _escaped(text, position, end)
            words.append(character)
        elif len(mark) == 3:
            words.append(mark[1:])
        else:
            pieces.append("".join(words))
            words = []
            sequence = _sequence(text, stop.start(), position, end)
            position = sequence.end
            pieces.append(sequence)
    words.append(text[position:end])
    pieces.append("".join(words))
    return [piece for piece in pieces if piece != ""]


def _escaped(text: str, position: int, end: int) -> tuple[str, int]:
    """The character that a backslash before `position` stands for, and where the text goes on."""
    symbol = text[position : position + 1]
    if symbol in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[symbol], position + 1
    code = _CODE_POINT.match(text, position, end)
    if code is not None:
        point = int(code[1] or code[2], 16)
        if point <= 0x10FFFF and not 0xD800 <= point < 0xE000:
            return chr(point), code.end()
    if symbol in ("u", "U"):
        digits = "four" if symbol == "u" else "eight"
        detail = f"\\{symbol} must be followed by {digits} hexadecimal digits that name a Unicode character."
    else:
        detail = f'The symbol "{symbol}" is not a valid escape sequence selector. Write \\\\ for a backslash.'
    raise Refusal(position - 1, position + 1, "Invalid escape sequence", detail)


def _sequence(text: str, start: int, position: int, end: int) -> Sequence:
    tokens = [token for token in tokenise_sequence(text, position, end) if token.kind != COMMENT]
    closed = len(tokens) > 1 and tokens[-2].kind == "}"
    if not closed:
        introducer = text[start:position]
        detail = (
            f"There is no closing brace for this {introducer} sequence. "
            f"To write {introducer} itself, double its first character: {introducer[0]}{introducer}."
        )
        raise Refusal(start, position, "Unclosed template sequence", detail)
    brace = tokens[-2]
    inner = tokens[:-2]
    strip_before = bool(inner) and inner[0].kind == "~" and inner[0].start == position
    inner = inner[1:] if strip_before else inner
    strip_after = bool(inner) and inner[-1].kind == "~" and inner[-1].end == brace.start
    inner = inner[:-1] if strip_after else inner
    inner.append(Token(END, brace.start, brace.end, ""))
    return Sequence(text[start] == "%", inner, start, brace.end, strip_before, strip_after)


def _stripped(pieces: list[Piece]) -> list[Piece]:
    for index, piece in enumerate(pieces):
        if isinstance(piece, str):
            continue
        before = pieces[index - 1] if index else None
        if piece.strip_before and isinstance(before, str):
            pieces[index - 1] = before.rstrip()
        after = pieces[index + 1] if index + 1 < len(pieces) else None
        if piece.strip_after and isinstance(after, str):
            pieces[index + 1] = after.lstrip()
    return pieces


def _flushed(pieces: list[Piece]) -> list[Piece]:
    starts = [i for i in range(len(pieces)) if i == 0 or _ends_line(pieces[i - 1])]
    indents = [indent for i in starts if (indent := _indent(pieces[i])) is not None]
    width = min(indents, default=0)
    for i in starts:
        piece = pieces[i]
        if isinstance(piece, str) and _indent(piece) is not None:
            pieces[i] = piece[width:]
    return pieces


def _ends_line(piece: Piece) -> bool:
    return isinstance(piece, str) and piece.endswith("\n")


def _indent(piece: Piece) -> int | None:
    """White space at the beginning of a line; None for a blank line."""
    if not isinstance(piece, str):
        return 0
    if piece.isspace() and piece.endswith("\n"):
        return None
    return len(piece) - len(piece.lstrip())


def nest(pieces: Many[str | Expression | Directive]) -> tuple[Part, ...]:
    """Texts and expressions as they come, directives with what stands between them and their end.

    The directives are known not to be nested too deeply for recursion.
    """
    parts, closing = _Nest(pieces).parts(())
    if closing is not None:
        detail = f"There is no directive before this %{{ {closing.keyword} }} that it could belong to."
        raise Refusal(closing.start, closing.end, f"Unexpected {closing.keyword} directive", detail)
    return parts


class _Nest:
    """One walk over the pieces; each level of directives takes what belongs to it."""

    def __init__(self, pieces: Many[str | Expression | Directive]) -> None:
        self.pieces = pieces
        self.index = 0

    def parts(self, closers: tuple[str, ...]) -> tuple[tuple[Part, ...], Directive | None]:
        """Parts up to a directive in `closers`, and that directive; at the top, up to the first stray one."""
        parts: list[Part] = []
        while self.index < len(self.pieces):
            piece = self.pieces[self.index]
            self.index += 1
            if not isinstance(piece, Directive):
                parts.append(piece)
            elif piece.keyword in closers or piece.keyword not in ("if", "for"):
                return tuple(parts), piece
            else:
                parts.append(self.opened(piece))
        return tuple(parts), None

    def opened(self, opener: Directive) -> TemplateIf | TemplateFor:
        assert opener.expression is not None
        if opener.keyword == "for":
            body = self.closed(opener, ("endfor",))[0]
            return TemplateFor(opener.key_name, opener.value_name, opener.expression, body)
        when_true, closing = self.closed(opener, ("else", "endif"))
        when_false: tuple[Part, ...] = ()
        if closing.keyword == "else":
            when_false = self.closed(opener, ("endif",))[0]
        return TemplateIf(opener.expression, when_true, when_false)

    def closed(self, opener: Directive, closers: tuple[str, ...]) -> tuple[tuple[Part, ...], Directive]:
        parts, closing = self.parts(closers)
        if closing is not None and closing.keyword in closers:
            return parts, closing
        found = f"%{{ {closing.keyword} }}" if closing is not None else "the end of the text"
        wanted = " or ".join(f"%{{ {closer} }}" for closer in closers)
        detail = f"This %{{ {opener.keyword} }} needs {wanted}, but {found} was found."
        raise Refusal(opener.start, opener.end, f"Unclosed {opener.keyword} directive", detail)
