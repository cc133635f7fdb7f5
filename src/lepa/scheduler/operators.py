"""Pure: the comparison operators of constraints and affinities."""

import re
from collections.abc import Callable
from functools import lru_cache

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
    a, b = _number(left), _number(right)
    if a is not None and b is not None:
        return (a > b) - (a < b)
    return (left > right) - (left < right)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _elements(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(","))


def _matches_regexp(value: str, pattern: str) -> bool:
    compiled = _regexp(pattern)
    return compiled is not None and compiled.search(value) is not None


@lru_cache(maxsize=256)
def _regexp(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
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
