"""Variables from rendered files."""

import pytest

from lepa.client.hooks.env_file import parse_env_file
from lepa.model.errors import LepaError


def test_values_and_quotes() -> None:
    text = (
        '\n# comment\nA=1\nexport B = two words # why\nC=\'$x "y"\'\nD="a\\nb \\"q\\"" # c\nE=\nF=a#b\nG=x=y\nH: yaml\n'
    )
    assert parse_env_file(text, "x.env") == {
        "A": "1",
        "B": "two words",
        "C": '$x "y"',
        "D": 'a\nb "q"',
        "E": "",
        "F": "a#b",
        "G": "x=y",
        "H": "yaml",
    }


@pytest.mark.parametrize("line", ["nonsense", "=x", 'A="open', "A='open", "1A=x"])
def test_what_is_no_variable_is_named_with_its_line(line: str) -> None:
    with pytest.raises(LepaError, match=r"x\.env:2: expected NAME=value"):
        parse_env_file(f"A=1\n{line}\n", "x.env")
