"""Pure: the Open Inference Protocol, version 2: tensors to inputs, outputs to tensors, and its REST form.

`grpc_door` speaks it over gRPC.

An application is a model of the protocol: it takes one input tensor whose first dimension counts the queries, and gives
one output tensor. Binary tensor data (the extension that Triton's client uses unless it is told otherwise) is read;
answers are JSON, which every client reads.

    GET  /v2   /v2/health/live   /v2/health/ready   /v2/models/{app}   /v2/models/{app}/ready
    POST /v2/models/{app}/infer        each also as /v2/models/{app}/versions/{version}/...
"""

from array import array
from collections.abc import Sequence
from math import prod
from struct import pack, unpack_from
from sys import byteorder
from typing import Any

import msgspec
from msgspec import Struct

from lepa.model.errors import invalid, not_found
from lepa.serving.inputs import BATCH_ITEMS_MAX, InputType
from lepa.serving.query import Predictions
from lepa.serving.served import Answer, ServedApplication

BINARY_HEADER = b"inference-header-content-length"
"""Bytes of JSON at the beginning of a body; what follows is binary tensor data."""
ELEMENTS_MAX = 10_000_000
PLATFORM = "lepa"
OUTPUT = "output"

_ARRAY_CODES = {
    "BOOL": "b",
    "INT8": "b",
    "UINT8": "B",
    "INT16": "h",
    "UINT16": "H",
    "INT32": "i",
    "UINT32": "I",
    "INT64": "q",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}
_NATURAL = {"bytes": "BYTES", "strings": "BYTES", "integers": "INT32", "floats": "FP32", "doubles": "FP64"}


class Tensor(Struct):
    """An input of a request."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: dict[str, Any] = {}


class InferRequest(Struct):
    """The JSON of an infer request; asked outputs do not matter, for there is one."""

    inputs: list[Tensor]
    id: str = ""


def decode_infer(body: bytes, json_length: int | None) -> tuple[InferRequest, list[Any]]:
    """The request, and the elements of its one tensor in row order. Raises LepaError(invalid)."""
    head = body if json_length is None else body[:json_length]
    try:
        request = msgspec.json.decode(head, type=InferRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the request is not of the inference protocol: {error}") from error
    tensor = one_tensor(request)
    if tensor.data is None:
        data = memoryview(body)[len(head) :]
        size = tensor.parameters.get("binary_data_size")
        if not isinstance(size, int) or size != len(data):
            raise invalid(f"{tensor.name} announces {size} bytes of binary data, {len(data)} were sent")
        elements = raw_elements(tensor.datatype, data)
    else:
        elements = _flat(tensor.data)
    check_count(tensor, elements)
    return request, elements


def one_tensor(request: InferRequest) -> Tensor:
    """The one input tensor of a request. Raises LepaError(invalid) for another number, or a shape that is none."""
    if len(request.inputs) != 1:
        raise invalid(f"an application takes one input tensor, the request has {len(request.inputs)}")
    tensor = request.inputs[0]
    if not tensor.shape or min(tensor.shape) < 0 or prod(tensor.shape) > ELEMENTS_MAX:
        raise invalid(f"shape {tensor.shape} of {tensor.name} counts no queries, or too many elements")
    return tensor


def check_count(tensor: Tensor, elements: Sequence[Any]) -> None:
    """Raises LepaError(invalid) where there are not as many elements as the shape says."""
    count = prod(tensor.shape)
    if len(elements) != count:
        raise invalid(f"shape {tensor.shape} of {tensor.name} has {count} elements, {len(elements)} were sent")


def _flat(data: list[Any]) -> list[Any]:
    """Nested lists as one."""
    while data and isinstance(data[0], list):
        try:
            data = [element for row in data for element in row]
        except TypeError as error:
            raise invalid("a tensor's nested lists must all be equally deep") from error
    return data


def raw_elements(datatype: str, data: memoryview) -> list[Any]:
    """The elements of binary tensor data: little-endian numbers, or texts with their lengths before them."""
    if datatype == "BYTES":
        return _strings(data)
    code = _ARRAY_CODES.get(datatype)
    if code is None or len(data) % array(code).itemsize:
        raise invalid(f"{len(data)} bytes are no tensor of {datatype}; known are {', '.join(_ARRAY_CODES)}, BYTES")
    elements = array(code, bytes(data))
    if byteorder == "big":
        elements.byteswap()
    return elements.tolist()


def raw_data(datatype: str, elements: Sequence[Any]) -> bytes:
    """The elements of an output tensor as binary tensor data."""
    if datatype == "BYTES":
        return b"".join(pack("<I", len(text)) + text for text in (element.encode() for element in elements))
    packed = array(_ARRAY_CODES[datatype], elements)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _strings(data: memoryview) -> list[bytes]:
    """Texts, each with its length before it."""
    found, at = [], 0
    while at + 4 <= len(data):
        length = unpack_from("<I", data, at)[0]
        found.append(bytes(data[at + 4 : at + 4 + length]))
        at += 4 + length
    if at != len(data):
        raise invalid("binary data of BYTES ends within a text")
    return found


def inputs_of(request: InferRequest, elements: list[Any], kind: InputType) -> list[bytes]:
    """One packed input for each query of the tensor. Raises LepaError(invalid)."""
    shape = request.inputs[0].shape
    count = shape[0]
    if count > BATCH_ITEMS_MAX:
        raise invalid(f"the tensor holds {count} queries; at most {BATCH_ITEMS_MAX} are taken")
    if _NATURAL[kind.name] == "BYTES":
        if len(elements) != count:
            raise invalid(f"an application of {kind.name} takes one text a query, shape {shape} has more")
        return [_text(element, kind) for element in elements]
    width = len(elements) // count if count else 0
    return [kind.pack(elements[at : at + width]) for at in range(0, count * width, width)] if width else [b""] * count


def _text(element: Any, kind: InputType) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if not isinstance(element, bytes):
        raise invalid(f"an application of {kind.name} takes a tensor of BYTES")
    if kind.name == "strings":
        try:
            element.decode()
        except UnicodeDecodeError as error:
            raise invalid(f"a text is not UTF-8: {error}") from error
    return element


def encode_infer(application: str, version: str, request_id: str, answers: Sequence[Answer]) -> bytes:
    """The answer to an infer request. Default outputs are marked in the parameters of the output, with the reason."""
    datatype, shape, data = output_tensor(answers)
    output: dict[str, Any] = {"name": OUTPUT, "datatype": datatype, "shape": shape, "data": data}
    if parameters := output_parameters(answers):
        output["parameters"] = parameters
    body: dict[str, Any] = {"model_name": application, "model_version": version, "outputs": [output]}
    return msgspec.json.encode({**body, "id": request_id} if request_id else body)


def output_parameters(answers: Sequence[Answer]) -> dict[str, int | str]:
    """What is said of an output beside its elements: how many of them are defaults, and why the first one is."""
    reasons = [answer.explanation for answer in answers if answer.explanation]
    return {"defaults": len(reasons), "default_explanation": reasons[0]} if reasons else {}


def output_tensor(answers: Sequence[Answer]) -> tuple[str, list[int], list[Any]]:
    """Datatype, shape and elements of the outputs as one tensor; what is not numbers of one shape goes as text."""
    values = [msgspec.json.decode(answer.output) for answer in answers]
    rows = [value if isinstance(value, list) else [value] for value in values]
    widths = {len(row) for row in rows}
    elements = [element for row in rows for element in row]
    kinds = {type(element) for element in elements}
    if len(widths) == 1 and kinds and kinds <= {int, float, bool}:
        nested = any(isinstance(value, list) for value in values)
        shape = [len(values), widths.pop()] if nested else [len(values)]
        if kinds == {bool}:
            return "BOOL", shape, elements
        if kinds == {int}:
            return "INT64", shape, elements
        return "FP64", shape, [float(element) for element in elements]
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return "BYTES", [len(values)], texts


def application_named(predictions: Predictions, name: str) -> ServedApplication:
    """The application that is served under a name. Raises LepaError(not_found)."""
    served = predictions.applications.get(name)
    if served is None:
        raise not_found(f"there is no application {name}")
    return served


def versions_of(served: ServedApplication) -> list[str]:
    """The versions of the models that may answer."""
    return [key.partition(":")[2] for key in served.arms]


def is_ready(predictions: Predictions, served: ServedApplication) -> bool:
    """Whether every model that may answer has a replica."""
    return bool(served.arms) and all(predictions.models[key].batcher.replica_count for key in served.arms)


def metadata(served: ServedApplication) -> dict[str, Any]:
    """What the protocol tells of an application."""
    datatype = _NATURAL[served.input_type.name]
    shape = [-1] if datatype == "BYTES" else [-1, -1]
    return {
        "name": served.name,
        "versions": versions_of(served),
        "platform": PLATFORM,
        "inputs": [{"name": "input", "datatype": datatype, "shape": shape}],
        "outputs": [{"name": OUTPUT, "datatype": "BYTES", "shape": [-1]}],
    }


def server_metadata(version: str) -> dict[str, Any]:
    """What the protocol tells of the server."""
    return {"name": PLATFORM, "version": version, "extensions": ["binary_tensor_data"]}
