import pytest

from lepa.jobspec import values
from lepa.jobspec.values import ANY, BOOL, NUMBER, STRING, Conversion, HclSet, Type, convert


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (0.1, "0.1"),
        (1e21, "1000000000000000000000"),
        (1e-7, "0.0000001"),
    ],
)
def test_a_primitive_as_text(value: object, text: str) -> None:
    assert values.to_text(value) == text


@pytest.mark.parametrize(("text", "value"), [("5", 5), (" 5 ", 5), ("1.5", 1.5), ("1e3", 1000), (7, 7)])
def test_a_text_as_number(text: object, value: float) -> None:
    found = values.to_number(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("value", ["", "x", "1_000", "0x10", "NaN", "Infinity", "1e999999999", True, None, []])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(Conversion):
        values.to_number(value)


def test_numbers_are_whole_finite_and_bounded() -> None:
    assert values.to_whole("3") == 3
    for bad in (1.5, "x"):
        with pytest.raises(Conversion):
            values.to_whole(bad)
    for bad in (float("nan"), float("inf"), 1 << 5000):
        with pytest.raises(Conversion):
            values.number(bad)


def test_bools_may_be_texts() -> None:
    assert [values.to_bool(each) for each in (True, "true", "1", "false", "0")] == [True, True, True, False, False]
    for bad in ("yes", 1, None):
        with pytest.raises(Conversion):
            values.to_bool(bad)


def test_equality_tells_kinds_apart() -> None:
    assert values.equal([1, {"a": None}], [1, {"a": None}])
    assert not values.equal(1, "1")
    assert not values.equal(True, 1)
    assert not values.equal(None, False)


def test_a_set_is_sorted_without_repetitions() -> None:
    assert values.make_set(["b", "a", "b"]) == ["a", "b"]
    assert values.make_set([{"b": 1}, {"a": 1}, {"b": 1}]) == [{"b": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (5, STRING, "5"),
        ("5", NUMBER, 5),
        ("true", BOOL, True),
        ({"a": 1}, ANY, {"a": 1}),
        (None, STRING, None),
        ([1, "2"], Type("list", STRING), ["1", "2"]),
        (["b", "a", "a"], Type("set", STRING), HclSet(["a", "b"])),
        ({"a": 1}, Type("map", STRING), {"a": "1"}),
        ({"a": "1", "x": 2}, Type("object", members=(("a", NUMBER),)), {"a": 1}),
        ({}, Type("object", members=(("a", NUMBER),), optional=frozenset({"a"})), {"a": None}),
        (["1", 2], Type("tuple", members=(("0", NUMBER), ("1", STRING))), [1, "2"]),
    ],
)
def test_conversion_to_a_type(value: object, kind: Type, expected: object) -> None:
    assert convert(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ([], STRING, "string required, but have list"),
        ({}, Type("list", STRING), "list of string required, but have object"),
        ([[]], Type("list", STRING), 'element "0": string required, but have list'),
        ({}, Type("object", members=(("a", NUMBER), ("b", NUMBER))), 'attributes "a", "b" are required'),
        ([1], Type("tuple"), "a tuple of 0 elements is required, but have 1"),
        (1, Type("map", ANY), "map required, but have number"),
    ],
)
def test_what_does_not_fit_a_type_says_why(value: object, kind: Type, message: str) -> None:
    with pytest.raises(Conversion) as problem:
        convert(value, kind)
    assert str(problem.value) == message


def test_types_are_written_as_in_a_file() -> None:
    kind = Type("object", members=(("a", Type("list", STRING)), ("b", Type("tuple", members=(("0", BOOL),)))))
    assert str(kind) == "object({a=list(string), b=tuple([bool])})"


def test_size_and_depth_of_a_value_are_bounded() -> None:
    assert values.measure({"a": [1, 2]}) == 4
    shared: list[object] = []
    for _ in range(40):
        shared = [shared, shared]
    with pytest.raises(Conversion, match="more than 200000 elements"):
        values.measure(shared)
    deep: list[object] = []
    for _ in range(values.VALUE_DEPTH_MAX + 1):
        deep = [deep]
    with pytest.raises(Conversion, match="nested more than 100 levels deep"):
        values.measure(deep)
