"""lepa.jobspec.grammar and the shapes of lepa.jobspec.syntax."""

import pytest

from lepa.jobspec.diagnostics import Reporter, Source
from lepa.jobspec.grammar import OPERATORS_MAX
from lepa.jobspec.hcl import parse_expression
from lepa.jobspec.syntax import (
    Access,
    Binary,
    Call,
    Conditional,
    Expression,
    For,
    GetAttribute,
    GetIndex,
    Literal,
    ObjectOf,
    Splat,
    Traversal,
    TupleOf,
    Unary,
)
from lepa.jobspec.tokens import NESTING_MAX


def expression(text: str) -> Expression:
    report = Reporter(Source("t", text))
    found = parse_expression(report)
    assert found is not None, [each.render() for each in report.found]
    return found


def refused(text: str) -> str:
    report = Reporter(Source("t", text))
    assert parse_expression(report) is None
    return report.found[0].render()


def shown(node: Expression) -> str:
    """An expression with all its brackets."""
    if isinstance(node, Literal):
        return str(node.value)
    if isinstance(node, Traversal):
        return ".".join([node.root, *map(str, node.steps)])
    if isinstance(node, Unary):
        return f"({node.operator}{shown(node.operand)})"
    if isinstance(node, Binary):
        return f"({shown(node.left)} {node.operator} {shown(node.right)})"
    if isinstance(node, Conditional):
        return f"({shown(node.condition)} ? {shown(node.when_true)} : {shown(node.when_false)})"
    if isinstance(node, TupleOf):
        return f"[{', '.join(map(shown, node.items))}]"
    if isinstance(node, Call):
        return f"{node.name}({', '.join(map(shown, node.arguments))}{'...' if node.expand else ''})"
    assert isinstance(node, ObjectOf)
    return "{" + ", ".join(f"{shown(key)}={shown(value)}" for key, value in node.items) + "}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)"),
        ("1 + 2 == 3 && !a || b", "((((1 + 2) == 3) && (!a)) || b)"),
        ("1 < 2 == 3 > 4", "((1 < 2) == (3 > 4))"),
        ("-1 + -a", "((-1) + (-a))"),
        ("(1 + 2) * 3", "((1 + 2) * 3)"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("[1, [2], ]", "[1, [2]]"),
        ('{a = 1, "b": 2\n c = {}\n}', "{a=1, b=2, c={}}"),
        ("{(a) = 1, 2 = 3}", "{a=1, 2=3}"),
        ("{a.b.c = 1}", "{a.b.c=1}"),
        ("f(1, g(), x...)", "f(1, g(), x...)"),
        ("f(\n1,\n2,\n)", "f(1, 2)"),
        ("ns::f(1)", "ns::f(1)"),
        ("true", "True"),
        ("null", "None"),
        ('a.b["c"].0[1]', "a.b.c.0.1"),
        ("1.5e2", "150"),
        ("0.25", "0.25"),
        ("if", "if"),
    ],
)
def test_expression(text: str, expected: str) -> None:
    assert shown(expression(text)) == expected


def test_steps_that_are_not_constant_follow_the_constant_ones() -> None:
    found = expression("a.b[x].c")
    assert isinstance(found, Access)
    assert isinstance(found.base, Traversal)
    assert (found.base.steps, found.base.end) == (("b",), 3)
    assert [type(step) for step in found.steps] == [GetIndex, GetAttribute]


@pytest.mark.parametrize(("text", "inner"), [("a.*.b[0]", 1), ("a[*].b[0]", 2), ("a[*]", 0)])
def test_a_splat_takes_the_steps_that_belong_to_it(text: str, inner: int) -> None:
    found = expression(text)
    assert isinstance(found, Access)
    assert isinstance(found.steps[0], Splat)
    assert len(found.steps[0].steps) == inner


def test_for_makes_a_list_or_an_object() -> None:
    found = expression("[for k, v in xs : v if k > 1]")
    assert isinstance(found, For)
    assert (found.key_name, found.value_name, found.key, found.grouped) == ("k", "v", None, False)
    found = expression("{for v in xs :\n v => 1...\n}")
    assert isinstance(found, For)
    assert (found.key_name, found.value_name, found.condition, found.grouped) == (None, "v", None, True)
    assert found.key is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t:1,1-1: Missing expression"),
        ("1 +", "Missing expression"),
        ("[1 2]", 't:1,4-5: Missing item separator; Expected a comma or a closing bracket in this list, but found "2"'),
        ("[1,", "Missing expression"),
        ("[1", "t:1,1-2: Unterminated list; There is no closing bracket for this list"),
        ("{a = 1 b = 2}", "t:1,8-9: Missing attribute separator"),
        ("{a = \n1}", "Invalid expression; Expected the start of an expression, but found the end of the line"),
        ("{a\n= 1}", "Missing attribute value"),
        ("{var.x = 1}", "t:1,2-7: Ambiguous attribute key"),
        ("f(1", "t:1,2-3: Unterminated function call"),
        ("f(x..., 1)", "Missing closing parenthesis"),
        ("(1", "t:1,1-2: Unterminated parenthesis"),
        ("a[1", "t:1,2-3: Unterminated index"),
        ("a ? b", "Missing false expression in conditional"),
        ("a.", "Invalid attribute name"),
        ("a.0.1", "Invalid legacy index syntax; Two indexes cannot be chained with dots: write [0][1]."),
        ("1.2.3", "Invalid number literal"),
        ("9e9999", "Number too large"),
        ("9" * 1000, "Number too large"),
        ("ns::f", "Missing open parenthesis"),
        ("[for x y: z]", "The word 'in' and a collection are required"),
        ("[for 1 in x: z]", "A variable name is required after 'for'."),
        ("{for k in x: k}", "An object needs a key and a value"),
        ("a b", "Extra characters after expression"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize("opening", ["[", "(", "{a=", "!", "-", '"${', "a ? b : ", "f(", "a[", "[for x in "])
def test_nesting_is_bounded(opening: str) -> None:
    assert "Nested too deeply" in refused(opening * (NESTING_MAX + 5) + "1")


def test_a_long_chain_of_operators_is_no_nesting() -> None:
    assert isinstance(expression(" + ".join(["1"] * OPERATORS_MAX)), Binary)


def test_the_number_of_operators_in_an_expression_is_bounded() -> None:
    assert "Too many operators" in refused(" + ".join(["1"] * (OPERATORS_MAX + 2)))
    nested = "(" * 30 + "1" + " + 1 + 1)" * 30
    assert "Too many operators" in refused(f"{nested} + " * 50 + "1")
    assert "Too many operators" in refused(" + ".join(['"${1 + 1}"'] * OPERATORS_MAX))
