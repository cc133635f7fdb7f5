"""Pure: the text of a regular expression (RE2's syntax, as in Go) -> a program for `patterns`.

Not read, as in RE2: back references and looking around. Also not read: Unicode classes (`\\pL`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from msgspec import Struct

from lepa.jobspec import values
from lepa.jobspec.values import Conversion

Accepts = Callable[[str], bool]
"""Is this character one of those?"""

NESTING_MAX = 50
REPEAT_MAX = 1000
PROGRAM_SIZE_MAX = 10_000


class Instruction(Struct):
    """One step. kind: char (accepts), split (to rather than also), jump (to), save (slot), assert (test), match."""

    kind: str
    accepts: Accepts | None = None
    to: int = 0
    also: int = 0
    slot: int = 0
    test: str = ""


class Program(Struct):
    """A compiled pattern. names: groups by name; groups: how many there are, the whole match not counted."""

    instructions: list[Instruction]
    groups: int
    names: dict[str, int]


def compile_pattern(pattern: str) -> Program:
    """The program of a pattern; raises Conversion for what is none."""
    return _Compiler(pattern).program()


_DIGITS, _SPACES = "0123456789", "\t\n\f\r "
_WORDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CLASSES: dict[str, Accepts] = {
    "d": lambda c: c in _DIGITS,
    "w": lambda c: c in _WORDS,
    "s": lambda c: c in _SPACES,
    "D": lambda c: c not in _DIGITS,
    "W": lambda c: c not in _WORDS,
    "S": lambda c: c not in _SPACES,
}
_NAMED: dict[str, Accepts] = {
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "digit": lambda c: c in _DIGITS,
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "upper": lambda c: "A" <= c <= "Z",
    "lower": lambda c: "a" <= c <= "z",
    "space": lambda c: c in "\t\n\v\f\r ",
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "word": lambda c: c in _WORDS,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ASSERTIONS = {"b": "word edge", "B": "no word edge", "A": "begin", "z": "end"}


class _Compiler:
    """Reads the pattern from left to right and writes instructions behind those that are there.

    Repetition and alternatives need room before what they hold; it is made by moving the instructions behind it.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.code: list[Instruction] = []
        self.groups = 0
        self.names: dict[str, int] = {}
        self.flags: frozenset[str] = frozenset()
        self.depth = 0

    def program(self) -> Program:
        self.add(Instruction("save", slot=0))
        self.alternatives()
        if self.position < len(self.pattern):
            self.refuse("a closing parenthesis too many")
        self.add(Instruction("save", slot=1))
        self.add(Instruction("match"))
        return Program(self.code, self.groups, self.names)

    def refuse(self, reason: str) -> NoReturn:
        raise Conversion(f"invalid regular expression {values.quoted(self.pattern)}: {reason}")

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            self.refuse("it ends too early")
        self.position += 1
        return character

    def skip(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def add(self, instruction: Instruction) -> None:
        self.code.append(instruction)
        if len(self.code) > PROGRAM_SIZE_MAX:
            self.refuse("it is too large")

    # Structure

    def alternatives(self) -> None:
        """`a|b|c` up to a closing parenthesis or the end."""
        flags = self.flags
        begin = len(self.code)
        ends: list[int] = []
        self.sequence()
        while self.skip("|"):
            self.insert(begin, Instruction("split", to=begin + 1, also=len(self.code) + 2))
            ends.append(len(self.code))
            self.add(Instruction("jump"))
            begin = len(self.code)
            self.sequence()
        for end in ends:
            self.code[end].to = len(self.code)
        self.flags = flags

    def sequence(self) -> None:
        while self.peek() not in ("", "|", ")"):
            begin = len(self.code)
            self.atom()
            self.repetition(begin)

    def insert(self, at: int, instruction: Instruction) -> None:
        """Make room: jumps to and behind that place move with it."""
        for each in self.code[at:]:
            if each.kind in ("split", "jump"):
                each.to += each.to >= at
                each.also += each.also >= at
        self.code.insert(at, instruction)

    def repetition(self, begin: int) -> None:
        """`*`, `+`, `?`, `{n}`, `{n,}`, `{n,m}` for what was written since `begin`; then `?`: few rather than many."""
        bounds = self.bounds()
        if bounds is None:
            return
        lazy = self.skip("?")
        if self.bounds() is not None:
            self.refuse("a repetition of a repetition")
        least, most = bounds
        body = self.code[begin:]
        del self.code[begin:]
        for _ in range(least):
            self.paste(body, begin)
        if most is None:
            self.loop(body, begin, lazy)
            return
        skips: list[int] = []
        for _ in range(most - least):
            skips.append(len(self.code))
            self.add(Instruction("split"))
            self.paste(body, begin)
        for skip in skips:
            self.code[skip].to, self.code[skip].also = self.ordered(skip + 1, len(self.code), lazy)

    def bounds(self) -> tuple[int, int | None] | None:
        if self.skip("*"):
            return 0, None
        if self.skip("+"):
            return 1, None
        if self.skip("?"):
            return 0, 1
        end = self.pattern.find("}", self.position)
        if self.peek() != "{" or end < 0:
            return None
        low, comma, high = self.pattern[self.position + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit() and (high == "" or (high.isascii() and high.isdigit()))):
            return None
        least, most = int(low[:5]), int(high[:5]) if high else (None if comma else int(low[:5]))
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            self.refuse("a bad repetition count")
        self.position = end + 1
        return least, most

    def loop(self, body: list[Instruction], begin: int, lazy: bool) -> None:
        split = len(self.code)
        self.add(Instruction("split"))
        self.paste(body, begin)
        self.add(Instruction("jump", to=split))
        self.code[split].to, self.code[split].also = self.ordered(split + 1, len(self.code), lazy)

    def ordered(self, into: int, past: int, lazy: bool) -> tuple[int, int]:
        return (past, into) if lazy else (into, past)

    def paste(self, body: list[Instruction], begin: int) -> None:
        """Write a copy of instructions that stood at `begin`."""
        moved = len(self.code) - begin
        for each in body:
            jumps = each.kind in ("split", "jump")
            to, also = (each.to + moved, each.also + moved) if jumps else (0, 0)
            self.add(Instruction(each.kind, each.accepts, to, also, each.slot, each.test))

    # Atoms

    def atom(self) -> None:
        character = self.take()
        if character == "(":
            self.group()
        elif character == "[":
            self.character(self.bracket())
        elif character == ".":
            self.add(Instruction("char", _anything if "s" in self.flags else _no_newline))
        elif character == "^":
            self.add(Instruction("assert", test="line begin" if "m" in self.flags else "begin"))
        elif character == "$":
            self.add(Instruction("assert", test="line end" if "m" in self.flags else "end"))
        elif character == "\\":
            self.escape()
        elif character in "*+?":
            self.refuse(f"nothing to repeat before {character}")
        else:
            self.character(_equal_to(character))

    def group(self) -> None:
        self.depth += 1
        if self.depth > NESTING_MAX:
            self.refuse("nested too deeply")
        flags = self.flags
        slot = 0
        if self.skip("?P<") or self.skip("?<"):
            slot = self.named()
        elif self.skip("?"):
            if not self.set_flags():
                self.depth -= 1
                return
        else:
            self.groups += 1
            slot = self.groups
        if slot:
            self.add(Instruction("save", slot=2 * slot))
        self.alternatives()
        if not self.skip(")"):
            self.refuse("a parenthesis is not closed")
        if slot:
            self.add(Instruction("save", slot=2 * slot + 1))
        self.flags = flags
        self.depth -= 1

    def named(self) -> int:
        end = self.pattern.find(">", self.position)
        name = self.pattern[self.position : end] if end >= 0 else ""
        if not name or not all(character in _WORDS for character in name) or name in self.names:
            self.refuse("a bad or repeated group name")
        self.position = end + 1
        self.groups += 1
        self.names[name] = self.groups
        return self.groups

    def set_flags(self) -> bool:
        """`i`, `m`, `s` and `-`; True when a group follows (`(?i:...)`), False when they hold for the rest (`(?i)`)."""
        adding = True
        while (character := self.take()) not in (":", ")"):
            if character == "-":
                adding = False
            elif character in "ims":
                self.flags = self.flags | {character} if adding else self.flags - {character}
            else:
                self.refuse(f"(?{character} is not supported")
        return character == ":"

    def character(self, accepts: Accepts) -> None:
        if "i" in self.flags:
            original = accepts
            accepts = lambda c: original(c) or original(c.lower()) or original(c.upper())  # noqa: E731
        self.add(Instruction("char", accepts))

    def escape(self) -> None:
        character = self.take()
        if character in _ASSERTIONS:
            self.add(Instruction("assert", test=_ASSERTIONS[character]))
        elif character in _CLASSES:
            self.add(Instruction("char", _CLASSES[character]))
        else:
            self.character(_equal_to(self.escaped(character)))

    def escaped(self, character: str) -> str:
        """The character that an escape writes."""
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "x":
            digits = self.hexadecimal()
            return chr(int(digits, 16))
        if character.isalnum():
            self.refuse(f"\\{character} is not supported")
        return character

    def hexadecimal(self) -> str:
        if self.skip("{"):
            end = self.pattern.find("}", self.position)
            digits = self.pattern[self.position : max(end, self.position)]
            self.position = end + 1
        else:
            digits = self.pattern[self.position : self.position + 2]
            self.position += 2
        if not digits or len(digits) > 6 or any(d not in "0123456789abcdefABCDEF" for d in digits):
            self.refuse("\\x needs hexadecimal digits")
        if int(digits, 16) > 0x10FFFF:
            self.refuse("\\x names no character")
        return digits

    def bracket(self) -> Accepts:
        """The inside of `[...]`."""
        negated = self.skip("^")
        parts: list[Accepts] = []
        first = True
        while first or self.peek() != "]":
            first = False
            parts.append(self.member())
        self.position += 1
        if negated:
            return lambda c: not any(accepts(c) for accepts in parts)
        return lambda c: any(accepts(c) for accepts in parts)

    def member(self) -> Accepts:
        if self.skip("[:"):
            end = self.pattern.find(":]", self.position)
            name = self.pattern[self.position : max(end, self.position)]
            self.position = end + 2
            if name.removeprefix("^") not in _NAMED or end < 0:
                self.refuse("an unknown character class")
            accepts = _NAMED[name.removeprefix("^")]
            return (lambda c: not accepts(c)) if name.startswith("^") else accepts
        low = self.take()
        if low == "\\":
            low = self.take()
            if low in _CLASSES:
                return _CLASSES[low]
            low = self.escaped(low)
        if self.peek() != "-" or self.pattern[self.position + 1 : self.position + 2] in ("]", ""):
            return _equal_to(low)
        self.position += 1
        high = self.take()
        high = self.escaped(self.take()) if high == "\\" else high
        if high < low:
            self.refuse("a range that goes backwards")
        return lambda c: low <= c <= high


def _anything(character: str) -> bool:
    return True


def _no_newline(character: str) -> bool:
    return character != "\n"


def _equal_to(wanted: str) -> Accepts:
    return lambda c: c == wanted
