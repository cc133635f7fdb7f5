"""Pure: OpenAI's HTTP API: who is asked, and embeddings made of an application's outputs.

`model` of a request names an application. Where the model that answers it has an endpoint (an HTTP server that speaks
this API itself), the request is passed through as it is (`pass_through`). Otherwise an application of `strings` whose
outputs are lists of numbers answers `/v1/embeddings`.
"""

from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence
from sys import byteorder
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lepa.model.errors import LepaError, invalid
from lepa.serving.inputs import BATCH_ITEMS_MAX
from lepa.serving.served import Answer

PASSED_THROUGH = (b"/v1/embeddings", b"/v1/chat/completions", b"/v1/completions")
EMBEDDINGS = b"/v1/embeddings"


class ModelRequest(Struct):
    """What is read of a request that is passed through."""

    model: str


class EmbeddingsRequest(Struct):
    """A request for embeddings."""

    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


def decode_model(body: bytes) -> str:
    """The name in `model`. Raises LepaError(invalid)."""
    return str(_decoded(body, ModelRequest).model)


def decode_embeddings(body: bytes) -> EmbeddingsRequest:
    """A request for embeddings. Raises LepaError(invalid)."""
    request: EmbeddingsRequest = _decoded(body, EmbeddingsRequest)
    if not 0 < len(request.texts) <= BATCH_ITEMS_MAX:
        raise invalid(f"input must hold 1 to {BATCH_ITEMS_MAX} texts, not {len(request.texts)}")
    return request


def _decoded(body: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the request cannot be read: {error}") from error


def encode_embeddings(request: EmbeddingsRequest, answers: Sequence[Answer]) -> bytes:
    """The answer: one vector for each text. Raises LepaError: invalid where an output is no list of numbers, timeout
    where there is none."""
    for answer in answers:
        if answer.explanation:
            raise LepaError("timeout", answer.explanation)
    vectors = [_vector(answer.output) for answer in answers]
    base64 = request.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if base64 else vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    return msgspec.json.encode({"object": "list", "model": request.model, "data": data, "usage": usage})


def _vector(output: bytes) -> list[float]:
    try:
        return msgspec.json.decode(output, type=list[float])
    except msgspec.ValidationError as error:
        raise invalid(f"the application's outputs are no embeddings, which are lists of numbers: {error}") from error


def _packed(vector: list[float]) -> str:
    numbers = array("f", vector)
    if byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


def encode_models(names: Iterable[str]) -> bytes:
    """The answer to GET /v1/models."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "lepa"} for name in names]
    return msgspec.json.encode({"object": "list", "data": data})


def encode_error(kind: str, message: str) -> bytes:
    """An error as clients of this API read it."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": None}})
