from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lepa.jobspec.functions.yaml_reader import read_yaml
from lepa.jobspec.functions.yaml_writer import write_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def test_values_are_written_in_block_form() -> None:
    assert write_yaml({"b": [1, {"c": None, "d": []}], "a": {"x": "y: z"}, "e": {}}) == (
        '"a":\n  "x": "y: z"\n"b":\n- 1\n- "c": null\n  "d": []\n"e": {}\n'
    )
    assert write_yaml([[1, 2], "a"]) == '- - 1\n  - 2\n- "a"\n'
    assert write_yaml(True) == "true\n"


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert read_yaml(write_yaml(value)) == value
