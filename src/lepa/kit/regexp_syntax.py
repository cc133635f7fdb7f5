r"""Pure: the text of a regular expression in RE2's syntax, which is Go's too -> a tree.

Left out: `\p{…}`, `\C`; refused as in RE2: look-around, back references.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct

PATTERN_LENGTH_MAX = 4_096
REPEAT_MAX = 1_000
DEPTH_MAX = 50
"""How deep groups may nest: both the reader and the writer of the program go down by recursion."""

CODE_POINT_MAX = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""First and last code points, in order and apart."""

Assertion = Literal["text start", "text end", "line start", "line end", "word boundary", "no word boundary"]


class RegexpError(ValueError):
    """The pattern cannot be read. position: index into it, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position + 1}")
        self.position = position


class Characters(Struct, frozen=True):
    """One character out of these ranges."""

    ranges: Ranges


class Sequence(Struct, frozen=True):
    """All of these, one after another."""

    items: tuple["Node", ...]


class Choice(Struct, frozen=True):
    """One of these, the earlier rather than the later."""

    items: tuple["Node", ...]


class Repeat(Struct, frozen=True):
    """The item `low` to `high` times, without an end when None. lazy: few times rather than many."""

    item: "Node"
    low: int
    high: int | None
    lazy: bool


class Group(Struct, frozen=True):
    """A group whose text is kept. number: from 1, in the order of the opening parentheses."""

    item: "Node"
    number: int


class Assert(Struct, frozen=True):
    """No character, but a place where this holds."""

    what: Assertion


Node = Characters | Sequence | Choice | Repeat | Group | Assert

NOTHING = Sequence(())
"""Matches everywhere. Kept out of sequences and repeats, so that writing repeats out always makes a program longer."""


class Pattern(Struct, frozen=True):
    """A pattern that was read. group_count: how many groups it keeps; group_names: numbers of those with a name."""

    tree: Node
    group_count: int
    group_names: Mapping[str, int]


def parse_pattern(pattern: str) -> Pattern:
    """The tree of a pattern. Raises RegexpError."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise RegexpError(f"the pattern is longer than {PATTERN_LENGTH_MAX} characters", PATTERN_LENGTH_MAX)
    parser = _Parser(pattern)
    tree = parser.parse()
    return Pattern(tree, parser.group_count, parser.group_names)


_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES: dict[str, Ranges] = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ESCAPED = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_FOLDED_WIDTH_MAX = 256
_OCTAL = frozenset("01234567")
_NAME = re.compile("[A-Za-z0-9_]+")
_ASSERTED: dict[str, Assertion] = {"A": "text start", "z": "text end", "b": "word boundary", "B": "no word boundary"}


class _Flags(NamedTuple):
    """i: either case; m: ^ and $ at lines; s: the dot takes newlines too; U: few times rather than many."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class _Parser:
    """Recursive descent over the pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.flags = _Flags()
        self.group_count = 0
        self.group_names: dict[str, int] = {}

    def parse(self) -> Node:
        found = self._choice()
        if self.at < len(self.pattern):
            raise self._error("a parenthesis is closed that was not opened")
        return found

    def _choice(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._error(f"the pattern nests deeper than {DEPTH_MAX}")
        outer, items = self.flags, [self._sequence()]
        while self._take("|"):
            items.append(self._sequence())
        self.flags = outer
        self.depth -= 1
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            self._refuse_repeat("there is nothing to repeat")
            *literals, last = self._quoted() if self._take("\\Q") else [self._atom()]
            items += [*literals, self._repeated(last)]
        found = tuple(item for item in items if item != NOTHING)
        return found[0] if len(found) == 1 else Sequence(found)

    def _quoted(self) -> list[Node]:
        r"""The characters up to `\E`; its opening is read already."""
        end = self.pattern.find("\\E", self.at)
        literal = self.pattern[self.at : end if end >= 0 else None]
        self.at += len(literal) + (2 if end >= 0 else 0)
        return [self._one(ord(character)) for character in literal] or [NOTHING]

    def _repeated(self, item: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return item
        lazy = self._take("?") != self.flags.U
        self._refuse_repeat("a repeat is repeated")
        return NOTHING if item == NOTHING or bounds == (0, 0) else Repeat(item, *bounds, lazy)

    def _refuse_repeat(self, message: str) -> None:
        start = self.at
        if self._bounds() is not None:
            raise RegexpError(message, start)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        end = self.pattern.find("}", self.at) if self._peek() == "{" else -1
        if end < 0:
            return None
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        bounds = int(low), (int(high) if high else None) if comma else int(low)
        if max(bounds[0], bounds[1] or 0) > REPEAT_MAX or (bounds[1] is not None and bounds[1] < bounds[0]):
            raise self._error(f"a repeat is not within 0 to {REPEAT_MAX} or runs backwards")
        self.at = end + 1
        return bounds

    def _atom(self) -> Node:
        start, character = self.at, self._next()
        if character == "(":
            return self._group(start)
        if character == "[":
            return Characters(self._class(start))
        if character == ".":
            return Characters(((0, CODE_POINT_MAX),) if self.flags.s else _complement(((10, 10),)))
        if character == "^":
            return Assert("line start" if self.flags.m else "text start")
        if character == "$":
            return Assert("line end" if self.flags.m else "text end")
        if character == "\\":
            return self._escape(start)
        return self._one(ord(character))

    def _group(self, start: int) -> Node:
        outer, number = self.flags, 0
        if not self._take("?"):
            number = self._numbered()
        elif self._take("P<") or (self._peek() == "<" and self.pattern[self.at + 1 : self.at + 2] not in ("=", "!")):
            self._take("<")
            number = self._named(start)
        elif self._set_flags(start):
            self._refuse_repeat("there is nothing to repeat")
            return NOTHING
        inner = self._choice()
        self.flags = outer
        if not self._take(")"):
            raise RegexpError("a parenthesis is not closed", start)
        return Group(inner, number) if number else inner

    def _numbered(self) -> int:
        self.group_count += 1
        return self.group_count

    def _named(self, start: int) -> int:
        name, closing, _ = self.pattern[self.at :].partition(">")
        if not closing:
            raise RegexpError("the name of a group does not end", start)
        if not _NAME.fullmatch(name):
            raise RegexpError("the name of a group has more than letters, digits and _", start)
        if name in self.group_names:
            raise RegexpError("two groups have the same name", start)
        self.at += len(name) + 1
        self.group_names[name] = self._numbered()
        return self.group_names[name]

    def _set_flags(self, start: int) -> bool:
        """Read `i-s:` or `i)`; whether it was the latter, which holds up to the end of the enclosing group."""
        value = True
        while (character := self._next()) not in (":", ")"):
            if character == "-":
                value = False
            elif character in self.flags._fields:
                self.flags = self.flags._replace(**{character: value})
            else:
                raise RegexpError("look-around and other (?…) are not supported", start)
        return character == ")"

    def _escape(self, start: int) -> Node:
        character = self._peek()
        if character in _ASSERTED:
            self.at += 1
            return Assert(_ASSERTED[character])
        found = self._escaped_class()
        return Characters(found) if found is not None else self._one(self._escaped_character(start))

    def _escaped_class(self) -> Ranges | None:
        r"""Ranges of `\d`, `\W` and the like; the backslash is read already."""
        ranges = _CLASSES.get(self._peek().lower())
        if ranges is None:
            return None
        return _complement(ranges) if self._next().isupper() else ranges

    def _escaped_character(self, start: int) -> int:
        character = self._next()
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character == "x":
            return self._hexadecimal(start)
        if character == "0" or (character in _OCTAL and self._peek() in _OCTAL):
            while len(character) < 3 and self._peek() in _OCTAL:
                character += self._next()
            return int(character, 8)
        if not character or (character.isalnum() and character.isascii()):
            raise RegexpError(f'"\\{character}" is not supported', start)
        return ord(character)

    def _hexadecimal(self, start: int) -> int:
        if self._take("{"):
            digits, brace, _ = self.pattern[self.at :].partition("}")
            self.at += len(digits) + 1
            complete = brace == "}" and 1 <= len(digits) <= 6
        else:
            digits = self.pattern[self.at : self.at + 2]
            self.at += 2
            complete = len(digits) == 2
        if not complete or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise RegexpError("a code point is not hexadecimal", start)
        if int(digits, 16) > CODE_POINT_MAX:
            raise RegexpError("there is no such code point", start)
        return int(digits, 16)

    def _class(self, start: int) -> Ranges:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                raise RegexpError("a bracket is not closed", start)
            ranges.extend(self._class_item())
        self.at += 1
        folded = _ordered(_either_case(ranges) if self.flags.i else ranges)
        return _complement(folded) if negated else folded

    def _class_item(self) -> Ranges:
        start = self.at
        if self._take("[:"):
            name, colon, _ = self.pattern[self.at :].partition(":]")
            if not colon or name.removeprefix("^") not in _POSIX:
                raise RegexpError("a named class is not known", start)
            self.at += len(name) + 2
            return _complement(_POSIX[name[1:]]) if name.startswith("^") else _POSIX[name]
        if self._peek() == "\\":
            self.at += 1
            ranges = self._escaped_class()
            if ranges is not None:
                return ranges
            low = self._escaped_character(start)
        else:
            low = ord(self._next())
        if self._peek() != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return ((low, low),)
        self.at += 1
        high = self._escaped_character(start) if self._take("\\") else ord(self._next())
        if high < low:
            raise RegexpError("a range runs backwards", start)
        return ((low, high),)

    def _one(self, code: int) -> Characters:
        ranges = ((code, code),)
        return Characters(_ordered(_either_case(ranges)) if self.flags.i else ranges)

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise self._error("the pattern ends too early")
        self.at += 1
        return found

    def _take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def _error(self, message: str) -> RegexpError:
        return RegexpError(message, min(self.at, len(self.pattern)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6


def _ordered(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same code points as ranges in order that do not touch."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _complement(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    low = 0
    for start, end in _ordered(ranges):
        if start > low:
            found.append((low, start - 1))
        low = end + 1
    return (*found, (low, CODE_POINT_MAX)) if low <= CODE_POINT_MAX else tuple(found)


def _either_case(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges with the other case of their letters; beyond ASCII only for narrow ranges, such as an alphabet."""
    for low, high in ranges:
        yield low, high
        for start, end, shift in ((65, 90, 32), (97, 122, -32)):
            if max(low, start) <= min(high, end):
                yield max(low, start) + shift, min(high, end) + shift
        if high > 127 and high - low < _FOLDED_WIDTH_MAX:
            others = (other for code in range(low, high + 1) for other in (chr(code).lower(), chr(code).upper()))
            yield from ((ord(other), ord(other)) for other in others if len(other) == 1)
