import pytest

from lepa.jobspec import hcl
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import Budget, Scope, evaluate
from lepa.jobspec.functions import function_table
from lepa.jobspec.templates import Directive, nest


def value(text: str) -> object:
    report = Reporter(Source("test", text))
    body = hcl.parse_body(report)
    assert not report.found, [each.render() for each in report.found]
    names = {"x": "X", "yes": True, "no": False, "items": ["a", "b"], "map": {"k": "v"}}
    return evaluate(body.attributes["a"].expression, Scope(text, names, function_table(), Budget()))


def refused(text: str) -> str:
    report = Reporter(Source("test", text))
    hcl.parse_body(report)
    return report.found[0].render()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"a\nb\tc\r\"\\"', 'a\nb\tc\r"\\'),
        (r'"\u00e9\U0001F600"', "é😀"),
        ('"$${x} %%{y} $x 50% $$"', "${x} %{y} $x 50% $$"),
        ('"$$${x}"', "$${x}"),
        ('"a ${x} b ${x}"', "a X b X"),
        ('"${x}"', "X"),
        ('"${"${x}"}${x}"', "XX"),
        ('"a ${~ x ~} b"', "aXb"),
        ('"%{ if yes }1%{ else }2%{ endif }"', "1"),
        ('"%{ if no }1%{ else }2%{ endif }"', "2"),
        ('"%{ if no }1%{ endif }"', ""),
        ('"%{ for i in items }<${i}>%{ endfor }"', "<a><b>"),
        ('"%{ for k, v in map ~}  ${k}=${v}  %{~ endfor }"', "k=v"),
        ('"%{ for i in items }%{ if i == "b" }${i}%{ endif }%{ endfor }"', "b"),
    ],
)
def test_quoted_template(text: str, expected: str) -> None:
    assert value(f"a = {text}\n") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<<E\n  a\n  b\nE", "  a\n  b\n"),
        ("<<E\nE", ""),
        ("<<-E\n    a\n      b\n\n    c\n    E", "a\n  b\n\nc\n"),
        ("<<-E\n    a\n  \n      \n    E", "a\n  \n      \n"),
        ("<<-E\n   ${x}\n    ${x} y\n    E", "X\n X y\n"),
        ("<<-E\n${x}\n    y\n    E", "X\n    y\n"),
        ("<<-E\n\t\ta\n\tb\n  E", "\ta\nb\n"),
        ('<<E\n\\n "q" $${z} %%{z}\nE', '\\n "q" ${z} %{z}\n'),
        ("<<E\n%{ if yes ~}\nshown\n%{ endif ~}\nE", "shown\n"),
        ("<<E\n%{ for i in items ~}\n- ${i}\n%{ endfor ~}\nE", "- a\n- b\n"),
        ("<<-E\n    ${~ x ~}\n      y\n    E", "X      y\n"),
    ],
)
def test_heredoc_template(text: str, expected: str) -> None:
    assert value(f"a = {text}\n") == expected


def test_line_ends_of_a_heredoc_are_kept() -> None:
    assert value("a = <<-E\r\n  x\r\n   y\r\n  E\r\n") == "x\r\n y\r\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a = "\\q"\n', 'test:1,6-8: Invalid escape sequence; The symbol "q"'),
        ('a = "\\u12"\n', "must be followed by four hexadecimal digits"),
        ('a = "\\ud800"\n', "Invalid escape sequence"),
        ('a = "${}"\n', "Missing expression"),
        (
            'a = "${x y}"\n',
            'Extra characters after expression; Expected a closing brace to end the sequence, but found "y"',
        ),
        ('a = "%{ http_code }"\n', '"http_code" is not a valid template control keyword. Write %%{ for a literal %{.'),
        ("a = <<E\nx\n%{foo}\nE\n", "test:3,3-6: Invalid template control keyword"),
        ("a = <<E\nx ${\nE\n", "test:2,3-5: Unclosed template sequence; There is no closing brace for this ${"),
        (
            'a = "%{ if x }"\n',
            "Unclosed if directive; This %{ if } needs %{ else } or %{ endif }, but the end of the text",
        ),
        ('a = "%{ for i in x }%{ endif }"\n', "needs %{ endfor }, but %{ endif } was found"),
        ('a = "%{ endfor }"\n', "Unexpected endfor directive"),
        ('a = "%{ if x }%{ else }%{ else }%{ endif }"\n', "needs %{ endif }, but %{ else } was found"),
    ],
)
def test_a_broken_template_is_refused_where_it_is_broken(text: str, message: str) -> None:
    assert message in refused(text)


def test_a_directive_without_its_end_is_refused() -> None:
    with pytest.raises(Refusal, match="Unexpected endif directive"):
        nest(["a", Directive("endif", 3, 9)])
