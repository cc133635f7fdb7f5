import pytest

from lepa.jobspec.functions.yaml_reader import read_yaml
from lepa.jobspec.values import Conversion


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("# nothing\n", None),
        ("x", "x"),
        ("--- 5\n", 5),
        ("---\na: 1\n", {"a": 1}),
        ("a: 1 # one\nb: 'it''s # not'\nc: \"\\n\"\n", {"a": 1, "b": "it's # not", "c": "\n"}),
        ("a:\n  b:\n    c: 1\n  d: 2\n", {"a": {"b": {"c": 1}, "d": 2}}),
        ("a:\n- 1\n- 2\nb:\n  - 3\n", {"a": [1, 2], "b": [3]}),
        ("- a: 1\n  b: 2\n-\n  - 3\n- - 4\n  - 5\n", [{"a": 1, "b": 2}, [3], [4, 5]]),
        ("a:\nb: ~\n", {"a": None, "b": None}),
        ('a: [1, {b: c, "d": [x y]},\n  2]\nb: {}\n', {"a": [1, {"b": "c", "d": ["x y"]}, 2], "b": {}}),
        ("a: true\nb: False\nc: yes\nd: null\n", {"a": True, "b": False, "c": "yes", "d": None}),
        (
            "a: 1.5\nb: 0x1f\nc: 0o17\nd: -3\ne: 1e3\nf: 1.2.3\n",
            {"a": 1.5, "b": 31, "c": 15, "d": -3, "e": 1000, "f": "1.2.3"},
        ),
        ("a: http://x:80/y\nb: -x\n", {"a": "http://x:80/y", "b": "-x"}),
        ("a: |\n  one\n    two\n\n  three\n\nb: 1\n", {"a": "one\n  two\n\nthree\n", "b": 1}),
        ("a: |-\n  one\nb: |+\n  two\n\n", {"a": "one", "b": "two\n\n"}),
        ("a: >\n  one\n  two\n\n  three\n    four\n  five\n", {"a": "one two\nthree\n  four\nfive\n"}),
        ("- |\n  x\n- y\n", ["x\n", "y"]),
        ("a: |2\n    x\n", {"a": "  x\n"}),
        ('"a b": 1\n', {"a b": 1}),
    ],
)
def test_document(text: str, expected: object) -> None:
    assert read_yaml(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1", "line 1: anchors are not supported"),
        ("a: 1\nb: *x", "line 2: aliases are not supported"),
        ("a: !!str 1", "line 1: tags are not supported"),
        ("a: [&x 1]", "line 1: anchors are not supported"),
        ("a: 1\n---\nb: 1", "line 2: more text than one value"),
        ("a: 1\na: 2", 'line 2: the key "a" appears twice'),
        ("a: b: c", "line 1: a value cannot be a key as well"),
        ("a:\n\t- x", "line 2: a tab cannot indent"),
        ("a:\n  b\n  c", "line 3: unexpected indentation"),
        ('a: "x', "line 1: a quoted text must end on its line"),
        ("a: '\n  x'", "line 1: a quoted text must end on its line"),
        ("[1,\n2", "line 1: a bracket is not closed"),
        ("[1] x", 'line 1: unexpected "x"'),
        ("[a b: c]", "line 1: expected a comma or ]"),
        ("{a: [}", 'line 1: unexpected "}"'),
        ("a: |x\n  y", "line 1: an unknown block header"),
        ("[" * 100, "nested more than 50 levels deep"),
        ("- " * 100 + "x", "nested more than 50 levels deep"),
    ],
)
def test_what_is_not_read_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(Conversion) as problem:
        read_yaml(text)
    assert message in str(problem.value)
