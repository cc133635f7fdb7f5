import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("upper(5)", "5"),
        ('abs("-5")', 5),
        ("max([1, 3, 2]...)", 3),
        ('join(",", ["a"], var.list)', "a,a,b"),
        ("upper(NOMAD_X)", "${NOMAD_X}"),
    ],
)
def test_arguments_are_converted_and_spread(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upper()", 'Not enough function arguments; Function "upper" expects 1 argument.'),
        ("join()", 'Function "join" expects at least 1 argument.'),
        ('upper("a", "b")', 'Too many function arguments; Function "upper" expects 1 arguments.'),
        ('lookup({}, "a", 1, 2)', 'Function "lookup" expects at most 3 arguments.'),
        ("upper(null)", 'Invalid function argument; Argument 1 of "upper" does not fit: argument must not be null.'),
        ('substr("a", "x", 1)', 'Argument 2 of "substr" does not fit: a number is required, but "x" is not one.'),
        ("keys([])", 'Argument 1 of "keys" does not fit: a map is required, but have list.'),
        ("distinct({})", "a list is required, but have object"),
        ("max(5...)", "Only a list can be spread out with ..., not a number."),
        (
            "element([], 0)",
            'Error in function call; Call to function "element" failed: cannot use element function with',
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(text: str, message: str) -> None:
    assert message in refusal(text)
