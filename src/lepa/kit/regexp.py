r"""Pure: regular expressions in RE2's syntax, searched in time linear in the text whatever the pattern.

Patterns come from people (filters, constraints) and texts from others; the standard library backtracks, so a pattern
such as `(a+)+$` would hold the server for hours. Here a pattern becomes a program of consuming and branching steps, and
the set of steps that are possible after each character is followed instead of one guess at a time. Such sets repeat,
so they are remembered with what each character makes of them: mostly a step is one dictionary look-up.

Only whether a pattern is found is told, so greediness and captures mean nothing. Left out: `\p{…}`, `\C`; refused as in
RE2: look-around, back references.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

PATTERN_LENGTH_MAX = 1_024
REPEAT_MAX = 1_000
STEPS_MAX = 2_000
"""Length of a compiled program: repeats are written out, and the time for a character grows with it."""
DEPTH_MAX = 100
_REMEMBERED_MAX = 5_000
"""Transitions remembered of one pattern before all are forgotten."""

_LAST = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
_Assertion = Literal["text start", "text end", "line start", "line end", "word boundary", "no word boundary"]
_Side = Literal["edge", "newline", "word", "other"]

_DIGIT: _Ranges = ((48, 57),)
_WORD: _Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: _Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES: dict[str, _Ranges] = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, _Ranges] = {
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
_ASSERTED: dict[str, _Assertion] = {"A": "text start", "z": "text end", "b": "word boundary", "B": "no word boundary"}


class RegexpError(ValueError):
    """The pattern cannot be read. position: index into it, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position + 1}")
        self.position = position


@lru_cache(maxsize=256)
def compile_regexp(pattern: str) -> "Regexp":
    """The compiled pattern. Raises RegexpError."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise RegexpError(f"the pattern is longer than {PATTERN_LENGTH_MAX} characters", PATTERN_LENGTH_MAX)
    return Regexp(_program(_Parser(pattern).parse()))


# Syntax tree


class _Characters(NamedTuple):
    """One character out of these ranges of code points, which are in order and apart."""

    ranges: _Ranges


class _Sequence(NamedTuple):
    items: tuple["_Node", ...]


class _Choice(NamedTuple):
    items: tuple["_Node", ...]


class _Repeat(NamedTuple):
    item: "_Node"
    low: int
    high: int | None


class _Assert(NamedTuple):
    what: _Assertion


_Node = _Characters | _Sequence | _Choice | _Repeat | _Assert

_NOTHING = _Sequence(())
"""Kept out of sequences and repeats, so that writing repeats out always makes the program longer."""


class _Flags(NamedTuple):
    """i: either case; m: ^ and $ at lines; s: the dot takes newlines too; U: laziness, which means nothing here."""

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

    def parse(self) -> _Node:
        found = self._choice()
        if self.at < len(self.pattern):
            raise self._error("a parenthesis is closed that was not opened")
        return found

    def _choice(self) -> _Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._error(f"the pattern nests deeper than {DEPTH_MAX}")
        outer, items = self.flags, [self._sequence()]
        while self._take("|"):
            items.append(self._sequence())
        self.flags = outer
        self.depth -= 1
        return items[0] if len(items) == 1 else _Choice(tuple(items))

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._take("\\Q"):
                end = self.pattern.find("\\E", self.at)
                literal = self.pattern[self.at : end if end >= 0 else None]
                items.extend(self._one(ord(character)) for character in literal)
                self.at += len(literal) + (2 if end >= 0 else 0)
            else:
                items.append(self._repeated(self._atom()))
        return _Sequence(tuple(item for item in items if item != _NOTHING))

    def _repeated(self, item: _Node) -> _Node:
        start = self.at
        bounds = self._bounds()
        if bounds is None:
            return item
        self._take("?")
        if item == _NOTHING or bounds == (0, 0):
            item = _NOTHING
        if self._peek() in ("*", "+", "?") or (self._peek() == "{" and self._bounds() is not None):
            raise RegexpError("a repeat is repeated", start)
        return item if item == _NOTHING else _Repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        end = self.pattern.find("}", self.at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        bounds = int(low), (int(high) if high else None) if comma else int(low)
        if max(bounds[0], bounds[1] or 0) > REPEAT_MAX or (bounds[1] is not None and bounds[1] < bounds[0]):
            raise self._error(f"a repeat is not within 0 to {REPEAT_MAX} or runs backwards")
        self.at = end + 1
        return bounds

    def _atom(self) -> _Node:
        start, character = self.at, self._next()
        if character == "(":
            return self._group(start)
        if character == "[":
            return _Characters(self._class(start))
        if character == ".":
            return _Characters(((0, _LAST),) if self.flags.s else _complement(((10, 10),)))
        if character == "^":
            return _Assert("line start" if self.flags.m else "text start")
        if character == "$":
            return _Assert("line end" if self.flags.m else "text end")
        if character in "*+?":
            raise RegexpError("there is nothing to repeat", start)
        if character == "\\":
            return self._escape(start)
        return self._one(ord(character))

    def _group(self, start: int) -> _Node:
        outer = self.flags
        if self._take("?"):
            if self._take("P<") or (self._peek() == "<" and self.pattern[self.at + 1 : self.at + 2] not in ("=", "!")):
                end = self.pattern.find(">", self.at)
                if end < 0:
                    raise RegexpError("the name of a group does not end", start)
                self.at = end + 1
            elif self._set_flags(start):
                return _NOTHING
        inner = self._choice()
        self.flags = outer
        if not self._take(")"):
            raise RegexpError("a parenthesis is not closed", start)
        return inner

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

    def _escape(self, start: int) -> _Node:
        character = self._peek()
        if character in _ASSERTED:
            self.at += 1
            return _Assert(_ASSERTED[character])
        found = self._escaped_class()
        return _Characters(found) if found is not None else self._one(self._escaped_character(start))

    def _escaped_class(self) -> _Ranges | None:
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
        if character == "0":
            digits = ""
            while len(digits) < 2 and self._peek() in tuple("01234567"):
                digits += self._next()
            return int(digits or "0", 8)
        if not character or (character.isalnum() and character.isascii()):
            raise RegexpError(f'"\\{character}" is not supported', start)
        return ord(character)

    def _hexadecimal(self, start: int) -> int:
        if self._take("{"):
            digits, brace, _ = self.pattern[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits, brace = self.pattern[self.at : self.at + 2], "}"
            self.at += 2
        if not brace or not 1 <= len(digits) <= 6 or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise RegexpError("a code point is not hexadecimal", start)
        if int(digits, 16) > _LAST:
            raise RegexpError("there is no such code point", start)
        return int(digits, 16)

    def _class(self, start: int) -> _Ranges:
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

    def _class_item(self) -> _Ranges:
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

    def _one(self, code: int) -> _Characters:
        ranges = ((code, code),)
        return _Characters(_ordered(_either_case(ranges)) if self.flags.i else ranges)

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


def _ordered(ranges: Iterable[tuple[int, int]]) -> _Ranges:
    """The same code points as ranges in order that do not touch."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _complement(ranges: _Ranges) -> _Ranges:
    found: list[tuple[int, int]] = []
    low = 0
    for start, end in _ordered(ranges):
        if start > low:
            found.append((low, start - 1))
        low = end + 1
    return (*found, (low, _LAST)) if low <= _LAST else tuple(found)


def _either_case(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges with the other case of their letters; beyond ASCII only for single characters."""
    for low, high in ranges:
        yield low, high
        for start, end, shift in ((65, 90, 32), (97, 122, -32)):
            if max(low, start) <= min(high, end):
                yield max(low, start) + shift, min(high, end) + shift
        if low == high > 127:
            yield from ((ord(c), ord(c)) for c in (chr(low).lower(), chr(low).upper()) if len(c) == 1)


# Program


class _Take(NamedTuple):
    """Consume one character out of the ranges and go on with the next step."""

    ranges: _Ranges


class _Fork(NamedTuple):
    """Go on at any of these steps."""

    targets: tuple[int, ...]


class _Check(NamedTuple):
    """Go on with the next step if this holds here."""

    what: _Assertion


_Step = _Take | _Fork | _Check | None
"""None: found."""


def _program(tree: _Node) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    _emit(tree, steps)
    steps.append(None)
    return tuple(steps)


def _emit(node: _Node, steps: list[_Step]) -> None:
    if len(steps) > STEPS_MAX:
        raise RegexpError(f"the pattern needs more than {STEPS_MAX} steps", 0)
    if isinstance(node, _Characters):
        steps.append(_Take(node.ranges))
    elif isinstance(node, _Assert):
        steps.append(_Check(node.what))
    elif isinstance(node, _Sequence):
        for item in node.items:
            _emit(item, steps)
    elif isinstance(node, _Choice):
        _emit_choice(node.items, steps)
    else:
        _emit_repeat(node, steps)


def _emit_choice(items: tuple[_Node, ...], steps: list[_Step]) -> None:
    fork = len(steps)
    steps.append(None)
    starts: list[int] = []
    ends: list[int] = []
    for item in items:
        starts.append(len(steps))
        _emit(item, steps)
        ends.append(len(steps))
        steps.append(None)
    steps[fork] = _Fork(tuple(starts))
    for end in ends:
        steps[end] = _Fork((len(steps),))


def _emit_repeat(node: _Repeat, steps: list[_Step]) -> None:
    """`x{2,4}` is xx(x(x)?)?, `x{2,}` is xxx*."""
    for _ in range(node.low):
        _emit(node.item, steps)
    if node.high is None:
        fork = len(steps)
        steps.append(None)
        _emit(node.item, steps)
        steps.append(_Fork((fork,)))
        steps[fork] = _Fork((fork + 1, len(steps)))
        return
    forks = []
    for _ in range(node.high - node.low):
        forks.append(len(steps))
        steps.append(None)
        _emit(node.item, steps)
    for fork in forks:
        steps[fork] = _Fork((fork + 1, len(steps)))


# Search


class _State:
    """Steps that are possible between two characters, and what the characters seen so far make of them."""

    __slots__ = ("before", "following", "steps")

    def __init__(self, steps: frozenset[int], before: _Side) -> None:
        self.steps = steps
        self.before = before
        self.following: dict[str, _State] = {}


_END = ""
"""Stands for the character after the last."""

_FOUND = _State(frozenset(), "edge")
"""What follows once the pattern was found, whatever comes."""


class Regexp:
    """A compiled pattern."""

    def __init__(self, steps: tuple[_Step, ...]) -> None:
        self._steps = steps
        self._forget()

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        state = self._start
        for character in text:
            state = state.following.get(character) or self._follow(state, character)
            if state is _FOUND:
                return True
        return (state.following.get(_END) or self._follow(state, _END)) is _FOUND

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[int], _Side], _State] = {}
        self._remembered = 0
        self._start = self._state(frozenset({0}), "edge")

    def _state(self, steps: frozenset[int], before: _Side) -> _State:
        return self._states.setdefault((steps, before), _State(steps, before))

    def _follow(self, state: _State, character: str) -> _State:
        """The state after the character; `_FOUND` when the pattern was found before it."""
        if self._remembered >= _REMEMBERED_MAX:
            self._forget()
        side, code = _side(character), ord(character) if character else -1
        reachable = self._reachable(state, side)
        found = _FOUND
        if None not in reachable:
            taken = {at + 1 for at in reachable if at is not None and _takes(self._steps[at], code)}
            found = self._state(frozenset(taken | {0}), side)
        state.following[character] = found
        self._remembered += 1
        return found

    def _reachable(self, state: _State, after: _Side) -> set[int | None]:
        """Consuming steps that can be reached without consuming; None among them when the end can."""
        found: set[int | None] = set()
        seen = set(state.steps)
        waiting = list(state.steps)
        while waiting:
            at = waiting.pop()
            step = self._steps[at]
            targets: tuple[int, ...] = ()
            if step is None:
                found.add(None)
            elif isinstance(step, _Take):
                found.add(at)
            elif isinstance(step, _Fork):
                targets = step.targets
            elif _holds(step.what, state.before, after):
                targets = (at + 1,)
            waiting.extend(target for target in targets if target not in seen)
            seen.update(targets)
        return found


def _takes(step: _Step, code: int) -> bool:
    return isinstance(step, _Take) and any(low <= code <= high for low, high in step.ranges)


def _side(character: str) -> _Side:
    if character == _END:
        return "edge"
    if character == "\n":
        return "newline"
    return "word" if character.isascii() and (character.isalnum() or character == "_") else "other"


def _holds(what: _Assertion, before: _Side, after: _Side) -> bool:
    if what == "text start":
        return before == "edge"
    if what == "text end":
        return after == "edge"
    if what == "line start":
        return before in ("edge", "newline")
    if what == "line end":
        return after in ("edge", "newline")
    boundary = (before == "word") != (after == "word")
    return boundary == (what == "word boundary")
