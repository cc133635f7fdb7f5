"""Real job files give the outcome that is expected of them, and HashiCorp's own parser agrees on every one."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pygohcl
import pytest
from tests.jobfiles import JobFile, job_files

from lepa.jobspec import Diagnostic, Parsed, format_text, hcl, parse
from lepa.jobspec.diagnostics import Reporter, Source
from lepa.jobspec.syntax import Body, Expression, Literal, ObjectOf, TupleOf, Unary

FILES = job_files()
JOBS = [file for file in FILES if file.syntax and file.expected != "-"]
REFUSED_FOR_A_REASON = {
    "public/hashicorp__levant/template__test-fixtures__multi_templated.nomad": "Extraneous label for group",
    "public/kurron__nomad-scheduling-example/standalone-service.hcl": 'An argument named "delay" is not expected here.',
    "public/kurron__nomad-scheduling-example/grouped-service.hcl": 'An argument named "delay" is not expected here.',
}
"""Files whose syntax is fine, but which hold what Nomad does not know either."""

DECLARED_AFTER_ALL = "variables {"
"""The index says "undeclared" of some files that declare their variables in one block, or in another file."""

GUESSES = ("x", '["x"]', "1", "true")


def by_name(file: JobFile) -> str:
    return file.name


def parsed_with_guesses(file: JobFile) -> Parsed:
    """Parse, giving each variable without a value one of its type."""
    variables: dict[str, str] = {}
    for guess in GUESSES:
        found = parse(file.text, filename=file.path.name, variables=variables, read_file=file.reader)
        needing = {name for each in found.diagnostics if (name := variable_of(each))}
        if not needing:
            return found
        variables.update(dict.fromkeys(needing, guess))
    return parse(file.text, filename=file.path.name, variables=variables, read_file=file.reader)


def variable_of(diagnostic: Diagnostic) -> str:
    """The variable whose value is missing or does not fit."""
    if diagnostic.summary.startswith("Unset variable"):
        return diagnostic.summary.split('"')[1]
    return diagnostic.file.removeprefix("-var ") if diagnostic.file.startswith("-var ") else ""


@pytest.mark.parametrize("file", [each for each in JOBS if each.expected.startswith("ok")], ids=by_name)
def test_real_job_file_parses_or_is_refused_for_its_reason(file: JobFile) -> None:
    found = parsed_with_guesses(file)
    if file.name in REFUSED_FOR_A_REASON:
        assert REFUSED_FOR_A_REASON[file.name] in found.message
    elif file.expected == "ok-or-needs-files" and found.job is None:
        assert all("cannot read" in each.detail for each in found.diagnostics)
    else:
        assert found.message == ""
        assert found.job is not None
        assert found.job["ID"]


@pytest.mark.parametrize("file", [each for each in FILES if each.expected == "ok-or-needs-vars"], ids=by_name)
def test_a_variable_without_a_value_is_named(file: JobFile) -> None:
    found = parse(file.text, filename=file.path.name)
    if found.job is None:
        assert all(each.summary.startswith('Unset variable "') and each.line for each in found.diagnostics)


@pytest.mark.parametrize("file", [each for each in FILES if each.expected == "error-undeclared-variable"], ids=by_name)
def test_a_variable_that_is_declared_elsewhere_is_named(file: JobFile) -> None:
    found = parse(file.text, filename=file.path.name)
    if found.job is None:
        assert any(each.summary == "Undeclared variable" and each.line for each in found.diagnostics)
    else:
        assert DECLARED_AFTER_ALL in file.text or 'variable "' in file.text


REFUSED = [each for each in FILES if each.expected.startswith(("error", "hcl1")) and "variable" not in each.expected]


@pytest.mark.parametrize("file", REFUSED, ids=by_name)
def test_a_file_that_must_be_refused_is_refused_with_a_place(file: JobFile) -> None:
    found = parse(file.text, filename=file.path.name, read_file=file.reader)
    assert found.job is None
    assert all(each.line and each.column and each.file == file.path.name for each in found.diagnostics)


@pytest.mark.parametrize("file", [each for each in FILES if each.expected == "-"], ids=by_name)
def test_a_file_of_another_kind_ends_in_messages(file: JobFile) -> None:
    found = parse(file.text, filename=file.path.name)
    assert (found.job is None) == bool(found.diagnostics)


# Beside HashiCorp's parser


@pytest.mark.parametrize("file", FILES, ids=by_name)
def test_hashicorps_parser_gives_the_same_verdict_on_the_syntax(file: JobFile) -> None:
    report = Reporter(Source(file.path.name, file.text))
    hcl.parse_body(report)
    assert report.failed == (not accepted_by_hashicorp(file.text)), [each.render() for each in report.found]
    assert report.failed != file.syntax


def accepted_by_hashicorp(text: str) -> bool:
    try:
        pygohcl.loads(text)
    except pygohcl.HCLParseError:
        return False
    except pygohcl.HCLInternalError:
        return True
    return True


@pytest.mark.parametrize("file", [each for each in FILES if each.syntax], ids=by_name)
def test_hashicorps_parser_reads_the_same_values(file: JobFile) -> None:
    try:
        theirs = Counter(pairs_of(pygohcl.loads(file.text)))
    except pygohcl.HCLInternalError:
        return
    ours = Counter(literals(hcl.parse_body(Reporter(Source(file.path.name, file.text)))))
    assert ours - theirs == Counter()


def pairs_of(value: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of everything that has a name, at any depth."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key, json.dumps(each, sort_keys=True)
            yield from pairs_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from pairs_of(each)


def literals(body: Body) -> Iterator[tuple[str, str]]:
    """(name, value) of every argument that is written out."""
    for attribute in body.attributes.values():
        if is_literal(attribute.expression):
            yield attribute.name, json.dumps(value_of(attribute.expression), sort_keys=True)
    for block in body.blocks:
        yield from literals(block.body)


def is_literal(expression: Expression) -> bool:
    if isinstance(expression, TupleOf):
        return all(map(is_literal, expression.items))
    if isinstance(expression, ObjectOf):
        return all(is_literal(key) and is_literal(value) for key, value in expression.items)
    if isinstance(expression, Unary):
        return expression.operator == "-" and is_literal(expression.operand)
    return isinstance(expression, Literal)


def value_of(expression: Expression) -> Any:
    if isinstance(expression, TupleOf):
        return [value_of(item) for item in expression.items]
    if isinstance(expression, ObjectOf):
        return {str(value_of(key)): value_of(value) for key, value in expression.items}
    if isinstance(expression, Unary):
        return -value_of(expression.operand)
    assert isinstance(expression, Literal)
    return expression.value


# Formatting

NOMADS_OWN = [each for each in FILES if each.syntax and each.name.startswith("nomad-v1.6.0/")]


@pytest.mark.parametrize("file", NOMADS_OWN, ids=by_name)
def test_files_that_nomads_formatter_wrote_stay_as_they_are(file: JobFile) -> None:
    assert format_text(file.text).text == file.text.removesuffix("\n") + "\n"
