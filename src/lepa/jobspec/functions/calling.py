"""Pure: from a plain Python function to one that expressions can call.

A Row says how many arguments there are and what each must be. Taking the arguments, checking and converting them, and
saying which one does not fit is done here once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from lepa.jobspec import values
from lepa.jobspec.diagnostics import Refusal
from lepa.jobspec.expressions import Function, Scope, evaluate, refusal
from lepa.jobspec.syntax import Call, Expression
from lepa.jobspec.values import Conversion

Parameter = Callable[[Any], Any]


class Row(Struct, frozen=True):
    """One function. body: takes converted values, raises Conversion.

    optional: how many of the last parameters may be left out. rest: what all further arguments must be, if there may be
    any. pays: the body takes, before its values, a function that it tells how many steps of work it does.
    """

    name: str
    body: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    optional: int = 0
    rest: Parameter | None = None
    pays: bool = False


def row(
    name: str,
    body: Callable[..., Any],
    *parameters: Parameter,
    optional: int = 0,
    rest: Parameter | None = None,
    pays: bool = False,
) -> Row:
    """A Row, written short."""
    return Row(name, body, parameters, optional, rest, pays)


def callable_from(entry: Row) -> Function:
    """What the evaluator calls for a row."""

    def function(scope: Scope, call: Call) -> Any:
        given = arguments(scope, call)
        _check_count(entry, call, len(given))
        converted = [_converted(entry, call, index, value) for index, value in enumerate(given)]
        try:
            if entry.pays:
                result = entry.body(lambda steps: scope.budget.spend(call, steps), *converted)
            else:
                result = entry.body(*converted)
        except Conversion as problem:
            raise _failed(call, str(problem)) from None
        scope.budget.spend_value(call, result)
        return result

    return function


def arguments(scope: Scope, call: Call) -> list[Any]:
    """The values of all arguments, the last spread out if the call says so; none is larger than values may be."""
    given = [evaluate(argument, scope) for argument in call.arguments]
    if call.expand:
        last = given.pop()
        if not isinstance(last, list):
            detail = f"Only a list can be spread out with ..., not a {values.kind_of(last)}."
            raise refusal(call.arguments[-1], "Invalid expanding argument value", detail)
        given.extend(last)
    for value in given:
        scope.budget.spend_value(call, value)
    return given


def _check_count(entry: Row, call: Call, count: int) -> None:
    most = len(entry.parameters)
    least = most - entry.optional
    if count < least:
        wanted = f"{least} {'argument' if least == 1 else 'arguments'}"
        detail = f'Function "{entry.name}" expects {"at least " if entry.optional or entry.rest else ""}{wanted}.'
        raise refusal(call, "Not enough function arguments", detail)
    if count > most and entry.rest is None:
        detail = f'Function "{entry.name}" expects {"at most " if entry.optional else ""}{most} arguments.'
        raise refusal(call, "Too many function arguments", detail)


def _converted(entry: Row, call: Call, index: int, value: Any) -> Any:
    parameter = entry.parameters[index] if index < len(entry.parameters) else entry.rest
    assert parameter is not None
    try:
        return parameter(value)
    except Conversion as problem:
        raise _invalid(entry, call, index, str(problem)) from None


def _invalid(entry: Row, call: Call, index: int, reason: str) -> Refusal:
    where: Expression = call.arguments[min(index, len(call.arguments) - 1)]
    detail = f'Argument {index + 1} of "{entry.name}" does not fit: {reason}.'
    return refusal(where, "Invalid function argument", detail)


def _failed(call: Call, reason: str) -> Refusal:
    return refusal(call, "Error in function call", f'Call to function "{call.name}" failed: {reason}.')


# What parameters can be


def anything(value: Any) -> Any:
    """Any value, null included."""
    return value


def present(value: Any) -> Any:
    """Any value but null."""
    if value is None:
        raise Conversion("argument must not be null")
    return value


def text(value: Any) -> str:
    """A text or what can be written as one."""
    return values.to_text(present(value))


def number(value: Any) -> int | float:
    """A number or a text that writes one."""
    return values.to_number(present(value))


def whole(value: Any) -> int:
    """A whole number."""
    return values.to_whole(present(value))


def sequence(value: Any) -> list[Any]:
    """A list or set, as a list."""
    if not isinstance(value, list):
        raise Conversion(f"a list is required, but have {values.kind_of(value)}")
    return value


def text_list(value: Any) -> list[str]:
    """A list of texts."""
    return [text(each) for each in sequence(value)]


def mapping(value: Any) -> dict[str, Any]:
    """A map or object."""
    if not isinstance(value, dict):
        raise Conversion(f"a map is required, but have {values.kind_of(value)}")
    return value
