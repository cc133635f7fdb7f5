from typing import Any

import pytest

from lepa.jobspec import Parsed, parse

JOB = 'job "j" {\n meta { value = jsonencode(var.x) }\n}\n'


def read(declaration: str, **given: Any) -> Parsed:
    return parse(declaration + "\n" + JOB, filename="j", **given)


def value(declaration: str, **given: Any) -> str:
    found = read(declaration, **given)
    assert found.job is not None, found.message
    text: str = found.job["Meta"]["value"]
    return text


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ('variable "x" {\n default = 5\n}', "5"),
        ("variables {\n x = [1]\n}", "[1]"),
        ('variable "x" {\n type = list(string)\n default = [1, "a"]\n}', '["1","a"]'),
        ('variable "x" {\n type = object({a = string, b = number})\n default = {a = 1, b = "2"}\n}', '{"a":"1","b":2}'),
        ('variable "x" {\n type = map(number)\n default = {}\n}', "{}"),
        ('variable "x" {\n type = any\n default = null\n}', "null"),
        ('variable "x" {\n type = tuple([string, bool])\n default = [1, "true"]\n}', '["1",true]'),
        ('variable "x" {\n type = "string"\n default = 1\n description = "d"\n}', '"1"'),
        ('variable "x" {\n type = set(string)\n default = ["b", "a", "b"]\n}', '["a","b"]'),
    ],
)
def test_a_default_is_of_the_declared_type(declaration: str, expected: str) -> None:
    assert value(declaration) == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "[1]", '"[1]"'),
        ("number", "5", "5"),
        ("bool", "true", "true"),
        ("list(string)", '["a", "b"]', '["a","b"]'),
        ("map(string)", "{a = 1}", '{"a":"1"}'),
        ("any", "plain text", '"plain text"'),
        ("any", '["a"]', '["a"]'),
        ("string", "a\nb", '"a\\nb"'),
    ],
)
def test_a_flag_is_a_text_or_an_expression_by_type(kind: str, text: str, expected: str) -> None:
    assert value(f'variable "x" {{\n type = {kind}\n}}', variables={"x": text}) == expected


def test_sources_win_in_their_order() -> None:
    declaration = 'variable "x" {\n default = "default"\n}'
    env = {"NOMAD_VAR_x": "nomad", "LEPA_VAR_x": "lepa"}
    files = [("a.hcl", 'x = "a"'), ("b.json", '{"x": "b"}')]
    assert value(declaration) == '"default"'
    assert value(declaration, env={"NOMAD_VAR_x": "nomad"}) == '"nomad"'
    assert value(declaration, env=env) == '"lepa"'
    assert value(declaration, env=env, var_files=files[:1]) == '"a"'
    assert value(declaration, env=env, var_files=files) == '"b"'
    assert value(declaration, env=env, var_files=files, variables={"x": "flag"}) == '"flag"'


def test_a_variable_without_a_value_is_named_with_the_place_of_its_declaration() -> None:
    found = read('variable "x" {\n type = string\n}')
    assert found.message.startswith('j:1,10-13: Unset variable "x"; A variable must be set or have a default value.')
    assert len(found.diagnostics) == 1


@pytest.mark.parametrize(
    ("declaration", "given", "message"),
    [
        ("", {}, 'An input variable named "x" has not been declared.'),
        ('variable "x" {}', {"variables": {"y": "1", "x": "1"}}, "-var y: Undefined -var variable; "),
        ('variable "x" {}', {"variables": {"x": "1"}, "var_files": [("f", "y = 1")]}, "f:1,1-2: Undefined variable; "),
        ('variable "x" {\n type = number\n}', {"variables": {"x": "a"}}, "-var x:1,1-2: Invalid value for variable"),
        ('variable "x" {\n type = list(string)\n}', {"variables": {"x": "[1"}}, "-var x:1,1-2: Unterminated list"),
        (
            'variable "x" {\n type = list(string)\n}',
            {"variables": {"x": "a"}},
            '"a" means nothing here. A text needs quotes.',
        ),
        ('variable "x" {\n type = number\n}', {"env": {"NOMAD_VAR_x": "a"}}, "NOMAD_VAR_x:1,1-2: Invalid value"),
        ('variable "x" {}', {"var_files": [("f", "x = ")]}, "f:1,5-5: Missing expression"),
        ('variable "x" {}', {"var_files": [("f", "x {}")]}, "f:1,1-2: Unexpected block"),
        ('variable "x" {}', {"var_files": [("f", '{"x": }')]}, "f:1,7-8: Invalid JSON"),
        ('variable "x" {}', {"var_files": [("f", '{"x": NaN}')]}, "f:1,1-2: Invalid JSON"),
        (
            'variable "x" {\n type = number\n}',
            {"var_files": [("f", '{\n "x": "a"}')]},
            "f:2,2-5: Invalid value for variable",
        ),
        ('variable "x" {\n default = foo\n}', {}, "j:2,12-15: Variables not allowed"),
        ('variable "x" {\n type = number\n default = "a"\n}', {}, "j:3,12-15: Invalid value for variable"),
        ('variable "x" {\n type = strin\n default = 1\n}', {}, "j:2,9-14: Invalid type specification"),
        ('variable "x" {\n type = list(1)\n default = []\n}', {}, "Invalid type specification"),
        ('variable "x" {\n type = foo(string)\n default = []\n}', {}, "foo(...) is not a type"),
        (
            'variable "x" {\n type = object({(a) = string})\n default = {}\n}',
            {},
            "The names in an object type are constant",
        ),
        ('variable "x" {\n default = 1\n foo = 2\n}', {}, 'An argument named "foo" is not expected in a variable.'),
        ('variable "x" {\n default = 1\n foo {}\n}', {}, 'Blocks of type "foo" are not expected in a variable.'),
        ("variables {\n x = 1\n y {}\n}", {}, "Only defaults are expected in variables."),
        ('variable "x" {\n default = 1\n}\nvariable "x" {\n default = 2\n}', {}, "j:4,10-13: Duplicate variable"),
        ("variable {}", {}, "Missing name for variable"),
    ],
)
def test_what_is_wrong_with_a_variable_is_told(declaration: str, given: dict[str, Any], message: str) -> None:
    found = read(declaration, **given)
    assert found.job is None
    assert message in found.message


def test_undeclared_names_are_let_pass_when_not_strict() -> None:
    declaration = 'variable "x" {}'
    given: dict[str, Any] = {"variables": {"x": "1", "y": "2"}, "var_files": [("f", "z = 1")], "strict": False}
    assert value(declaration, **given) == '"1"'


def test_undeclared_names_in_the_environment_are_ignored() -> None:
    assert value('variable "x" {}', env={"NOMAD_VAR_x": "1", "NOMAD_VAR_y": "2"}) == '"1"'


def test_a_validation_refuses_with_its_own_words() -> None:
    declaration = """variable "x" {
      type = number
      validation {
        condition     = var.x > 3
        error_message = "Need more than 3, not ${var.x}."
      }
    }"""
    assert value(declaration, variables={"x": "4"}) == "4"
    message = read(declaration, variables={"x": "3"}).message
    assert message == 'j:4,25-34: Invalid value for variable; Need more than 3, not 3. (variable "x")'


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ("condition = true", 'The argument "error_message" is required in validation'),
        ('condition = "x"\n error_message = "y"', "Invalid validation"),
        ('condition = nope()\n error_message = "y"', "Call to unknown function"),
    ],
)
def test_a_broken_validation_is_refused(validation: str, message: str) -> None:
    assert message in read(f'variable "x" {{\n default = 1\n validation {{\n {validation}\n }}\n}}').message


# Local values


def local(body: str) -> Parsed:
    return parse(f'locals {{\n{body}\n}}\njob "j" {{\n meta {{ value = jsonencode(local.x) }}\n}}\n', filename="j")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = 1 + 1", "2"),
        ("x = local.y\n y = local.z\n z = [1]", "[1]"),
        ('x = "${NOMAD_X}"', '"${NOMAD_X}"'),
        ("a = 1\n}\nlocals {\n x = local.a", "1"),
        ("x = try(local.y.z, 5)\n y = {}", "5"),
    ],
)
def test_local_values_may_refer_to_each_other_in_any_order(body: str, expected: str) -> None:
    found = local(body)
    assert found.job is not None, found.message
    assert found.job["Meta"]["value"] == expected


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        ("x = local.x", ["j:2,5-12: Circular reference"]),
        ("x = local.y\n y = local.x", ["j:2,5-12: Circular reference", "j:3,6-13: Circular reference"]),
        ("x = local.y\n y = 1 / 0", ["j:3,6-11: Invalid operation"]),
        ("x = var.missing", ["j:2,5-16: Undeclared variable"]),
        ("x = 1\n}\nlocals {\n x = 2", ["j:5,2-3: Duplicate local value"]),
        ("x = 1\n y {}", ["j:3,2-3: Unsupported block type"]),
        ("y = 1", ["j:5,28-35: Undeclared local value"]),
    ],
)
def test_what_is_wrong_with_local_values_is_told_once(body: str, messages: list[str]) -> None:
    found = [each.render() for each in local(body).diagnostics]
    assert [each.split(";")[0] for each in found] == messages


def test_local_values_that_double_each_other_are_bounded() -> None:
    lines = ["a0 = [1, 2]", *(f"a{i} = [local.a{i - 1}, local.a{i - 1}]" for i in range(1, 60)), "x = local.a59"]
    assert "Value too large" in local("\n".join(lines)).message
    lines = ['a0 = "xxxxxxxxxx"', *(f'a{i} = "${{local.a{i - 1}}}${{local.a{i - 1}}}"' for i in range(1, 60)), "x = 1"]
    assert "Text too long" in local("\n".join(lines)).message
