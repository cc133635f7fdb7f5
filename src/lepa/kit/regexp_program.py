"""Pure: the tree of a regular expression -> a program of steps that can be followed side by side.

    a|b     Fork(1, 3); Take a; Fork(4); Take b
    a*      Fork(1, 3); Take a; Fork(0)
    (a)     Save(2); Take a; Save(3)

A step that consumes nothing leads to others; one of those that a Fork names first is preferred. The program is found
where its last step, None, is reached.
"""

from msgspec import Struct

from lepa.kit.regexp_syntax import (
    Assert,
    Assertion,
    Characters,
    Choice,
    Group,
    Node,
    Pattern,
    Ranges,
    RegexpError,
    Repeat,
    Sequence,
)

STEPS_MAX = 3_000
"""Length of a program: repeats are written out, and the time for a character grows with it. Fits `x{0,1000}`."""


class Take(Struct, frozen=True):
    """Consume one character out of the ranges and go on with the next step."""

    ranges: Ranges


class Fork(Struct, frozen=True):
    """Go on at any of these steps, the earlier rather than the later."""

    targets: tuple[int, ...]


class Check(Struct, frozen=True):
    """Go on with the next step if this holds here."""

    what: Assertion


class Save(Struct, frozen=True):
    """Note the place in the text and go on. slot: 2n for the start of group n, 2n + 1 for its end."""

    slot: int


Step = Take | Fork | Check | Save | None
"""None: found."""

Program = tuple[Step, ...]


def write_program(pattern: Pattern) -> Program:
    """The program of a pattern. Raises RegexpError when it would be too long."""
    steps: list[Step] = []
    _emit(pattern.tree, steps)
    return (*steps, None)


def _emit(node: Node, steps: list[Step]) -> None:
    if len(steps) > STEPS_MAX:
        raise RegexpError(f"the pattern needs more than {STEPS_MAX} steps", 0)
    if isinstance(node, Characters):
        steps.append(Take(node.ranges))
    elif isinstance(node, Assert):
        steps.append(Check(node.what))
    elif isinstance(node, Sequence):
        for item in node.items:
            _emit(item, steps)
    elif isinstance(node, Group):
        steps.append(Save(2 * node.number))
        _emit(node.item, steps)
        steps.append(Save(2 * node.number + 1))
    elif isinstance(node, Choice):
        _emit_choice(node.items, steps)
    else:
        _emit_repeat(node, steps)


def _emit_choice(items: tuple[Node, ...], steps: list[Step]) -> None:
    fork = _reserve(steps)
    starts: list[int] = []
    ends: list[int] = []
    for item in items:
        starts.append(len(steps))
        _emit(item, steps)
        ends.append(_reserve(steps))
    steps[fork] = Fork(tuple(starts))
    for end in ends:
        steps[end] = Fork((len(steps),))


def _emit_repeat(node: Repeat, steps: list[Step]) -> None:
    """`x{2,4}` is xx(x(x)?)?, `x{2,}` is xx+."""
    for _ in range(node.low if node.high is not None else node.low - 1):
        _emit(node.item, steps)
    if node.high is None:
        _emit_loop(node, steps)
        return
    forks = []
    for _ in range(node.high - node.low):
        forks.append(_reserve(steps))
        _emit(node.item, steps)
    for fork in forks:
        steps[fork] = _optional(fork + 1, len(steps), node)


def _emit_loop(node: Repeat, steps: list[Step]) -> None:
    """`x+`, or `x*`. Where x may be empty the latter is (x+)?, as in Go: an empty x is taken once and ends the loop."""
    first = _reserve(steps) if node.low == 0 else None
    start = len(steps)
    _emit(node.item, steps)
    again = _optional(start, len(steps) + 1, node)
    steps.append(again if first is None or _may_be_empty(node.item) else Fork((first,)))
    if first is not None:
        steps[first] = again


def _reserve(steps: list[Step]) -> int:
    """Room for a step that is written once it is known where it leads."""
    steps.append(None)
    return len(steps) - 1


def _optional(item: int, rest: int, node: Repeat) -> Fork:
    return Fork((rest, item) if node.lazy else (item, rest))


def _may_be_empty(node: Node) -> bool:
    if isinstance(node, Sequence):
        return all(_may_be_empty(item) for item in node.items)
    if isinstance(node, Choice):
        return any(_may_be_empty(item) for item in node.items)
    if isinstance(node, Repeat):
        return node.low == 0 or _may_be_empty(node.item)
    return _may_be_empty(node.item) if isinstance(node, Group) else isinstance(node, Assert)
