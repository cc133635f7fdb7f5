import pytest

from lepa.drivers import options

OPTIONS = options.Options(
    "demo",
    {"t": "text", "n": "number", "b": "bool", "l": "texts", "m": "map", "k": "block", "ks": "blocks"},
    required=("t",),
)


def test_a_right_block_has_no_problems() -> None:
    config = {"t": "x", "n": "5", "b": "true", "l": ["a", 1], "m": [{"k": "v"}], "k": {"a": []}, "ks": [{}, {}]}
    assert OPTIONS.problems(config) == []


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "t must be set"),
        ({"t": ""}, "t must be set"),
        ({"t": "x", "u": 1}, "demo has no option 'u'"),
        ({"t": ["x"]}, "t must be a string"),
        ({"t": "x", "n": "many"}, "n must be a number"),
        ({"t": "x", "n": True}, "n must be a number"),
        ({"t": "x", "b": "maybe"}, "b must be true or false"),
        ({"t": "x", "l": "a"}, "l must be a list of strings"),
        ({"t": "x", "m": {"k": ["v"]}}, "m must be a map of strings"),
        ({"t": "x", "k": "v"}, "k must be a block"),
        ({"t": "x", "ks": ["v"]}, "ks must be one block or several"),
    ],
)
def test_a_problem_names_the_option(config: dict[str, object], problem: str) -> None:
    found = OPTIONS.problems(config)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_values_are_read_as_what_they_are_for() -> None:
    config = {"t": 5, "n": "7", "b": "1", "l": ("a", 2), "m": [{"a": 1}, {"b": 2}], "ks": {"x": 1}}
    assert options.text(config, "t") == "5"
    assert options.number(config, "n") == 7
    assert options.flag(config, "b")
    assert options.texts(config, "l") == ("a", "2")
    assert options.mapping(config, "m") == {"a": "1", "b": "2"}
    assert options.blocks(config, "ks") == ({"x": 1},)
    assert options.block(config, "none") == {}
    assert options.text(config, "none", "default") == "default"
    assert options.number(config, "none", 3) == 3
    assert not options.flag(config, "none")
