"""Pure: how a Go template is written: text -> tokens -> nodes.

`tokens` takes a text apart, `Parser` makes nodes of the pieces. What they mean is in `go_template`. Names of variables
and functions are checked here, as Go does, before anything is run.
"""

from __future__ import annotations

import re
from collections.abc import Container, Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

DEPTH_MAX = 64
"""Templates within one another, and levels of nesting in a text."""


class TemplateError(Exception):
    """What is wrong with a template, or with running it; names the line."""


# Text -> tokens


class Token(NamedTuple):
    """A piece of a template. kind: text, open, close, or a piece of an action. spaced: white space stands before it."""

    kind: str
    text: str
    line: int
    spaced: bool = False


_PIECE = re.compile(
    r"""
    (?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
  | (?P<char>'(?:[^'\\\n]|\\[^\n][^'\n]*)')
  | (?P<field>\.[A-Za-z_][A-Za-z_0-9]*)
  | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+))
  | (?P<variable>\$[A-Za-z_0-9]*)
  | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<mark>:=|[.|(),=])
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_COMMENT = re.compile(r"\{\{(- )?/\*.*?\*/( -)?\}\}", re.DOTALL)


def tokens(text: str) -> Iterator[Token]:
    """The pieces of a template; what `{{-` and `-}}` take away is gone."""
    position, line, trimmed = 0, 1, False
    while position <= len(text):
        start = text.find("{{", position)
        plain = text[position : start if start >= 0 else len(text)]
        kept = plain.lstrip(" \t\r\n") if trimmed else plain
        if start >= 0 and _trims_before(text, start):
            kept = kept.rstrip(" \t\r\n")
        if kept:
            yield Token("text", kept, line)
        if start < 0:
            return
        line += plain.count("\n")
        if comment := _COMMENT.match(text, start):
            position, trimmed = comment.end(), comment[2] is not None
            line += comment[0].count("\n")
            continue
        yield Token("open", "{{", line)
        position = start + (3 if _trims_before(text, start) else 2)
        position, line, trimmed = yield from _action(text, position, line)


def _trims_before(text: str, start: int) -> bool:
    return text.startswith("{{-", start) and text[start + 3 : start + 4].isspace()


def _action(text: str, position: int, line: int) -> Generator[Token, None, tuple[int, int, bool]]:
    """The pieces of one action; returns where it ends, in which line, and whether it trims what follows."""
    opened = line
    while True:
        space = _SPACE.match(text, position)
        assert space is not None
        line += space[0].count("\n")
        position, spaced = space.end(), bool(space[0])
        trims = spaced and text.startswith("-}}", position)
        if trims or text.startswith("}}", position):
            yield Token("close", "}}", line)
            return position + (3 if trims else 2), line, trims
        if position >= len(text):
            raise TemplateError(f"line {opened}: action is not closed by }}}}")
        piece = _PIECE.match(text, position)
        if piece is None:
            raise TemplateError(f"line {line}: unexpected {text[position]!r} in action")
        yield Token(str(piece.lastgroup), piece[0], line, spaced)
        line += piece[0].count("\n")
        position = piece.end()


# Nodes


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Any


@dataclass(frozen=True, slots=True)
class Reference:
    """A value and fields below it. base: "." is the dot, "$x" a variable, a Pipe something in parentheses."""

    base: str | Pipe
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A function."""

    name: str


Operand = Constant | Reference | Named


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands joined by `|`, and the variables that get the result. declares: `:=`, else `=`."""

    commands: tuple[tuple[Operand, ...], ...]
    names: tuple[str, ...] = ()
    declares: bool = True
    line: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is written as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """`{{pipeline}}`."""

    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Choice:
    """`if`, `with` or `range`."""

    kind: str
    pipe: Pipe
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Inclusion:
    """`{{template "name" pipeline}}`."""

    name: str
    pipe: Pipe | None
    line: int


@dataclass(frozen=True, slots=True)
class Leap:
    """`{{break}}` or `{{continue}}`."""

    kind: str


Node = Text | Output | Choice | Inclusion | Leap


# Tokens -> nodes


class Parser:
    """Reads one template; `defined` collects what `define` and `block` name."""

    def __init__(self, text: str, functions: Container[str]) -> None:
        self.defined: dict[str, tuple[Node, ...]] = {}
        self._tokens = list(tokens(text))
        self._next = 0
        self._functions = functions
        self._loops = 0
        self._variables = {"$"}

    def parse(self) -> tuple[Node, ...]:
        """The nodes of the whole text."""
        body, end = self._body(0)
        if end is not None:
            raise TemplateError(f"line {end.line}: unexpected {{{{{end.text}}}}}")
        return body

    def _body(self, depth: int) -> tuple[tuple[Node, ...], Token | None]:
        """Nodes up to `end`, `else` or the end of the text, and the word that ended them."""
        if depth > DEPTH_MAX:
            raise TemplateError(f"line {self._line()}: nested deeper than {DEPTH_MAX} levels")
        nodes: list[Node] = []
        while self._next < len(self._tokens):
            token = self._take()
            if token.kind == "text":
                nodes.append(Text(token.text))
                continue
            word = self._peek()
            if word.kind == "word" and word.text in ("end", "else"):
                return tuple(nodes), self._take()
            node = self._node(word, depth)
            if node is not None:
                nodes.append(node)
        return tuple(nodes), None

    def _node(self, word: Token, depth: int) -> Node | None:
        kind = word.text if word.kind == "word" else ""
        if kind in ("if", "with", "range"):
            self._take()
            return self._choice(kind, depth)
        if kind in ("define", "block"):
            self._take()
            return self._definition(kind, depth)
        if kind == "template":
            self._take()
            name = self._name()
            pipe = None if self._peek().kind == "close" else self._pipe("close", depth)
            self._close()
            return Inclusion(name, pipe, word.line)
        if kind in ("break", "continue") and kind not in self._functions:
            self._take()
            self._close()
            if not self._loops:
                raise TemplateError(f"line {word.line}: {kind} outside of range")
            return Leap(kind)
        pipe = self._pipe("close", depth)
        self._close()
        return Output(pipe)

    def _choice(self, kind: str, depth: int) -> Choice:
        """From behind the keyword to behind its `end`."""
        before = set(self._variables)
        pipe = self._pipe("close", depth)
        self._close()
        self._loops += kind == "range"
        body, end = self._body(depth + 1)
        self._loops -= kind == "range"
        otherwise: tuple[Node, ...] = ()
        if end is not None and end.text == "else":
            otherwise, end = self._otherwise(kind, depth)
        self._ended(end, kind)
        self._variables = before
        return Choice(kind, pipe, body, otherwise)

    def _otherwise(self, kind: str, depth: int) -> tuple[tuple[Node, ...], Token | None]:
        following = self._peek()
        if following.kind == "word" and following.text == kind and kind in ("if", "with"):
            self._take()
            return (self._choice_sharing_end(kind, depth),), Token("word", "end", following.line)
        self._close()
        return self._body(depth + 1)

    def _choice_sharing_end(self, kind: str, depth: int) -> Choice:
        """`else if`: a choice whose `end` is also that of the one around it, which leaves its closing to that one."""
        choice = self._choice(kind, depth + 1)
        self._next -= 1
        return choice

    def _ended(self, end: Token | None, kind: str) -> None:
        if end is None or end.text != "end":
            raise TemplateError(f"line {self._line()}: {{{{{kind}}}}} has no {{{{end}}}}")
        self._close()

    def _definition(self, kind: str, depth: int) -> Node | None:
        name = self._name()
        pipe = self._pipe("close", depth) if kind == "block" else None
        self._close()
        outer, self._variables = self._variables, {"$"}
        loops, self._loops = self._loops, 0
        body, end = self._body(depth + 1)
        self._variables, self._loops = outer, loops
        self._ended(end, kind)
        self.defined[name] = body
        return Inclusion(name, pipe, 0) if kind == "block" else None

    def _pipe(self, until: str, depth: int) -> Pipe:
        """A pipeline up to, but without, the token that ends it."""
        line = self._line()
        names, declares = self._declaration()
        commands: list[tuple[Operand, ...]] = []
        while True:
            commands.append(self._command(until, depth))
            token = self._peek()
            if token.text == "|" and token.kind == "mark":
                self._take()
                continue
            break
        if not all(commands):
            raise TemplateError(f"line {line}: missing value for command")
        for command in commands[1:]:
            if not isinstance(command[0], Named) and not (isinstance(command[0], Reference) and command[0].fields):
                raise TemplateError(f"line {line}: what stands behind | has to be a function")
        self._variables.update(names)
        return Pipe(tuple(commands), names, declares, line)

    def _declaration(self) -> tuple[tuple[str, ...], bool]:
        """`$x :=`, `$x =` or `$k, $v :=` at the beginning of a pipeline."""
        start, names = self._next, []
        while self._peek().kind == "variable":
            names.append(self._take().text)
            mark = self._take()
            if mark.text in (":=", "=") and mark.kind == "mark":
                unknown = [name for name in names if name not in self._variables] if mark.text == "=" else []
                if unknown:
                    raise TemplateError(f"line {mark.line}: undefined variable {unknown[0]}")
                return tuple(names), mark.text == ":="
            if mark.text != "," or len(names) > 1:
                break
        self._next = start
        return (), True

    def _command(self, until: str, depth: int) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        while True:
            token = self._peek()
            if token.kind == "close" or (token.kind == "mark" and token.text in ("|", ")")):
                if token.text == ")" and until != ")":
                    raise TemplateError(f"line {token.line}: unexpected )")
                return tuple(operands)
            operands.append(self._operand(depth))

    def _operand(self, depth: int) -> Operand:
        token = self._take()
        if token.kind in ("string", "char", "number"):
            return Constant(_literal(token))
        if token.kind == "word":
            return self._word(token)
        if token.kind == "field":
            return Reference(".", (token.text[1:], *self._fields()))
        if token.kind == "variable":
            if token.text not in self._variables:
                raise TemplateError(f"line {token.line}: undefined variable {token.text}")
            return Reference(token.text, self._fields())
        if token.text == ".":
            return Reference(".")
        if token.text == "(":
            if depth > DEPTH_MAX:
                raise TemplateError(f"line {token.line}: nested deeper than {DEPTH_MAX} levels")
            pipe = self._pipe(")", depth + 1)
            if self._take().text != ")":
                raise TemplateError(f"line {token.line}: ( is not closed")
            return Reference(pipe, self._fields())
        raise TemplateError(f"line {token.line}: unexpected {token.text!r}")

    def _word(self, token: Token) -> Operand:
        known: dict[str, Any] = {"true": True, "false": False, "nil": None}
        if token.text in known:
            return Constant(known[token.text])
        if token.text not in self._functions:
            raise TemplateError(f'line {token.line}: function "{token.text}" not defined')
        return Named(token.text)

    def _fields(self) -> tuple[str, ...]:
        """Fields that follow without a blank."""
        names = []
        while (token := self._peek()).kind == "field" and not token.spaced:
            names.append(self._take().text[1:])
        return tuple(names)

    def _name(self) -> str:
        token = self._take()
        if token.kind != "string":
            raise TemplateError(f"line {token.line}: a template's name is a text in quotes")
        return str(_literal(token))

    def _close(self) -> None:
        token = self._take()
        if token.kind != "close":
            raise TemplateError(f"line {token.line}: unexpected {token.text!r} in action")

    def _take(self) -> Token:
        token = self._peek()
        self._next += 1
        return token

    def _peek(self) -> Token:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        raise TemplateError(f"line {self._line()}: the template ends in the middle of an action")

    def _line(self) -> int:
        return self._tokens[min(self._next, len(self._tokens) - 1)].line if self._tokens else 1


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)


def _literal(token: Token) -> Any:
    text = token.text
    if token.kind == "string":
        return text[1:-1] if text[0] == "`" else _ESCAPE.sub(_unescaped, text[1:-1])
    if token.kind == "char":
        return ord(_ESCAPE.sub(_unescaped, text[1:-1])[:1] or "\0")
    try:
        return int(text, 0) if not re.fullmatch(r"[+-]?0\d+", text) else int(text, 8)
    except ValueError:
        return float(text.replace("_", ""))


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) > 1:
        number = int(code[1:], 16) if code[0] in "xuU" else int(code, 8)
        return chr(number) if number < 0x110000 else "\ufffd"
    return _ESCAPES.get(code, code)
