"""Works out calls of functions for the tests of each subject."""

from typing import Any

from lepa.jobspec import hcl
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import Budget, Scope, evaluate
from lepa.jobspec.functions import function_table
from lepa.jobspec.functions.files import ReadFile


def value(text: str, read_file: ReadFile | None = None, home: str = "") -> Any:
    """What an expression comes to."""
    report = Reporter(Source("t", text))
    expression = hcl.parse_expression(report)
    assert expression is not None, [each.render() for each in report.found]
    names = {"var": {"a": 1, "list": ["a", "b"]}}
    return evaluate(expression, Scope(text, names, function_table(read_file=read_file, home=home), Budget()))


def refusal(text: str, read_file: ReadFile | None = None) -> str:
    """Why an expression has no value."""
    try:
        found = value(text, read_file)
    except Refusal as problem:
        return f"{problem.summary}; {problem.detail}"
    raise AssertionError(f"{text} is {found!r}")
