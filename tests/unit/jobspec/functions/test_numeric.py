import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abs(-1.5)", 1.5),
        ("ceil(1.2)", 2),
        ("floor(-1.2)", -2),
        ("log(8, 2)", 3),
        ("max(1, 5, 3)", 5),
        ("min(2, 1)", 1),
        ("pow(2, 10)", 1024),
        ("pow(4, 0.5)", 2),
        ("pow(2, -1)", 0.5),
        ("signum(-3)", -1),
        ("signum(0)", 0),
        ('parseint("ff", 16)', 255),
        ('parseint("-101", 2)', -5),
        ('parseint("Z", 62)', 61),
        ("range(3)", [0, 1, 2]),
        ("range(1, 4)", [1, 2, 3]),
        ("range(4, 1)", [4, 3, 2]),
        ("range(0, 1, 0.5)", [0, 0.5]),
        ("range(0)", []),
    ],
)
def test_numeric_function(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log(0, 2)", "there is no logarithm of 0"),
        ("log(5, 1)", "there is no logarithm of 5"),
        ("pow(10, 100000)", "is not a number or too large"),
        ("pow(-1, 0.5)", "is not a number or too large"),
        ('parseint("12", 2)', 'cannot parse "12" as a base 2 integer'),
        ('parseint("", 10)', 'cannot parse "" as a base 10 integer'),
        ('parseint("1", 99)', "the base must be between 2 and 62"),
        ("range(2000)", "more than 1024 values were generated"),
        ("range(1, 2, -1)", "the step must lead from the start to the end"),
        ("range()", "one to three numbers are needed"),
    ],
)
def test_what_a_numeric_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text)
