"""Pure: regular expressions that take time in proportion to the text, whatever the pattern.

Python's `re` can take for ever on patterns such as `(a+)+$`, and a server works out the job files of strangers. Here
all ways through the pattern are followed side by side (as in RE2 and Go), each place of the program at most once for
each character. Which match is found is the same: the leftmost, and of those the one that the pattern prefers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from lepa.jobspec.functions.pattern_syntax import Instruction, Program, compile_pattern

STEPS_PER_PAYMENT = 4
"""Steps of the machine that count as one step of evaluation."""

Spend = Callable[[int], None]


class Match(Struct):
    """Where a match is. slots: start and end of the whole match and of each group, -1 where a group took no part."""

    text: str
    slots: tuple[int, ...]
    names: dict[str, int]

    @property
    def span(self) -> tuple[int, int]:
        """Start and end of the whole match."""
        return self.slots[0], self.slots[1]

    def group(self, name: str) -> str:
        """The text of a group by number or name; empty when there is none."""
        number = int(name) if name.isascii() and name.isdigit() else self.names.get(name, -1)
        if number < 0 or 2 * number + 1 >= len(self.slots) or self.slots[2 * number] < 0:
            return ""
        return self.text[self.slots[2 * number] : self.slots[2 * number + 1]]


def replace(text: str, pattern: str, expand: Callable[[Match], str], spend: Spend) -> str:
    """The text with every match replaced. spend: told how much work it was, while it is done; may raise."""
    words: list[str] = []
    position = 0
    for match in matches(text, compile_pattern(pattern), spend):
        start, end = match.span
        words += [text[position:start], expand(match)]
        position = end
    return "".join([*words, text[position:]])


def matches(text: str, program: Program, spend: Spend) -> Iterator[Match]:
    """All matches from left to right that do not overlap; an empty one is not next to the one before."""
    position, last_end = 0, -1
    while position <= len(text):
        slots = _search(text, position, program, spend)
        if slots is None:
            return
        start, end = slots[0], slots[1]
        if end > start or start != last_end:
            yield Match(text, slots, program.names)
        last_end = end
        position = end if end > start else end + 1


Slots = tuple[int, ...]
Thread = tuple[int, Slots]


def _search(text: str, start: int, program: Program, spend: Spend) -> Slots | None:
    """The slots of the first match at or after `start`."""
    code = program.instructions
    unset: Slots = (-1,) * (2 * program.groups + 2)
    threads: list[Thread] = []
    found: Slots | None = None
    steps = 0
    for position in range(start, len(text) + 1):
        begun = threads if found is not None else [*threads, (0, unset)]
        threads, places = _followed(code, begun, text, position)
        if not threads and found is not None:
            break
        steps += places
        if steps >= STEPS_PER_PAYMENT:
            spend(steps // STEPS_PER_PAYMENT)
            steps %= STEPS_PER_PAYMENT
        character = text[position : position + 1]
        following: list[Thread] = []
        for place, slots in threads:
            instruction = code[place]
            if instruction.kind == "match":
                found = slots
                break
            if character and instruction.accepts is not None and instruction.accepts(character):
                following.append((place + 1, slots))
        threads = following
    return found


def _followed(code: list[Instruction], threads: list[Thread], text: str, position: int) -> tuple[list[Thread], int]:
    """The threads at the next instructions that take a character or match, in order of preference; places visited."""
    reached: list[Thread] = []
    seen: set[int] = set()
    stack = threads[::-1]
    while stack:
        place, slots = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        instruction = code[place]
        kind = instruction.kind
        if kind in ("char", "match"):
            reached.append((place, slots))
        elif kind == "jump":
            stack.append((instruction.to, slots))
        elif kind == "split":
            stack.append((instruction.also, slots))
            stack.append((instruction.to, slots))
        elif kind == "save":
            slot = instruction.slot
            stack.append((place + 1, (*slots[:slot], position, *slots[slot + 1 :])))
        elif _holds(instruction.test, text, position):
            stack.append((place + 1, slots))
    return reached, len(seen)


def _holds(test: str, text: str, position: int) -> bool:
    if test == "begin":
        return position == 0
    if test == "end":
        return position == len(text)
    if test == "line begin":
        return position == 0 or text[position - 1] == "\n"
    if test == "line end":
        return position == len(text) or text[position] == "\n"
    edge = _is_word(text[position - 1 : position]) != _is_word(text[position : position + 1])
    return edge == (test == "word edge")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")
