"""lepa.serving.openai_api"""

import base64
import json
import struct

import pytest

from lepa.model.errors import LepaError
from lepa.serving.openai_api import decode_embeddings, decode_model, encode_embeddings, encode_error, encode_models
from lepa.serving.served import Answer


def test_embeddings_are_lists_of_numbers_or_packed() -> None:
    request = decode_embeddings(b'{"model":"m","input":["a","b"]}')
    answers = [Answer(0, b"[1, 2.5]", ""), Answer(1, b"[3,4]", "")]
    found = json.loads(encode_embeddings(request, answers))
    assert [one["embedding"] for one in found["data"]] == [[1.0, 2.5], [3.0, 4.0]]
    packed = decode_embeddings(b'{"model":"m","input":"a","encoding_format":"base64"}')
    assert packed.texts == ["a"]
    found = json.loads(encode_embeddings(packed, answers[:1]))
    assert struct.unpack("<2f", base64.b64decode(found["data"][0]["embedding"])) == (1.0, 2.5)


def test_what_is_no_embedding_and_what_came_too_late_is_refused() -> None:
    request = decode_embeddings(b'{"model":"m","input":"a"}')
    with pytest.raises(LepaError, match="lists of numbers"):
        encode_embeddings(request, [Answer(0, b'"cat"', "")])
    with pytest.raises(LepaError, match="too late") as caught:
        encode_embeddings(request, [Answer(0, b"[1]", "too late")])
    assert caught.value.code == "timeout"


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"model":"m","input":[]}', b'{"model":"m","input":[1]}'])
def test_requests_that_ask_nothing_are_refused(body: bytes) -> None:
    with pytest.raises(LepaError):
        decode_embeddings(body)


def test_models_and_errors() -> None:
    assert decode_model(b'{"model":"m","messages":[]}') == "m"
    assert json.loads(encode_models(["a"]))["data"][0]["id"] == "a"
    assert json.loads(encode_error("x", "no"))["error"]["message"] == "no"
