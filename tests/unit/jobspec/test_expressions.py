import pytest

from lepa.jobspec import hcl
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import UNKNOWN, Budget, Scope, Unresolved, evaluate
from lepa.jobspec.functions import function_table
from lepa.jobspec.values import HclSet

NAMES = {
    "var": {"image": "redis", "count": 3, "tags": ["a", "b"], "object": {"k": {"inner": 1}}, "unset": UNKNOWN},
    "local": {"set": HclSet(["x", "y"]), "nothing": None},
}


def value(text: str, *, closed: bool = False) -> object:
    report = Reporter(Source("t", text))
    expression = hcl.parse_expression(report)
    assert expression is not None, [each.render() for each in report.found]
    return evaluate(expression, Scope(text, NAMES, function_table(), Budget(), closed=closed))


def refused(text: str, *, closed: bool = False) -> tuple[str, str]:
    with pytest.raises(Refusal) as problem:
        value(text, closed=closed)
    return problem.value.summary, problem.value.detail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("7 / 2", 3.5),
        ("8 / 2", 4),
        ("-7 % 3", -1),
        ('"2" + 1', 3),
        ("1 < 2 && 3 >= 3", True),
        ("!true || false", False),
        ('1 == "1"', False),
        ("[1, 2] == [1, 2]", True),
        ('"a" != null', True),
        ("var.count > 2 ? var.image : 1 / 0", "redis"),
        ("false && 1 / 0", False),
        ("true || 1 / 0", True),
        ("var.tags[1]", "b"),
        ('var.object.k["inner"]', 1),
        ('var.object["k"].inner', 1),
        ("var.tags[var.count - 3]", "a"),
        ("var.tags.0", "a"),
        ("[{n = 1}, {n = 2}][*].n", [1, 2]),
        ("[{n = 1}, {n = 2}].*.n", [1, 2]),
        ("local.nothing[*].n", []),
        ("var.object[*].k.inner", [1]),
        ("[for t in var.tags : upper(t)]", ["A", "B"]),
        ('[for i, t in var.tags : "${i}${t}" if t != "a"]', ["1b"]),
        ("[for k, v in local.set : k]", ["x", "y"]),
        ("{for k, v in {b = 2, a = 1} : k => v + 1}", {"a": 2, "b": 3}),
        ('{for t in ["a", "b", "a"] : t => 1...}', {"a": [1, 1], "b": [1]}),
        ('{(var.image) = 1, "x-${var.count}" = 2}', {"redis": 1, "x-3": 2}),
        ('"${var.image}:${var.count}"', "redis:3"),
        ('"${var.tags}"', ["a", "b"]),
        ("length(var.tags)", 2),
        ("max([1, 2]...)", 2),
    ],
)
def test_value_of_an_expression(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOMAD_PORT_http", "${NOMAD_PORT_http}"),
        ('"${NOMAD_PORT_http}"', "${NOMAD_PORT_http}"),
        ('"x ${ attr.kernel.name } y"', "x ${attr.kernel.name} y"),
        ('env["A B"]', '${env["A B"]}'),
        ('"${meta.rack}-${var.image}"', "${meta.rack}-redis"),
        ('upper("${node.class}")', "${NODE.CLASS}"),
        ('"$${NOMAD_X}"', "${NOMAD_X}"),
        ("[for t in var.tags : other]", ["${other}", "${other}"]),
    ],
)
def test_references_to_what_the_node_knows_are_left_as_text(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "summary", "detail"),
    [
        ("var.missing", "Undeclared variable", 'An input variable named "missing" has not been declared.'),
        ("local.missing", "Undeclared local value", 'A local value named "missing"'),
        ("var.object.x", "Unsupported attribute", 'does not have an attribute named "x"'),
        ("var.tags[5]", "Invalid index", "The list has 2 elements, so there is none with the index 5."),
        ('var.tags["a"]', "Invalid index", "A list is indexed by number"),
        ("var.image.x", "Invalid index", "This value is a string"),
        ("local.nothing.x", "Attempt to get attribute from null value", "null"),
        ("attr.kernel[var.count]", "Invalid index", '"${attr.kernel}" is known only when the task starts'),
        ("1 + true", "Invalid operand", 'Unsuitable value for "+": number required, but have bool.'),
        ("1 / 0", "Invalid operation", "Division by zero."),
        ("!5", "Invalid operand", "bool required, but have number"),
        ("5 ? 1 : 2", "Incorrect condition type", "The condition must be true or false"),
        ('"x ${var.tags} y"', "Invalid template interpolation value", "string required, but have list"),
        ('"x ${null} y"', "Invalid template interpolation value", "The value is null"),
        ("[for x in 5 : x]", "Iteration over non-iterable value", "not a number"),
        ("{for x in var.tags : 1 => x}", "Duplicate object key", 'Two values have the key "1"'),
        ("{(null) = 1}", "Null value as key", "null"),
        ("{(var.tags) = 1}", "Incorrect key type", "string required, but have list"),
        ("missing(1)", "Call to unknown function", 'There is no function named "missing".'),
    ],
)
def test_what_has_no_value_says_why(text: str, summary: str, detail: str) -> None:
    found = refused(text)
    assert found[0] == summary
    assert detail in found[1]


def test_a_value_that_is_not_known_is_unresolved() -> None:
    with pytest.raises(Unresolved):
        value("var.unset")


def test_a_closed_scope_refuses_unknown_references() -> None:
    assert refused("NOMAD_X", closed=True)[0] == "Variables not allowed"


def test_a_long_chain_of_operators_needs_no_stack() -> None:
    assert value(" + ".join(["1"] * 1000)) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]",
        '"%{ for a in range(1000) }%{ for b in range(1000) }x%{ endfor }%{ endfor }"',
        "[for a in range(1000) : setproduct(range(200), range(200))]",
        '[for a in range(1000) : [for b in range(1000) : format("%9999s", "x")]]',
    ],
)
def test_loops_inside_loops_are_bounded(text: str) -> None:
    assert refused(text)[0] == "Too much work"


def test_a_text_cannot_grow_without_end() -> None:
    big = 'replace(join("", [for i in range(1000) : "xxxxxxxxxx"]), "x", join("", range(90)))'
    text = f'"%{{ for i in range(1000) }}${{{big}}}%{{ endfor }}"'
    assert refused(text)[0] in ("Text too long", "Too much work")
