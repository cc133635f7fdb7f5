"""Go's template language; expectations are what Go's text/template prints."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.kit import go_template
from lepa.kit.go_template import TemplateError, parse

JOB = {
    "ID": "web",
    "Priority": 50,
    "Stop": False,
    "Meta": {"b": "2", "a": "1"},
    "TaskGroups": [{"Name": "one", "Count": 3}, {"Name": "two", "Count": 0}],
    "Periodic": None,
    "Rate": 0.5,
}


def render(text: str, data: Any = JOB) -> str:
    return parse(text).render(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{.ID}}", "web"),
        ("{{ .ID }}!", "web!"),
        ("{{$.ID}}", "web"),
        ("{{.Missing}}", "<no value>"),
        ("{{.Missing.Deeper}}", "<no value>"),
        ("{{.Meta.a}}", "1"),
        ("{{.Priority}} {{.Stop}} {{.Rate}}", "50 false 0.5"),
        ("{{.Meta}}", "map[a:1 b:2]"),
        ("{{(index .TaskGroups 1).Name}}", "two"),
        ('{{index .Meta "a"}}{{index .Meta "z"}}', "1<no value>"),
        ("{{index .TaskGroups 0 }}", "map[Count:3 Name:one]"),
        ("{{len .TaskGroups}} {{len .ID}} {{.ID | len}}", "2 3 3"),
        ('{{printf "%s:%d" .ID .Priority}}', "web:50"),
        ('{{.Priority | printf "%05d|%s" 7}}', "00007|%!s(int=50)"),
        ('{{print "a" 1 2 "b"}}', "a1 2b"),
        ("{{println 1 2}}", "1 2\n"),
        ('{{"quoted\\n\\u00e9"}} {{`raw\\n`}}', "quoted\né raw\\n"),
        ("{{'a'}} {{0x1F}} {{-3}} {{1.5}} {{1_000}}", "97 31 -3 1.5 1000"),
        ('{{"}}"}}', "}}"),
        ("{{true}} {{nil | not}}", "true true"),
        ("{{slice .ID 1 2}}{{slice .ID 1}}", "eeb"),
        ("{{html \"<a href='x'>\"}}", "&lt;a href=&#39;x&#39;&gt;"),
        ('{{urlquery "a b&c"}} {{js "it\'s"}}', "a+b%26c it\\'s"),
    ],
)
def test_an_action_writes_a_value(text: str, expected: str) -> None:
    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{if .ID}}yes{{end}}", "yes"),
        ("{{if .Stop}}yes{{else}}no{{end}}", "no"),
        ("{{if .Stop}}a{{else if .Periodic}}b{{else if .ID}}c{{else}}d{{end}}!", "c!"),
        ("{{if .Stop}}a{{else if .Periodic}}b{{else}}d{{end}}!", "d!"),
        ("{{if and .ID (not .Stop)}}yes{{end}}", "yes"),
        ("{{if or .Stop .Periodic}}yes{{else}}no{{end}}", "no"),
        ('{{if eq .ID "api" "web"}}yes{{end}}{{if ne .Priority 50}}no{{end}}', "yes"),
        ("{{if lt .Priority 60}}lt{{end}}{{if ge .Priority 50}}ge{{end}}{{if gt 1.5 1}}gt{{end}}", "ltgegt"),
        ("{{or .Periodic .ID}} {{and .ID 0}}", "web 0"),
        ("{{with .Meta}}{{.a}}{{else}}none{{end}}", "1"),
        ("{{with .Periodic}}{{.a}}{{else}}none{{end}}", "none"),
        ("{{with $x := .ID}}{{$x}}{{end}}", "web"),
        ("{{with .Periodic}}a{{else with .Meta}}{{.b}}{{end}}", "2"),
    ],
)
def test_a_condition_chooses(text: str, expected: str) -> None:
    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{range .TaskGroups}}{{.Name}} {{end}}", "one two "),
        ("{{range $i, $g := .TaskGroups}}{{$i}}={{$g.Name}}{{$.ID}};{{end}}", "0=oneweb;1=twoweb;"),
        ("{{range $k, $v := .Meta}}{{$k}}{{$v}}{{end}}", "a1b2"),
        ("{{range $g := .TaskGroups}}{{$g.Count}}{{.Name}}{{end}}", "3one0two"),
        ("{{range .Periodic}}x{{else}}none{{end}}", "none"),
        ("{{range 3}}{{.}}{{end}}", "012"),
        ("{{range .TaskGroups}}{{if .Count}}{{continue}}{{end}}{{.Name}}{{end}}", "two"),
        ("{{range .TaskGroups}}{{.Name}}{{break}}{{end}}", "one"),
        ("{{$n := 0}}{{range .TaskGroups}}{{$n = .Count}}{{end}}{{$n}}", "0"),
        ("{{$n := 1}}{{range .TaskGroups}}{{$n := .Count}}{{end}}{{$n}}", "1"),
    ],
)
def test_a_loop_visits_items_in_order(text: str, expected: str) -> None:
    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a \n{{- .ID -}}\n b", "awebb"),
        ("a {{- /* gone */ -}} b", "ab"),
        ("a {{/* gone }} */}} b", "a  b"),
        ("{{ -1 }}", "-1"),
        ("a {{-1}}", "a -1"),
        ("{{range .TaskGroups -}}\n  {{.Name}}\n{{end -}}\n", "one\ntwo\n"),
    ],
)
def test_white_space_is_taken_away_where_told(text: str, expected: str) -> None:
    assert render(text) == expected


def test_named_templates_are_included() -> None:
    text = '{{define "g"}}[{{.Name}}{{$.Count}}]{{end}}{{range .TaskGroups}}{{template "g" .}}{{end}}'
    assert render(text) == "[one3][two0]"
    assert render('{{block "b" .Meta}}{{.a}}{{end}}') == "1"
    assert render('{{define "x"}}{{.}}{{end}}{{template "x"}}') == "<no value>"


def test_functions_can_be_added() -> None:
    assert (
        parse('{{upper .ID}}{{key "a" | upper}}', {"upper": str.upper, "key": lambda name: f"<{name}>"}).render(JOB)
        == "WEB<A>"
    )
    assert parse("{{.f 2}}").render({"f": lambda n: n + 1}) == "3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{.ID.Deeper}}", "can't evaluate field Deeper in a str"),
        ("{{.ID 1}}", "cannot give argument to non-function"),
        ('{{template "none"}}', 'template "none" not defined'),
        ("{{range .ID}}{{end}}", "range can't iterate over web"),
        ("{{index .TaskGroups 9}}", "index: index out of range: 9"),
        ("{{lt .ID 1}}", "lt: incompatible types for comparison"),
        ("{{len 1}}", "len: len of 1"),
        ("{{not}}", "not cannot take these arguments"),
    ],
)
def test_what_cannot_be_done_with_the_data_is_an_error_that_names_the_line(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("line 1: ")


def test_endless_templates_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TemplateError, match="within one another"):
        render('{{define "x"}}{{template "x"}}{{end}}{{template "x"}}')
    monkeypatch.setattr(go_template, "STEPS_MAX", 100)
    with pytest.raises(TemplateError, match="more than 100 steps"):
        render("{{range 1000000000}}{{end}}")
    monkeypatch.setattr(go_template, "OUTPUT_MAX", 10)
    with pytest.raises(TemplateError, match="writes more than 10"):
        render("{{range 30}}x{{end}}")


@given(st.text(alphabet="{}-.$ \n\"`|()=,:aif_range end9else/*'\\", max_size=60))
def test_any_text_is_a_template_or_a_template_error(text: str) -> None:
    try:
        parse(text).render(JOB)
    except TemplateError:
        return
