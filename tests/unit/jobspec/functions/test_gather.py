import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chunklist([1, 2, 3], 2)", [[1, 2], [3]]),
        ("chunklist([1, 2], 0)", [[1, 2]]),
        ('coalesce(null, "", "a", "b")', "a"),
        ("coalescelist([], [1])", [1]),
        ('compact(["a", "", null, "b"])', ["a", "b"]),
        ("concat([1], [], [2])", [1, 2]),
        ("contains([1, 2], 2)", True),
        ('contains([1], "1")', False),
        ("distinct([1, 2, 1, {a = 1}, {a = 1}])", [1, 2, {"a": 1}]),
        ("element([1, 2], 3)", 2),
        ("flatten([1, [2, [3, []]], [4]])", [1, 2, 3, 4]),
        ('index(["a", "b"], "b")', 1),
        ("keys({b = 1, a = 2})", ["a", "b"]),
        ("values({b = 1, a = 2})", [2, 1]),
        ('length("é")', 1),
        ("length({a = 1})", 1),
        ('lookup({a = 1}, "a", 2)', 1),
        ('lookup({}, "a", 2)', 2),
        ("merge({a = 1, b = 1}, null, {b = 2})", {"a": 1, "b": 2}),
        ("setintersection([1, 2], [2, 3])", [2]),
        ('setunion(["b"], ["a", "b"])', ["a", "b"]),
        ('setproduct(["a", "b"], [1])', [["a", 1], ["b", 1]]),
        ("slice([1, 2, 3], 1, 2)", [2]),
        ('zipmap(["a", "b"], [1, 2])', {"a": 1, "b": 2}),
    ],
)
def test_collection_function(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chunklist([], -1)", "the size argument must be positive"),
        ("coalesce(null)", "no non-null arguments"),
        ("coalescelist([])", "no non-null arguments"),
        ("element([1], -1)", "negative index"),
        ('index([], "a")', "item not found"),
        ("length(5)", "argument must be a string, a collection type, or a structural type"),
        ('lookup({}, "a")', 'lookup failed to find key "a"'),
        ("slice([1], 0, 2)", "within the list of 1 elements"),
        ('zipmap(["a"], [])', "number of keys (1) does not match number of values (0)"),
        ("setproduct([1])", "at least two arguments are required"),
        ("setproduct(range(1000), range(1000))", "there are too many combinations"),
        ("merge([])", "a map is required"),
    ],
)
def test_what_a_collection_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text)
