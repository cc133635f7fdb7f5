"""Functions that need nothing from outside, as templates call them."""

from typing import Any

import pytest
from tests.builders import make_service

from lepa.client.hooks import template_functions
from lepa.client.hooks.template_functions import TEXT
from lepa.kit import go_template
from lepa.kit.go_template import TemplateError


def text(template: str, data: Any = None) -> str:
    return go_template.parse(template, TEXT).render(data)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('{{ "a,b" | split "," | join "-" }}', "a-b"),
        ('{{ "Ab" | toUpper }}{{ "Ab" | toLower }}{{ "ab cd" | toTitle }}', "ABabAb Cd"),
        ('{{ " x " | trimSpace }}{{ "/x/" | trim "/" }}{{ "ax" | trimPrefix "a" }}{{ "xa" | trimSuffix "a" }}', "xxxx"),
        ('{{ "a.b" | replaceAll "." "-" }}', "a-b"),
        (
            "{{ 3 | add 4 }} {{ 3 | subtract 4 }} {{ 3 | multiply 4 }} {{ 9 | divide 4 }} {{ 9 | modulo 4 }}",
            "7 -1 12 2 1",
        ),
        ("{{ minimum 2 3 }}{{ maximum 2 3 }}", "23"),
        ("{{ range loop 3 }}{{ . }}{{ end }}{{ range loop 5 7 }}{{ . }}{{ end }}", "01256"),
        ('{{ "x" | base64Encode }}{{ "eA==" | base64Decode }}', "eA==x"),
        ('{{ "a<b" | toJSON }} {{ "a<b" | toUnescapedJSON }}', '"a\\u003cb" "a<b"'),
        ('{{ if "web-1" | regexMatch "^web" }}yes{{ end }}', "yes"),
        ('{{ "x" | md5sum }}', "9dd4e461268c8034f5c8564e155c67a6"),
        ('{{ sha256Hex "x" | printf "%.8s" }}', "2d711642"),
        ('{{ "a\\nb" | indent 2 }}', "  a\n  b"),
        ('{{ parseBool "true" }} {{ parseInt "7" | add 1 }} {{ parseFloat "1.5" }}', "true 8 1.5"),
        ('{{ "" | sprig_default "d" }}{{ "x" | sprig_quote }}', 'd"x"'),
    ],
)
def test_functions(template: str, expected: str) -> None:
    assert text(template) == expected


def test_lists() -> None:
    data = {"tags": ["a", "b"]}
    assert text('{{ if .tags | contains "a" }}1{{ end }}{{ if in .tags "c" }}2{{ end }}', data) == "1"
    assert text("{{ if containsAll .tags .tags }}1{{ end }}{{ if containsAny .tags .tags }}2{{ end }}", data) == "12"
    assert text("{{ if containsNone .tags .tags }}1{{ end }}{{ if containsNotAll .tags .tags }}2{{ end }}", data) == ""
    instances = [template_functions.instance(make_service("1", tags=("a", "b")))]
    assert text("{{ range $tag, $all := byTag . }}{{ $tag }}{{ len $all }}{{ end }}", instances) == "a1b1"
    assert text("{{ toJSONPretty . }}", {"a": 1}) == '{\n  "a": 1\n}'


@pytest.mark.parametrize(
    "template",
    [
        '{{ "x" | base64Decode }}',
        '{{ "maybe" | parseBool }}',
        "{{ 1 | divide 0 }}",
        "{{ loop 0 1000000 }}",
        '{{ "x" | regexMatch "(" }}',
        '{{ "x" | indent 5000 }}',
        '{{ "x" | parseInt }}',
    ],
)
def test_what_a_function_cannot_do_is_an_error_with_a_line(template: str) -> None:
    with pytest.raises(TemplateError, match="line 1"):
        text(template)


def test_json() -> None:
    assert template_functions.parse_json("") == {}
    assert template_functions.parse_json('{"a":[1]}') == {"a": [1]}
    strict = template_functions.strict({"a": [{"b": 1}]})
    assert strict["a"][0].get("b") == 1
    with pytest.raises(TemplateError, match="no entry"):
        strict["a"][0].get("c")


def test_whole_numbers_divide_towards_zero() -> None:
    assert template_functions.divide(4, -9) == -2
    assert template_functions.modulo(4, -9) == -1
    assert template_functions.divide(2.0, 1) == 0.5


def test_go_layouts() -> None:
    now = 1_770_000_000_500_000_000
    assert template_functions.timestamp(now, "2006-01-02 15:04:05.000") == "2026-02-02 02:40:00.500"
    assert template_functions.timestamp(now, "Mon Jan 02 2006 -0700") == "Mon Feb 02 2026 +0000"


def test_a_choice_stays_with_its_instances() -> None:
    found = [make_service(str(n)) for n in range(10)]
    chosen = template_functions.choose(found, 3, "key")
    assert list(template_functions.choose([each for each in found if each in chosen], 3, "key")) == list(chosen)
    assert list(template_functions.choose(list(reversed(found)), 3, "key")) == list(chosen)
