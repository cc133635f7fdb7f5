"""lepa.serving.inputs"""

import struct

import pytest

from lepa.model.errors import LepaError
from lepa.serving.inputs import BATCH_ITEMS_MAX, INPUT_TYPES, input_type


@pytest.mark.parametrize(
    ("kind", "body", "packed"),
    [
        ("bytes", b'{"input":"AAEC"}', b"\0\1\2"),
        ("integers", b'{"input":[1,-2]}', struct.pack("<2i", 1, -2)),
        ("floats", b'{"input":[1,2.5]}', struct.pack("<2f", 1, 2.5)),
        ("doubles", b'{"input":[1,2.5]}', struct.pack("<2d", 1, 2.5)),
        ("strings", '{"input":"é\\u0000"}'.encode(), b"\xc3\xa9\0"),
        ("doubles", b'{"input":[]}', b""),
    ],
)
def test_json_becomes_the_bytes_of_the_wire(kind: str, body: bytes, packed: bytes) -> None:
    assert input_type(kind).decode_predict(body) == (packed, "", "")


def test_batches_and_versions_are_read() -> None:
    found = input_type("strings").decode_predict(b'{"input_batch":["a","b"],"version":"2","uid":1}')
    assert found == ([b"a", b"b"], "2", "1")
    assert input_type("strings").decode_predict(b'{"input":"a","input_batch":["b"]}') == (b"a", "", "")


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        ("doubles", b"{", "Error parsing JSON"),
        ("doubles", b"[1]", "Error parsing JSON"),
        ("doubles", b'{"input":["x"]}', "Expected `float`, got `str`"),
        ("doubles", b'{"input":[NaN]}', "Error parsing JSON"),
        ("doubles", b"{}", "does not have required keys input or input_batch"),
        ("integers", b'{"input":[1.5]}', "Expected `int`"),
        ("integers", b'{"input":[2147483648]}', "Expected `int` <= 2147483647"),
        ("floats", b'{"input":[1e39]}', "does not fit type floats"),
        ("bytes", b'{"input":"*"}', "base64"),
        ("doubles", b'{"input":' + b"[" * 100_000, "Error parsing JSON"),
        ("strings", b'{"input":"\xff"}', "Error parsing JSON"),
        ("strings", b'{"input_batch":[' + b",".join([b'""'] * (BATCH_ITEMS_MAX + 1)) + b"]}", "at most 10000"),
    ],
)
def test_what_is_not_an_input_is_refused_with_a_sentence(kind: str, body: bytes, sentence: str) -> None:
    with pytest.raises(LepaError, match=sentence) as refused:
        input_type(kind).decode_predict(body)
    assert refused.value.code == "invalid"


def test_updates_are_read() -> None:
    assert input_type("i").decode_update(b'{"uid":3,"input":[1],"label":1}') == ("3", struct.pack("<i", 1), 1.0)


def test_types_are_known_by_their_aliases_and_no_other() -> None:
    assert [input_type(alias).code for alias in ("b", "INT", "float", "d", "str")] == [0, 1, 2, 3, 4]
    assert sorted(kind.code for kind in INPUT_TYPES.values()) == [0, 1, 2, 3, 4]
    with pytest.raises(LepaError, match='"pixels" is not an input type'):
        input_type("pixels")
