"""Pure: whether constraints, affinities and spreads of a job, group or task make sense."""

import re
from collections.abc import Iterator

from lepa.kit.regexp import RegexpError, compile_regexp
from lepa.model.constraint import Affinity, Constraint, Spread

_COMPARISONS = {"=", "==", "is", "!=", "not", "<", "<=", ">", ">="}
_MATCHES = {"regexp", "version", "semver", "set_contains", "set_contains_all", "set_contains_any"}
_DISTINCT = {"distinct_hosts", "distinct_property"}
_PRESENCE = {"is_set", "is_not_set"}
_VERSION_RANGE = re.compile(r"\s*(=|!=|>=|<=|>|<|~>)?\s*v?\d+(\.\d+)*([-+.][0-9A-Za-z.+-]+)?\s*")


def placement_problems(
    constraints: tuple[Constraint, ...],
    affinities: tuple[Affinity, ...] = (),
    spreads: tuple[Spread, ...] = (),
    *,
    of_task: bool = False,
    of_system_job: bool = False,
) -> Iterator[str]:
    """Problems of one level, each numbered from 1 in its list."""
    for number, constraint in enumerate(constraints, 1):
        if of_task and constraint.operand in _DISTINCT:
            yield f"Constraint {number} has disallowed Operand at task level: {constraint.operand}"
        yield from (f"Constraint {number} validation failed: {problem}" for problem in _constraint(constraint))
    if of_system_job and affinities:
        yield "System jobs may not have an affinity block"
        affinities = ()
    for number, affinity in enumerate(affinities, 1):
        yield from (f"Affinity {number} validation failed: {problem}" for problem in _affinity(affinity))
    if of_system_job and spreads:
        yield "System jobs may not have a spread block"
        spreads = ()
    for number, spread in enumerate(spreads, 1):
        yield from (f"Spread {number} validation failed: {problem}" for problem in _spread(spread))


def _constraint(constraint: Constraint) -> Iterator[str]:
    operand = constraint.operand
    if not operand:
        yield "Missing constraint operand"
    elif operand not in _COMPARISONS | _MATCHES | _DISTINCT | _PRESENCE:
        yield f'Unknown constraint type "{operand}"'
    if not constraint.ltarget and operand != "distinct_hosts":
        yield "No LTarget provided but is required by constraint"
    if operand == "distinct_property" and constraint.rtarget:
        if not constraint.rtarget.isascii() or not constraint.rtarget.isdigit() or int(constraint.rtarget) < 1:
            yield f'RTarget "{constraint.rtarget}" of distinct_property must be a positive number'
    elif operand in _PRESENCE and constraint.rtarget:
        yield f'Operator "{operand}" does not support an RTarget'
    elif operand in _COMPARISONS | _MATCHES:
        yield from _right_side(operand, constraint.rtarget)


def _affinity(affinity: Affinity) -> Iterator[str]:
    if not affinity.operand:
        yield "Missing affinity operand"
    elif affinity.operand not in _COMPARISONS | _MATCHES:
        yield f'Unknown affinity operator "{affinity.operand}"'
    else:
        yield from _right_side(affinity.operand, affinity.rtarget)
    if not affinity.ltarget:
        yield "No LTarget provided but is required by affinity"
    if affinity.weight == 0:
        yield "Affinity weight cannot be zero"
    elif not -100 <= affinity.weight <= 100:
        yield "Affinity weight must be within the range [-100,100]"


def _right_side(operand: str, rtarget: str) -> Iterator[str]:
    if not rtarget:
        yield f'Operator "{operand}" requires an RTarget'
    elif "${" in rtarget:
        return
    elif operand == "regexp":
        yield from _regexp(rtarget)
    elif operand in ("version", "semver") and not all(map(_VERSION_RANGE.fullmatch, rtarget.split(","))):
        yield f'Version constraint is invalid: "{rtarget}", expected such as ">= 1.2, < 2.0"'


def _regexp(pattern: str) -> Iterator[str]:
    try:
        compile_regexp(pattern)
    except RegexpError as error:
        yield f"Regular expression failed to compile: {error}"


def _spread(spread: Spread) -> Iterator[str]:
    if not spread.attribute:
        yield "Missing spread attribute"
    if not 1 <= spread.weight <= 100:
        yield "Spread block must have a positive weight from 0 to 100"
    seen: set[str] = set()
    for target in spread.spread_target:
        if target.value in seen:
            yield f'Spread target value "{target.value}" already defined'
        seen.add(target.value)
        if not 0 <= target.percent <= 100:
            yield f'Spread target percentage for value "{target.value}" must be between 0 and 100'
    total = sum(target.percent for target in spread.spread_target)
    if total > 100:
        yield f"Sum of spread target percentages must not be greater than 100%; got {total}%"
