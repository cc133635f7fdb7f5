"""Job files, however mutilated, give diagnostics; formatting changes nothing but white space; values survive."""

import json
from typing import Any

import pygohcl
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobfiles import job_files

from lepa.jobspec import format_text, hcl, parse
from lepa.jobspec.diagnostics import Reporter, Source
from lepa.jobspec.expressions import Budget, Scope, evaluate
from lepa.jobspec.functions import function_table
from lepa.jobspec.tokens import COMMENT, NEWLINE, tokenise

FILES = [file for file in job_files() if len(file.text) < 8000]
TEXTS = [file.text for file in FILES]

FRAGMENTS = st.sampled_from(
    [
        *("{", "}", "[", "]", "(", ")", '"', "\n", "=", ",", "\\", "${", "%{", "~}", "$${", "%{ if x }", "%{ endif }"),
        *("<<EOF\n", "<<-EOF\n", "\nEOF\n", "/*", "*/", "#", "//", ".", "...", "?", ":", "::", "=>", "-", "!", "*"),
        *("for ", "if ", "in ", "null", "1", "1.5e3", "[0]", "[*]", ".*", "'", "`", ";", "\t", "\r\n", "é", "\x00"),
        *('dynamic "x" {\n', "locals {\n", "var.x", "local.x", 'file("x")', "range(9)", 'format("%s")', "&&"),
    ]
)


@st.composite
def mutilated(draw: st.DrawFn) -> str:
    """A real file with pieces cut out, put in or moved."""
    text: str = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        until = min(len(text), at + draw(st.integers(0, 60)))
        text = text[:at] + draw(st.one_of(FRAGMENTS, st.just(text[until : until + 20]))) + text[until:]
    return text


@settings(max_examples=300, deadline=None)
@given(mutilated())
def test_a_mutilated_file_gives_a_job_or_diagnostics_with_a_place(text: str) -> None:
    found = parse(text, filename="job.hcl", read_file=lambda name: name)
    assert (found.job is None) == bool(found.diagnostics)
    for each in found.diagnostics:
        assert each.line >= 1
        assert each.column >= 1
        assert each.render().startswith("job.hcl:")
        assert each.render_excerpt()


@settings(max_examples=300, deadline=None)
@given(mutilated())
def test_hashicorps_parser_agrees_on_a_mutilated_file(text: str) -> None:
    text = text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "")
    report = Reporter(Source("job.hcl", text))
    hcl.parse_body(report)
    try:
        pygohcl.loads(text)
        accepted = True
    except pygohcl.HCLParseError:
        accepted = False
    except pygohcl.HCLInternalError:
        accepted = True
    assert report.failed != accepted, [each.render() for each in report.found]


@settings(max_examples=300, deadline=None)
@given(mutilated())
def test_formatting_is_idempotent_and_changes_white_space_only(text: str) -> None:
    once = format_text(text)
    if once.diagnostics:
        assert once.text == text
        return
    assert not format_text(once.text).changed
    assert words(once.text) == words(text)


def words(text: str) -> list[str]:
    """What a text says: its tokens, comments without the white space at their end."""
    tokens = [token for token in tokenise(text.removeprefix("\ufeff")) if token.kind != NEWLINE]
    return [token.text.rstrip() if token.kind == COMMENT else token.text for token in tokens]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([file for file in FILES if file.syntax]))
def test_a_formatted_file_is_the_same_job(file: Any) -> None:
    formatted = format_text(file.text).text
    assert parse(formatted, read_file=file.reader).job == parse(file.text, read_file=file.reader).job


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_a_value_written_as_an_expression_is_read_back(value: Any) -> None:
    report = Reporter(Source("value", written(value)))
    expression = hcl.parse_expression(report)
    assert expression is not None, [each.render() for each in report.found]
    assert evaluate(expression, Scope(report.source.text, {}, {}, Budget(), closed=True)) == value


def written(value: Any) -> str:
    """A value in HCL."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)} = {written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        escaped = "".join(character if character.isalnum() else f"\\U{ord(character):08x}" for character in value)
        return f'"{escaped}"'
    return json.dumps(value)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(function_table())), st.lists(VALUES, max_size=4))
def test_a_function_gives_a_value_or_a_refusal_for_any_arguments(name: str, arguments: list[Any]) -> None:
    call = f"{name}({', '.join(map(written, arguments))})"
    found = parse(f'job "x" {{\n meta {{\n  a = jsonencode({call})\n }}\n}}\n', read_file=lambda path: path)
    assert (found.job is None) == bool(found.diagnostics)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.sampled_from(["[", "(", "{a=", "!", "-", '"${', "a ? b : ", "f(", "a[", "x { \n"]))
def test_nesting_of_any_depth_is_refused_or_read(depth: int, opening: str) -> None:
    for text in (f"a = {opening * depth}", opening * depth, f"a = {opening * depth}1"):
        report = Reporter(Source("job.hcl", text))
        hcl.parse_body(report)
        parse(text)
