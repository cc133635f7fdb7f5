"""Pure: the comparison operators of constraints and affinities."""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from lepa.kit.regexp import Regexp, RegexpError, compile_regexp
from lepa.scheduler.versions import version_matches


def satisfies(left: str | None, operand: str, right: str | None) -> bool:
    """Whether `left operand right` holds. None is an absent value: different from all, and satisfying nothing else."""
    if operand in ("!=", "not"):
        return left != right
    if operand == "is_set":
        return left is not None
    if operand == "is_not_set":
        return left is None
    if left is None or right is None:
        return False
    operator = _OPERATORS.get(operand)
    return operator is not None and operator(left, right)


def _ordered(compare: Callable[[int], bool]) -> Callable[[str, str], bool]:
    return lambda left, right: compare(_three_way(left, right))


def _three_way(left: str, right: str) -> int:
    """Numbers compare as numbers, anything else as text."""
    if _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        a, b = Fraction(left), Fraction(right)
        return (a > b) - (a < b)
    return (left > right) - (left < right)


_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?")


def _elements(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(","))


def _matches_regexp(value: str, pattern: str) -> bool:
    compiled = _regexp(pattern)
    return compiled is not None and compiled.search(value)


@lru_cache(maxsize=256)
def _regexp(pattern: str) -> Regexp | None:
    """A pattern that cannot be compiled matches nothing."""
    try:
        return compile_regexp(pattern)
    except RegexpError:
        return None


_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "=": str.__eq__,
    "==": str.__eq__,
    "is": str.__eq__,
    "<": _ordered(lambda order: order < 0),
    "<=": _ordered(lambda order: order <= 0),
    ">": _ordered(lambda order: order > 0),
    ">=": _ordered(lambda order: order >= 0),
    "regexp": _matches_regexp,
    "version": lambda left, right: version_matches(left, right),
    "semver": lambda left, right: version_matches(left, right, semver=True),
    "set_contains": lambda left, right: _elements(right) <= _elements(left),
    "set_contains_all": lambda left, right: _elements(right) <= _elements(left),
    "set_contains_any": lambda left, right: bool(_elements(right) & _elements(left)),
}
