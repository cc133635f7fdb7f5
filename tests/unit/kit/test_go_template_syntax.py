"""How Go templates are written; what they mean is in test_go_template.py."""

import pytest

from lepa.kit.go_template_syntax import (
    Choice,
    Constant,
    Inclusion,
    Named,
    Output,
    Parser,
    Pipe,
    Reference,
    TemplateError,
    Text,
    tokens,
)


def test_a_text_falls_into_pieces_without_the_space_that_is_taken_away() -> None:
    found = [(each.kind, each.text, each.line) for each in tokens('a {{- .b | len "}}" -}}\n c{{/* gone */}}')]
    assert found == [
        ("text", "a", 1),
        ("open", "{{", 1),
        ("field", ".b", 1),
        ("mark", "|", 1),
        ("word", "len", 1),
        ("string", '"}}"', 1),
        ("close", "}}", 1),
        ("text", "c", 1),
    ]


def test_pieces_become_nodes() -> None:
    parser = Parser('{{define "t"}}x{{end}}{{$n := .a.b}}{{if len $n}}{{template "t" 1}}{{end}}', {"len"})
    assert parser.parse() == (
        Output(Pipe(((Reference(".", ("a", "b")),),), ("$n",), True, 1)),
        Choice(
            "if",
            Pipe(((Named("len"), Reference("$n")),), line=1),
            (Inclusion("t", Pipe(((Constant(1),),), line=1), 1),),
        ),
    )
    assert parser.defined == {"t": (Text("x"),)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{", "line 1: the template ends in the middle of an action|not closed"),
        ("a\n{{.ID", "line 2: action is not closed"),
        ("{{if .ID}}", "{{if}} has no {{end}}"),
        ("{{end}}", "line 1: unexpected {{end}}"),
        ("{{else}}", "unexpected {{else}}"),
        ("{{nope .ID}}", 'line 1: function "nope" not defined'),
        ("{{$x}}", "undefined variable $x"),
        ("{{$x = 1}}", "undefined variable $x"),
        ("{{if .ID}}{{$x := 1}}{{end}}{{$x}}", "undefined variable $x"),
        ("{{.ID | 1}}", "what stands behind | has to be a function"),
        ("{{}}", "missing value for command"),
        ("{{.ID | }}", "missing value for command"),
        ("{{(.ID}}", "( is not closed"),
        ("{{.ID)}}", "unexpected )"),
        ("{{break}}", "break outside of range"),
        ("{{template .ID}}", "a template's name is a text in quotes"),
        ("{{#}}", "unexpected '#' in action"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Parser(text, {"not", "len"}).parse()
    assert any(part in str(caught.value) for part in message.split("|"))


@pytest.mark.parametrize("text", ["{{if 1}}" * 100, "{{" + "(" * 100 + "}}"])
def test_nesting_has_a_bound(text: str) -> None:
    with pytest.raises(TemplateError, match="nested deeper"):
        Parser(text, set()).parse()
