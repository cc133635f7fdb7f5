r"""Pure: regular expressions in RE2's syntax, followed in time linear in the text whatever the pattern.

Patterns come from people (filters, constraints, job files) and texts from others; the standard library backtracks, so a
pattern such as `(a+)+$` would hold the server for hours. Here a pattern becomes a program of consuming and branching
steps, and all steps that are possible after each character are followed side by side instead of one guess at a time.

`search` only tells whether there is a match, so it needs no order among the steps: sets of them repeat, and are
remembered with what each character makes of them. Mostly a character is one dictionary look-up. `matches` tells where:
the leftmost match, and of those the one the pattern prefers, as in Go.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from lepa.kit.regexp_program import Check, Fork, Program, Save, Step, Take, write_program
from lepa.kit.regexp_syntax import Assertion, RegexpError, parse_pattern

__all__ = ["Match", "Regexp", "RegexpError", "compile_regexp"]

REMEMBERED_MAX = 20_000
"""Transitions, and steps of the sets they lead to, that are remembered of one pattern before all are forgotten."""

SPENT_AT_ONCE = 1_000
"""Steps after which `matches` tells how much work it was."""

SLOTS_PER_STEP = 64
"""Places of groups that are copied in the time of one step."""

Spend = Callable[[int], None]
"""Told how many steps were followed since it was last told; raises to give up."""

_NUMBER = re.compile("0|[1-9][0-9]{0,7}")
_REFERENCE = re.compile(r"\$(?:\$|(?P<name>\w+)|\{(?P<braced>\w+)\})")

_Side = Literal["edge", "newline", "word", "other"]
_Slots = tuple[int, ...]
_Thread = tuple[int, _Slots]
"""A step that is reached, and where the groups on the way to it started and ended."""


@lru_cache(maxsize=256)
def compile_regexp(pattern: str) -> "Regexp":
    """The compiled pattern. Raises RegexpError."""
    read = parse_pattern(pattern)
    return Regexp(write_program(read), read.group_count, read.group_names)


def _free(steps: int) -> None:
    """Work that nobody counts."""


class Match(Struct, frozen=True):
    """Where a match is. slots: start and end of the whole match and of each group, -1 where a group took no part."""

    text: str
    slots: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """Start and end of the whole match."""
        return self.slots[0], self.slots[1]

    def group(self, number: int) -> str:
        """The text of a group, of the whole match for 0; empty where the group took no part."""
        start, end = self.slots[2 * number : 2 * number + 2]
        return self.text[start:end] if start >= 0 else ""


class _State:
    """Steps that are possible between two characters, and what the characters seen so far make of them."""

    __slots__ = ("before", "following", "steps")

    def __init__(self, steps: frozenset[int], before: _Side) -> None:
        self.steps = steps
        self.before = before
        self.following: dict[str, _State] = {}


_END = ""
"""Stands for the character before the first and after the last."""

_FOUND = _State(frozenset(), "edge")
"""What follows once the pattern was found, whatever comes."""


class Regexp:
    """A compiled pattern, which several threads may use. remembered: transitions and steps that `search` has kept."""

    def __init__(self, program: Program, group_count: int, group_names: Mapping[str, int]) -> None:
        self._program = program
        self._unset: _Slots = (-1,) * (2 * group_count + 2)
        self._cost = 1 + len(self._unset) // SLOTS_PER_STEP
        self.group_count = group_count
        self.group_names = group_names
        self._forget()

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        state = self._start
        for character in text:
            state = state.following.get(character) or self._follow(state, character)
            if state is _FOUND:
                return True
        return (state.following.get(_END) or self._follow(state, _END)) is _FOUND

    def matches(self, text: str, spend: Spend = _free) -> Iterator[Match]:
        """All matches from left to right that do not overlap; an empty one is not next to the one before.

        Each match takes time linear in the text. A pattern that looks to the end of the text before it is content with
        a little can make all of them take its square, so who does not trust a pattern limits the work with `spend`.
        """
        position, last_end = 0, -1
        while position <= len(text):
            slots = self._first(text, position, spend)
            if slots is None:
                return
            start, end = slots[0], slots[1]
            if end > start or start != last_end:
                yield Match(text, slots)
            last_end = end
            position = end if end > start else end + 1

    def replace(self, text: str, template: str, spend: Spend = _free) -> Iterator[str]:
        """The text with every match replaced, as parts to be joined: who joins them can stop when it gets too long.

        template: `$1`, `$name` and `${name}` stand for the texts of groups (of none: for nothing), `$$` for a dollar.
        """
        parts = self._template_parts(template)
        position = 0
        for match in self.matches(text, spend):
            spend(len(parts))
            start, end = match.span
            yield text[position:start]
            yield from (part if isinstance(part, str) else match.group(part) for part in parts)
            position = end
        yield text[position:]

    def _template_parts(self, template: str) -> list[str | int]:
        """Texts and the numbers of groups."""
        parts: list[str | int] = []
        position = 0
        for found in _REFERENCE.finditer(template):
            name = found["name"] or found["braced"]
            group = self._group_number(name) if name else "$"
            parts += [template[position : found.start()], "" if group is None else group]
            position = found.end()
        parts.append(template[position:])
        return [part for part in parts if part != ""]

    def _group_number(self, name: str) -> int | None:
        number = int(name) if _NUMBER.fullmatch(name) else self.group_names.get(name)
        return number if number is not None and number <= self.group_count else None

    # Whether: sets of steps

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[int], _Side], _State] = {}
        self.remembered = 0
        self._start = self._state(frozenset({0}), "edge")

    def _state(self, steps: frozenset[int], before: _Side) -> _State:
        known = self._states.get((steps, before))
        if known is None:
            known = self._states.setdefault((steps, before), _State(steps, before))
            self.remembered += len(steps)
        return known

    def _follow(self, state: _State, character: str) -> _State:
        """The state after the character; `_FOUND` when the pattern was found before it."""
        if self.remembered >= REMEMBERED_MAX:
            self._forget()
        after, code = _side(character), ord(character) if character else -1
        reached = self._reached(state, after)
        following = _FOUND
        if None not in reached:
            taken = {at + 1 for at in reached if at is not None and _takes(self._program[at], code)}
            following = self._state(frozenset(taken | {0}), after)
        state.following[character] = following
        self.remembered += 1
        return following

    def _reached(self, state: _State, after: _Side) -> set[int | None]:
        """Consuming steps that can be reached without consuming; None among them when the end can."""
        found: set[int | None] = set()
        seen = set(state.steps)
        waiting = list(state.steps)
        while waiting:
            at = waiting.pop()
            step = self._program[at]
            if step is None or isinstance(step, Take):
                found.add(at if step else None)
                continue
            targets = _targets(at, step, state.before, after)
            waiting.extend(target for target in targets if target not in seen)
            seen.update(targets)
        return found

    # Where: threads in order of preference

    def _first(self, text: str, start: int, spend: Spend) -> _Slots | None:
        """The slots of the first match at or after `start`."""
        threads: list[_Thread] = []
        found: _Slots | None = None
        before = _side(text[start - 1 : start])
        spent = 0
        for position in range(start, len(text) + 1):
            if found is None:
                threads.append((0, (position, *self._unset[1:])))
            if not threads:
                break
            character = text[position : position + 1]
            after = _side(character)
            reached, steps = self._preferred(threads, before, after, position)
            spent += steps * self._cost
            if spent >= SPENT_AT_ONCE:
                spend(spent)
                spent = 0
            threads = []
            for at, slots in reached:
                step = self._program[at]
                if step is None:
                    found = (slots[0], position, *slots[2:])
                    break
                if character and _takes(step, ord(character)):
                    threads.append((at + 1, slots))
            before = after
        spend(spent)
        return found

    def _preferred(
        self, threads: list[_Thread], before: _Side, after: _Side, position: int
    ) -> tuple[list[_Thread], int]:
        """Consuming steps and the end that the threads reach without consuming, in order; how many steps it took."""
        reached: list[_Thread] = []
        seen: set[int] = set()
        waiting = threads[::-1]
        while waiting:
            at, slots = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self._program[at]
            if step is None or isinstance(step, Take):
                reached.append((at, slots))
                continue
            if isinstance(step, Save):
                slots = (*slots[: step.slot], position, *slots[step.slot + 1 :])
            waiting.extend((target, slots) for target in reversed(_targets(at, step, before, after)))
        return reached, len(seen)


def _targets(at: int, step: Fork | Check | Save, before: _Side, after: _Side) -> tuple[int, ...]:
    """Where a step that consumes nothing leads, between characters of these kinds."""
    if isinstance(step, Fork):
        return step.targets
    return (at + 1,) if isinstance(step, Save) or _holds(step.what, before, after) else ()


def _takes(step: Step, code: int) -> bool:
    if isinstance(step, Take):
        for low, high in step.ranges:
            if low <= code <= high:
                return True
    return False


def _side(character: str) -> _Side:
    if character == _END:
        return "edge"
    if character == "\n":
        return "newline"
    return "word" if character.isascii() and (character.isalnum() or character == "_") else "other"


def _holds(what: Assertion, before: _Side, after: _Side) -> bool:
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
