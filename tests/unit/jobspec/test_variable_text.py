"""Values of variables as one text that gives them again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.jobspec import parse, variable_text

JOB = 'job "j" {\n meta {\n  x = jsonencode(var.x)\n }\n}\n'


def declared(kind: str) -> str:
    return f'variable "x" {{\n type = {kind}\n}}\n{JOB}'


@pytest.mark.parametrize(
    ("kind", "flag", "text"),
    [
        ("string", "plain", 'x = "plain"\n'),
        ("string", '["a"]', 'x = "[\\"a\\"]"\n'),
        ("string", "a\nb\r\n\tc", 'x = "a\\nb\\r\\n\\tc"\n'),
        ("string", "${a} %{b} $${c} $d", 'x = "$${a} %%{b} $$${c} $d"\n'),
        ("string", "\b\f\\b\x01", 'x = "\\u0008\\u000c\\\\b\\u0001"\n'),
        ("number", "0.5", "x = 0.5\n"),
        ("bool", "true", "x = true\n"),
        ("list(string)", '["a",\n"b"]', 'x = ["a", "b"]\n'),
        ("set(number)", "[2, 1, 2]", "x = [1, 2]\n"),
        ("map(string)", '{a = 1, "b.c" = <<E\nx\nE\n}', 'x = {"a": "1", "b.c": "x\\n"}\n'),
        ("object({a = bool, b = list(number)})", "{a = true, b = [1]}", 'x = {"a": true, "b": [1]}\n'),
        ("any", "some words", 'x = "some words"\n'),
        ("any", "null", 'x = "null"\n'),
    ],
)
def test_a_flag_gives_the_same_value_from_a_file(kind: str, flag: str, text: str) -> None:
    """B094, B095."""
    source = declared(kind)
    assert variable_text(source, variables={"x": flag}) == text
    direct = parse(source, variables={"x": flag})
    assert direct.job is not None
    assert parse(source, var_files=[("kept", text)]).job == direct.job


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text: str) -> None:
    written = variable_text(declared("string"), variables={"x": text})
    assert written is not None
    assert written.count("\n") == 1
    found = parse(declared("string"), var_files=[("kept", written)])
    assert found.job is not None, found.message
    assert found.job == parse(declared("string"), variables={"x": text}).job


def test_sources_win_in_their_order_and_defaults_are_left_out() -> None:
    source = 'variables {\n a = 1\n b = 1\n c = 1\n d = 1\n}\n job "j" {}\n'
    given: dict[str, Any] = {
        "env": {"NOMAD_VAR_b": "2", "NOMAD_VAR_c": "2", "NOMAD_VAR_z": "2"},
        "var_files": [("one", "c = 3\nd = 3\n"), ("two", json.dumps({"c": 4}))],
        "variables": {"d": "5", "y": "5"},
    }
    assert variable_text(source, **given) == "b = 2\nc = 4\nd = 5\n"
    assert variable_text(source) == ""


@pytest.mark.parametrize("source", ["not {", 'variable "x" {\n type = number\n}', 'variable "x" {\n type = nothing\n}'])
def test_what_cannot_be_read_has_no_text(source: str) -> None:
    assert variable_text(source, variables={"x": "words"}) is None
