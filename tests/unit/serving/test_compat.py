"""lepa.serving.compat"""

import msgspec
import pytest

from lepa.serving.compat import PREDICT_SCHEMA, cause, reason, schema


class Body(msgspec.Struct):
    name: str
    count: int = 0
    verbose: bool = False


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "JSON object does not have required key: name"),
        (b'{"name":1}', "Type mismatch! JSON key name expected type Stringbut found type Number"),
        (b'{"name":[]}', "Type mismatch! JSON key name expected type Stringbut found type Array"),
        (b'{"name":"a","verbose":"x"}', "Type mismatch! JSON key verbose expected type bool but found type String"),
        (b"[1]", "Can only get key-value pair from an object"),
        (b'{"name": x}', "JSON parse error: invalid character (offset 9)\n"),
        (b"", "JSON parse error: The document is empty. (offset 0)\n"),
    ],
)
def test_json_mistakes_are_named_as_clipper_named_them(body: bytes, words: str) -> None:
    with pytest.raises(msgspec.MsgspecError) as caught:
        msgspec.json.decode(body, type=Body)
    assert reason(str(caught.value)) == words


def test_a_cause_ends_with_the_schema_and_other_sentences_stay() -> None:
    found = cause("Error parsing JSON: Object missing required field `input`", PREDICT_SCHEMA)
    assert found == (
        "Error parsing JSON: JSON object does not have required key: input. Expected JSON schema: "
        '"input" := [double] | [int] | [string] | [byte] | [float],'
    )
    assert cause("No app with name 'a' exists.", "") == "No app with name 'a' exists."
    assert reason("Something else") == "Something else"


def test_a_schema_lists_fields_and_types() -> None:
    assert schema({"name": "str", "count": "int"}) == '\n  {\n   "name" := string,\n   "count" := int\n  }'
