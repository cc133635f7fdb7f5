"""Pure: HCL1 text -> items: the older language, in which policies are written.

    namespace "default" { policy = "read", capabilities = ["list-jobs"] }
    "node" { "policy" = "write" } agent = { policy = "read" }

It has no expressions. Unlike in HCL2, names may be quoted and labels need not be, items stand on one line or on
several, with commas between them or without, an object may be given with `=`, and `${…}` in a text stays as it is.
Heredocs, for which a policy has no use, are refused.
"""

import re
from typing import Any, Final, NamedTuple, NoReturn

from lepa.jobspec.diagnostics import Refusal
from lepa.jobspec.grammar import refuse
from lepa.jobspec.tokens import COMMENT, END, IDENTIFIER, NESTING_MAX, NEWLINE, NUMBER, QUOTED, Token, tokenise

_BARE: Final = {"true": True, "false": False}
_ESCAPE: Final = re.compile(r"\\(?:(?P<sign>[abfnrtv\\\"])|u(?P<short>[0-9a-fA-F]{4})|.)")
_SIGNS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


class Item(NamedTuple):
    """`name "label" … { … }`, or `name = value`. value: a text, a number, a boolean, a list of such, or items."""

    name: str
    labels: tuple[str, ...]
    value: Any


Items = tuple[Item, ...]


def parse_items(text: str) -> Items:
    """The items of a whole text. Raises Refusal."""
    start = 1 if text.startswith("\ufeff") else 0
    return _Reader([token for token in tokenise(text, start) if token.kind not in (COMMENT, NEWLINE)]).items(END)


class _Reader:
    """Recursive descent over tokens; line ends say nothing in this language."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def items(self, closing: str) -> Items:
        """Items up to a closing token, which is taken."""
        self._deeper()
        found = []
        while self._peek().kind != closing:
            found.append(self._item())
            self._take_if(",")
        self._depth -= 1
        self._take()
        return tuple(found)

    def _item(self) -> Item:
        name, labels = self._key(), []
        while self._peek().kind in (IDENTIFIER, QUOTED):
            labels.append(self._key())
        if self._take_if("{"):
            return Item(name, tuple(labels), self.items("}"))
        if labels or not self._take_if("="):
            _unexpected(self._peek(), "{" if labels else "= or {")
        return Item(name, (), self._value())

    def _key(self) -> str:
        token = self._take()
        if token.kind == QUOTED:
            return _unquoted(token)
        if token.kind != IDENTIFIER:
            _unexpected(token, "a name")
        return token.text

    def _value(self) -> Any:
        token = self._take()
        if token.kind == QUOTED:
            return _unquoted(token)
        if token.kind == NUMBER:
            return float(token.text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", token.text) else token.text
        if token.kind == IDENTIFIER and token.text in _BARE:
            return _BARE[token.text]
        if token.kind == "{":
            return self.items("}")
        if token.kind == "[":
            return self._list()
        return _unexpected(token, "a value")

    def _list(self) -> list[Any]:
        self._deeper()
        found = []
        while not self._take_if("]"):
            found.append(self._value())
            if not self._take_if(",") and self._peek().kind != "]":
                _unexpected(self._peek(), ", or ]")
        self._depth -= 1
        return found

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != END
        return token

    def _take_if(self, kind: str) -> bool:
        found = self._peek().kind == kind
        self._at += found
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            at = self._peek()
            raise Refusal(at.start, at.end, "Nested too deeply", f"More than {NESTING_MAX} levels are not supported.")


def _unexpected(token: Token, wanted: str) -> NoReturn:
    """Raise a Refusal."""
    found = f'"{token.text}"' if token.kind != END else "the end"
    refuse(token, "Unexpected text", f"Expected {wanted}, found {found}.")


def _unquoted(token: Token) -> str:
    def meant(escape: re.Match[str]) -> str:
        if escape["sign"]:
            return _SIGNS[escape["sign"]]
        if escape["short"]:
            return chr(int(escape["short"], 16))
        raise Refusal(token.start, token.end, "Invalid escape sequence", f'"{escape[0]}" is not known.')

    return _ESCAPE.sub(meant, token.text[1:-1])
