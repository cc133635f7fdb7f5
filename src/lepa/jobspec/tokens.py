"""Pure: HCL text -> tokens.

A string in quotes and a heredoc are one token each, however many interpolations they hold: `templates` takes them apart
later. To find where such a token ends, interpolations inside it are tokenised and thrown away, because they may hold
strings of their own. Operators and brackets have their own text as their kind; the other kinds are the constants below.
Nothing here fails: what is no token has the kind INVALID or one of the UNCLOSED kinds, and the parser says so.
"""

import re
from re import Match

from msgspec import Struct

from lepa.jobspec.diagnostics import Refusal

IDENTIFIER = "identifier"
NUMBER = "number"
QUOTED = "quoted"
HEREDOC = "heredoc"
NEWLINE = "newline"
COMMENT = "comment"
INVALID = "invalid"
UNCLOSED_QUOTED = "unclosed quoted"
UNCLOSED_HEREDOC = "unclosed heredoc"
UNCLOSED_COMMENT = "unclosed comment"
END = "end"

NESTING_MAX = 40
"""Brackets, blocks, operators and templates inside each other; also keeps the parser far from Python's own limit."""

# <quoted> does not repeat possessively: before Python 3.11.5 a possessive group with a lookahead matches wrongly.
_TOKEN = re.compile(
    r"""[ \t]*+(?:
    (?P<newline>\r?\n)
  | (?P<identifier>[^\W\d][\w-]*)
  | (?P<quoted>"(?:[^"\\$%\r\n]++|\\[^\r\n]|\$\$\{|%%\{|[$%](?!\{))*")
  | (?P<open_quote>")
  | (?P<number>[0-9]+(?:\.[0-9]+)*(?:[eE][-+]?[0-9]+)?)
  | (?P<comment>\#[^\n]*|//[^\n]*|/\*(?s:.*?)\*/)
  | (?P<open_comment>/\*)
  | (?P<open_heredoc><<-?(?P<marker>[^\W\d][\w-]*)\r?\n)
  | (?P<operator>==|!=|<=|>=|=>|&&|\|\||\.\.\.|::|[-+*/%!<>=?:.,()\[\]{}~])
  | (?P<invalid>.)
  )""",
    re.VERBOSE,
)
_QUOTED_STOP = re.compile(r'"|[\r\n]|\\[^\r\n]|\$\$\{|%%\{|[$%]\{')
_HEREDOC_STOP = re.compile(r"\$\$\{|%%\{|[$%]\{")


class Token(Struct, gc=False):
    """A piece of the text from `start` to before `end`; `text` leaves out the white space before it."""

    kind: str
    start: int
    end: int
    text: str


def tokenise(text: str, start: int = 0, end: int = -1) -> list[Token]:
    """All tokens of `text` from `start` to `end` (default: its end), comments included, then one END token."""
    return _tokens(text, start, len(text) if end < 0 else end, 0, inside=False)


def tokenise_sequence(text: str, start: int, end: int) -> list[Token]:
    """Tokens of a template sequence whose opening `${` ends at `start`, up to and with its closing brace, then END.

    Without a closing brace before `end` the last token before END is not a brace.
    """
    return _tokens(text, start, end, 0, inside=True)


def _tokens(text: str, position: int, end: int, depth: int, *, inside: bool) -> list[Token]:
    """inside: stop after the brace that closes what was open at the start."""
    if depth > NESTING_MAX:
        raise Refusal(position, position + 1, "Nested too deeply", f"More than {NESTING_MAX} levels are not supported.")
    tokens: list[Token] = []
    append = tokens.append
    match_token = _TOKEN.match
    braces = 0
    while match := match_token(text, position, end):
        group = match.lastgroup or ""
        start, position = match.span(group)
        if group == "operator":
            symbol = match[group]
            append(Token(symbol, start, position, symbol))
            if symbol == "{":
                braces += 1
            elif symbol == "}":
                braces -= 1
                if inside and braces < 0:
                    break
        elif group in _CLOSED_KINDS:
            append(Token(group, start, position, match[group]))
        else:
            kind, position = _open_token(text, match, end, depth)
            append(Token(kind, start, position, text[start:position]))
    append(Token(END, position if inside else end, position if inside else end, ""))
    return tokens


_CLOSED_KINDS = frozenset({IDENTIFIER, NUMBER, QUOTED, NEWLINE, COMMENT, INVALID})


def _open_token(text: str, match: Match[str], end: int, depth: int) -> tuple[str, int]:
    """Kind and end of a token whose end has to be looked for."""
    group = match.lastgroup
    if group == "open_quote":
        closed = _quoted_end(text, match.end(), end, depth)
        return (QUOTED, closed) if closed >= 0 else (UNCLOSED_QUOTED, _line_end(text, match.end(), end))
    if group == "open_comment":
        return UNCLOSED_COMMENT, end
    closed = _heredoc_end(text, match.end(), end, match["marker"], depth)
    return (HEREDOC, closed) if closed >= 0 else (UNCLOSED_HEREDOC, end)


def _line_end(text: str, position: int, end: int) -> int:
    newline = text.find("\n", position, end)
    return newline if newline >= 0 else end


def _quoted_end(text: str, position: int, end: int, depth: int) -> int:
    """The end of a quoted string whose opening quote was before `position`, or -1."""
    while stop := _QUOTED_STOP.search(text, position, end):
        position = stop.end()
        if stop[0] == '"':
            return position
        if stop[0] in "\r\n":
            return -1
        if stop[0] in ("${", "%{"):
            position = _sequence_end(text, position, end, depth)
            if position < 0:
                return -1
    return -1


def _heredoc_end(text: str, position: int, end: int, marker: str, depth: int) -> int:
    """The end of a heredoc whose body begins at `position`: after its closing marker, or -1.

    A marker inside an interpolation does not close; an interpolation that never closes does not hide the marker. As in
    HashiCorp's parser, the closing marker stands alone on a line that has an end.
    """
    closing_line = _closing_line(marker)
    closing = closing_line.search(text, position, end)
    while closing:
        stop = _HEREDOC_STOP.search(text, position, closing.start())
        if stop is None:
            return closing.end()
        position = stop.end()
        if stop[0] in ("${", "%{"):
            position = _sequence_end(text, position, end, depth)
            if position < 0:
                return closing.end()
            if position > closing.start():
                closing = closing_line.search(text, position, end)
    return -1


def runaway_sequence(token: Token) -> tuple[int, str]:
    """Where in the text of an UNCLOSED_HEREDOC a sequence begins that runs over the closing marker, and its `${` or
    `%{`; -1 when there is no marker to run over."""
    text = token.text
    opening, _, _ = text.partition("\n")
    closing = _closing_line(opening.strip().lstrip("<-")).search(text, len(opening) + 1)
    position = len(opening) + 1
    while closing and (stop := _HEREDOC_STOP.search(text, position, closing.start())):
        position = stop.end()
        if stop[0] in ("${", "%{"):
            position = _sequence_end(text, position, len(text), 0)
            if not 0 <= position <= closing.start():
                return stop.start(), stop[0]
    return -1, ""


def _closing_line(marker: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*{re.escape(marker)}(?=[ \t]*\r?\n)", re.MULTILINE)


def _sequence_end(text: str, position: int, end: int, depth: int) -> int:
    tokens = _tokens(text, position, end, depth + 1, inside=True)
    return tokens[-2].end if len(tokens) > 1 and tokens[-2].kind == "}" else -1
