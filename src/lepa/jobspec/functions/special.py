"""Pure: functions that look at their arguments before they are worked out, and those that this build refuses."""

from __future__ import annotations

from typing import Any

from lepa.jobspec import hcl, values
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import Function, Scope, Unresolved, evaluate, refusal
from lepa.jobspec.functions import files
from lepa.jobspec.functions.calling import arguments, mapping, text
from lepa.jobspec.syntax import Call
from lepa.jobspec.values import Conversion
from lepa.jobspec.variables import read_type


def _try(scope: Scope, call: Call) -> Any:
    """The first argument that can be worked out."""
    problem: Refusal | None = None
    for argument in call.arguments:
        try:
            return evaluate(argument, scope)
        except Unresolved:
            raise
        except Refusal as failure:
            problem = failure
    detail = f"No expression succeeded. The last one failed: {problem.detail}" if problem else "It needs an argument."
    raise refusal(call, "Error in function call", f'Call to function "try" failed: {detail}')


def _can(scope: Scope, call: Call) -> bool:
    """Can the argument be worked out?"""
    if len(call.arguments) != 1:
        raise refusal(call, "Not enough function arguments", 'Function "can" expects 1 argument.')
    try:
        evaluate(call.arguments[0], scope)
    except Unresolved:
        raise
    except Refusal:
        return False
    return True


def _convert(scope: Scope, call: Call) -> Any:
    """A value as a value of a type: convert("5", number)."""
    if len(call.arguments) != 2:
        raise refusal(call, "Not enough function arguments", 'Function "convert" expects a value and a type.')
    value = evaluate(call.arguments[0], scope)
    scope.budget.spend_value(call, value)
    try:
        return values.convert(value, read_type(call.arguments[1]))
    except Conversion as problem:
        raise refusal(call.arguments[0], "Invalid function argument", f"Cannot be converted: {problem}.") from None


def templatefile(read_file: files.ReadFile | None) -> Function:
    """templatefile(path, variables): the text of a file with its interpolations worked out.

    A template file cannot render another one, which could go on for ever.
    """

    def function(scope: Scope, call: Call) -> Any:
        given = arguments(scope, call)
        if len(given) != 2:
            detail = 'Function "templatefile" expects a path and a map of variables.'
            raise refusal(call, "Not enough function arguments", detail)
        try:
            path, names = text(given[0]), mapping(given[1])
            content = files.read(read_file, path)
        except Conversion as problem:
            detail = f'Call to function "templatefile" failed: {problem}.'
            raise refusal(call, "Error in function call", detail) from None
        return _rendered(scope, call, Source(path, content), names)

    return function


def _rendered(scope: Scope, call: Call, source: Source, names: dict[str, Any]) -> Any:
    report = Reporter(source)
    template = hcl.parse_template(report)
    functions = {name: function for name, function in scope.functions.items() if name != "templatefile"}
    inner = Scope(source.text, names, functions, scope.budget, closed=True)
    try:
        if template is not None:
            return evaluate(template, inner)
    except Refusal as problem:
        report.refuse(problem)
    raise refusal(call, "Error in function call", f"The template cannot be rendered: {report.found[0].render()}")


def _refused(reason: str) -> Function:
    def function(scope: Scope, call: Call) -> Any:
        raise refusal(call, "Unsupported function", f'"{call.name}" is not supported: {reason}.')

    return function


FUNCTIONS: dict[str, Function] = {
    "try": _try,
    "can": _can,
    "convert": _convert,
    "bcrypt": _refused("it gives another result each time, so that the job would change each time it is read"),
    "uuidv4": _refused("it gives another result each time, so that the job would change each time; use uuidv5"),
    "rsadecrypt": _refused("secrets belong in variables or Vault, not in job files"),
    "fileset": _refused("job files cannot list directories; name the files"),
}
