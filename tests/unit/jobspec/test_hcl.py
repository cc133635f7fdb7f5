import pytest

from lepa.jobspec.diagnostics import DIAGNOSTICS_MAX, Reporter, Source
from lepa.jobspec.hcl import parse_body, parse_expression, parse_template
from lepa.jobspec.syntax import Body, Literal
from lepa.jobspec.tokens import NESTING_MAX


def parsed(text: str) -> tuple[Body, list[str]]:
    report = Reporter(Source("t", text))
    return parse_body(report), [each.render() for each in report.found]


def test_a_body_holds_arguments_by_name_and_blocks_in_order() -> None:
    body, problems = parsed('a = 1\nport "http" inner {\n  b = "x"\n}\nport "db" {}\n')
    assert problems == []
    assert isinstance(body.attributes["a"].expression, Literal)
    assert [(block.type, [label.text for label in block.labels]) for block in body.blocks] == [
        ("port", ["http", "inner"]),
        ("port", ["db"]),
    ]
    assert list(body.blocks[0].body.attributes) == ["b"]


def test_everything_knows_its_place() -> None:
    body, _ = parsed('a = 1\nb "c" {\n}\n')
    assert (body.attributes["a"].start, body.attributes["a"].end) == (0, 1)
    block = body.blocks[0]
    assert (block.start, block.end, block.labels[0].start, block.labels[0].end) == (6, 7, 8, 11)


@pytest.mark.parametrize(
    "text",
    ["a {\n}\n", "a {}\n", "a { b = 1 }\n", "a { b = [\n1] }\n", "a { # c\n}\n", "\ufeffa = 1\n", "a = 1\r\nb = 2\r\n"],
)
def test_forms_that_are_accepted(text: str) -> None:
    assert parsed(text)[1] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n", "t:1,1-2: Argument or block definition required"),
        ("1 = 2\n", "t:1,1-2: Argument or block definition required"),
        ("a.b = 1\n", "t:1,2-3: Argument or block definition required"),
        ('"a" = 1\n', "t:1,1-4: Invalid argument name; Argument names must not be quoted."),
        ("a = 1 b = 2\n", "t:1,7-8: Missing newline after argument"),
        ("a = 1,\n", "t:1,6-7: Unexpected comma after argument"),
        ("a = 1;\n", 't:1,6-7: Invalid character; The ";" character is not valid'),
        ("a = 'x'\n", "t:1,5-6: Invalid character; Single quotes are not valid"),
        ("a = x & y\n", 'Did you mean the boolean operator "&&"?'),
        ('a = "x\n', "t:1,5-7: Unclosed string"),
        ("a = <<EOF\nx\n", "t:1,5-10: Unterminated heredoc; No line holds just the closing marker of <<EOF."),
        ("a = 1 /* x\n", "t:1,7-9: Unclosed comment"),
        ("a {\n", "t:1,3-4: Unclosed configuration block"),
        ("a {}\n}\n", "t:2,1-2: Argument or block definition required; This closing brace closes nothing."),
        ("a {} b {}\n", "t:1,6-7: Missing newline after block definition"),
        ("a b\n{\n}\n", "t:1,4-2,1: Invalid block definition"),
        ('a "x" = 1\n', "t:1,7-8: Invalid block definition; The equals sign"),
        ('a "${b}" {}\n', "t:1,3-9: Invalid string literal; Template sequences are not allowed"),
        ("a { b {} }\n", "t:1,5-6: Argument definition required"),
        ("a { b = 1\n}\n", "t:1,10-2,1: Invalid single-argument block definition"),
        ("a = 1\na = 2\n", 't:2,1-2: Attribute redefined; The argument "a" was already set at t:1,1-2.'),
    ],
)
def test_forms_that_are_refused(text: str, message: str) -> None:
    problems = parsed(text)[1]
    assert any(message in problem for problem in problems), problems


def test_one_mistake_does_not_hide_the_next() -> None:
    text = 'job "x" {\n  a = \n  b = [1 2]\n  group "g" {\n    c = "open\n    d = 1\n  }\n  e = {x = }\n}\nf g\n'
    body, problems = parsed(text)
    assert [problem.split(":")[1].split(",")[0] for problem in problems] == ["2", "3", "5", "8", "10"]
    assert list(body.blocks[0].body.blocks[0].body.attributes) == ["d"]


def test_brackets_that_a_broken_argument_opened_are_skipped_whole() -> None:
    body, problems = parsed("a = [\n  1 2\n  x = {\n  }\n]\nb = 1\n")
    assert len(problems) == 1
    assert list(body.attributes) == ["b"]


def test_reading_ends_when_there_are_too_many_mistakes() -> None:
    body, problems = parsed("@\n" * 2 * DIAGNOSTICS_MAX + "a = 1\n")
    assert len(problems) == DIAGNOSTICS_MAX
    assert body.attributes == {}


def test_blocks_inside_each_other_are_bounded() -> None:
    depth = NESTING_MAX + 5
    assert "Nested too deeply" in parsed("a {\n" * depth + "}\n" * depth)[1][0]


def test_a_whole_text_can_be_an_expression_or_a_template() -> None:
    report = Reporter(Source("t", "[1, 2]"))
    assert parse_expression(report) is not None
    assert parse_expression(Reporter(Source("t", "1 2"))) is None
    assert parse_template(report.beside(Source("t", "a ${b}\n"))) is not None
    assert parse_template(report.beside(Source("t", "a ${b\n"))) is None
    assert [each.summary for each in report.found] == ["Unclosed template sequence"]
