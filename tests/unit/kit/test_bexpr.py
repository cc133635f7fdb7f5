"""The filter language: what passes, what is refused and where."""

from typing import Any

import pytest

from lepa.kit.bexpr import DEPTH_MAX, LENGTH_MAX, FilterError, compile_filter
from lepa.model.wire import Wire


class Part(Wire, frozen=True):
    name: str = ""
    size_mb: int = 0


class Thing(Wire, frozen=True):
    id: str = ""
    job_id: str = ""
    count: int = 0
    ratio: float = 0.0
    ready: bool = False
    tags: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    meta: dict[str, str] = {}
    parts: tuple[Part, ...] = ()
    by_name: dict[str, Part] = {}
    part: Part | None = None
    config: dict[str, Any] = {}


THING = Thing(
    id="t1",
    job_id="web-1",
    count=3,
    ratio=0.5,
    ready=True,
    tags=("blue", "fast"),
    ports=(80, 443),
    meta={"owner": "ann", "odd key/x": "yes", "empty": ""},
    parts=(Part(name="a", size_mb=10), Part(name="b", size_mb=20)),
    by_name={"a": Part(name="a", size_mb=10)},
    config={"deep": [{"x": 1}, None]},
)


@pytest.mark.parametrize(
    "expression",
    [
        'ID == "t1"',
        "ID == t1",
        "ID == `t1`",
        'ID != "t2"',
        "JobID == web-1",
        "Count == 3",
        'Count == "3"',
        "Count != -3",
        "Ratio == 0.5",
        "Ready == true",
        'Ready == "1"',
        "Ready != false",
        "Meta.owner == ann",
        'Meta["owner"] == "ann"',
        '"/Meta/odd key~1x" == "yes"',
        'Meta["odd key/x"] == yes',
        "Meta.gone != x",
        "not Meta.gone == x",
        "Meta.gone is empty",
        "Meta.gone is nil",
        "Meta.empty is empty",
        "Meta.empty is not nil",
        "Meta is not empty",
        "Part is nil",
        "Part is empty",
        "Part.Name is empty",
        "not Part.Name == a",
        "owner in Meta",
        '"nobody" not in Meta',
        '"blue" in Tags',
        "Tags contains blue",
        "Tags not contains red",
        "80 in Ports",
        "Ports contains 443",
        "8080 not in Ports",
        '"eb" in JobID',
        'JobID contains "web"',
        'JobID matches "^web-[0-9]+$"',
        'JobID not matches "^db"',
        r'JobID matches "\\d"',
        r"JobID matches `\d`",
        "Tags.0 == blue",
        'Tags[1] == "fast"',
        "Tags.7 is nil",
        "Parts.1.SizeMB == 20",
        'ByName["a"].SizeMB == 10',
        "Config.deep.0.x == 1",
        "Config.deep.1.x is nil",
        "any Parts as p { p.Name == a }",
        "all Parts as p { p.SizeMB != 0 and p.Name is not empty }",
        "not any Parts as p { p.Name == z }",
        "any Parts as i, p { i == 1 and p.Name == b }",
        'any Meta as k { k == "owner" }',
        'any Meta as k, v { k == "owner" and v == "ann" }',
        "all Part as p { p == 1 }",
        "not any Part as p { p == 1 }",
        "any Parts as p { any Tags as t { p.Name == b and t == blue } }",
        "any Parts as ID { ID.Name == a }",
        "ID == x or ID == y or ID == t1",
        "ID == t1 or ID == x and Count == 9",
        "(ID == x or ID == t1) and Count == 3",
        "not (ID == x)",
        "not not ID == t1",
        "  ID==t1  ",
    ],
)
def test_it_passes(expression: str) -> None:
    assert compile_filter(expression)(THING)


@pytest.mark.parametrize(
    "expression",
    [
        'ID == "t2"',
        "Count == 4",
        "Ready == false",
        "Meta.owner is empty",
        "Tags contains bl",
        '"x" in Part',
        'Part.Name matches "."',
        'Meta.gone matches ".*"',
        "Meta.gone contains x",
        "not (ID == t1 or ID == x)",
        "any Tags as t { t == red }",
        "all Tags as t { t == blue }",
        "ID == x and Count == 3",
    ],
)
def test_it_does_not_pass(expression: str) -> None:
    assert not compile_filter(expression)(THING)


@pytest.mark.parametrize(
    ("expression", "message", "position"),
    [
        ("", "expected a field or a value, found end of the filter", 0),
        ("ID", "expected a comparison: ==, !=, is, in, contains or matches, found end of the filter", 2),
        ("ID ==", "expected a field or a value, found end of the filter", 5),
        ("ID = x", "unexpected '='", 3),
        ('ID == "x', "text without a closing quote", 6),
        ("ID == x y", 'expected "and", "or" or the end of the filter, found y', 8),
        ("(ID == x", 'expected ")", found end of the filter', 8),
        ("ID like x", "expected a comparison", 3),
        ("ID is full", 'expected "empty" or "nil", found full', 6),
        ("ID not == x", "expected a comparison", 7),
        ("ID not is empty", "expected a comparison", 7),
        ('"ID" == x', 'expected a field, found "ID"; a quoted field starts with /', 0),
        ("3 == 3", "expected a field, found 3", 0),
        ("x in 3", "expected a field, found 3", 5),
        ("any Parts { Name == x }", 'expected "as", found {', 10),
        ("any Parts as { Name == x }", "expected a name", 13),
        ("any Parts as p p.Name == x", 'expected "{"', 15),
        ("any Parts as p { p.Name == x", 'expected "}"', 28),
        ("Meta[owner] == x", "expected a key in quotes", 5),
        ("Meta. == x", "expected a name", 6),
        ('ID matches "("', "the regular expression cannot be read", 0),
        (r'ID == "\q"', "text with an escape that is not known", 6),
        ("ID == x; drop", "unexpected ';'", 7),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(expression: str, message: str, position: int) -> None:
    with pytest.raises(FilterError) as raised:
        compile_filter(expression)
    assert message in str(raised.value)
    assert raised.value.position == position
    assert str(raised.value).endswith(f"(at character {position + 1})")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("Gone == x", '"Gone" is not a field of Thing'),
        ("job_id == x", '"job_id" is not a field of Thing'),
        ("Parts.0.Gone == x", '"Gone" is not a field of Part'),
        ("ID.x == y", 'there is no "x" in a text'),
        ("Tags.x == y", '"x" is not an index of a list'),
        ("Count == many", '"many" is not a number'),
        ("Ready == maybe", '"maybe" is not a boolean'),
        ("Tags == blue", "cannot compare a list with a text"),
        ("Parts contains a", "cannot compare a Part with a text"),
        ("Count is empty", "a number is never empty"),
        ("x in Count", "a number contains nothing"),
        ('Count matches "3"', "a number cannot be matched with a regular expression"),
        ("any ID as x { x == 1 }", "any and all go over lists and maps, not over a text"),
    ],
)
def test_what_does_not_fit_the_object_is_refused_when_it_meets_it(expression: str, message: str) -> None:
    passes = compile_filter(expression)
    with pytest.raises(FilterError, match=message.replace("(", r"\(")):
        passes(THING)


def test_it_works_on_plain_dicts_too() -> None:
    assert compile_filter("Meta.a == 1 and Tags contains x")({"Meta": {"a": 1}, "Tags": ["x"]})


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(FilterError, match="longer than"):
        compile_filter("ID == x or " * LENGTH_MAX + "ID == x")
    for opening, closing in (("(", ")"), ("not ", ""), ("any Parts as p { ", " }")):
        with pytest.raises(FilterError, match="nests deeper"):
            compile_filter(opening * (DEPTH_MAX + 1) + "ID == x" + closing * (DEPTH_MAX + 1))


def test_a_hostile_pattern_takes_no_time() -> None:
    passes = compile_filter('Meta.text matches "(a+)+$"')
    assert not passes(Thing(meta={"text": "a" * 5_000 + "!"}))


def test_many_alternatives_need_no_depth() -> None:
    expression = " or ".join(f"ID == t{number}" for number in range(500, -1, -1))
    assert compile_filter(expression)(THING)
