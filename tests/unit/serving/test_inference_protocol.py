"""lepa.serving.inference_protocol"""

import json
import struct
from typing import Any

import pytest

from lepa.model.errors import LepaError
from lepa.serving.inference_protocol import decode_infer, encode_infer, inputs_of, metadata
from lepa.serving.inputs import INPUT_TYPES
from lepa.serving.metrics import ApplicationMetrics
from lepa.serving.records import Application
from lepa.serving.served import Answer, ServedApplication


def body(
    shape: list[int], datatype: str, data: Any = None, binary: bytes = b"", **more: Any
) -> tuple[bytes, int | None]:
    tensor: dict[str, Any] = {"name": "x", "shape": shape, "datatype": datatype}
    if data is None:
        tensor["parameters"] = {"binary_data_size": len(binary)}
    else:
        tensor["data"] = data
    head = json.dumps({"inputs": [tensor], **more}).encode()
    return head + binary, None if data is not None else len(head)


def inputs(kind: str, *arguments: Any, **more: Any) -> list[bytes]:
    request, elements = decode_infer(*body(*arguments, **more))
    return inputs_of(request, elements, INPUT_TYPES[kind])


@pytest.mark.parametrize(
    ("kind", "shape", "datatype", "data", "binary"),
    [
        ("doubles", [2, 2], "FP64", [1, 2, 3, 4], struct.pack("<4d", 1, 2, 3, 4)),
        ("doubles", [2, 2], "FP64", [[1, 2], [3, 4]], struct.pack("<4d", 1, 2, 3, 4)),
        ("floats", [2, 2, 1], "FP32", [[[1], [2]], [[3], [4]]], struct.pack("<4f", 1, 2, 3, 4)),
        ("integers", [2, 2], "INT32", [1, 2, 3, 4], struct.pack("<4i", 1, 2, 3, 4)),
        ("doubles", [2, 2], "INT64", [1, 2, 3, 4], struct.pack("<4q", 1, 2, 3, 4)),
    ],
)
def test_json_and_binary_tensors_become_the_same_inputs(
    kind: str, shape: list[int], datatype: str, data: Any, binary: bytes
) -> None:
    code = {"doubles": "d", "floats": "f", "integers": "i"}[kind]
    wanted = [struct.pack(f"<2{code}", 1, 2), struct.pack(f"<2{code}", 3, 4)]
    assert inputs(kind, shape, datatype, data) == wanted
    assert inputs(kind, shape, datatype, binary=binary) == wanted


def test_texts_and_bytes() -> None:
    binary = struct.pack("<I", 1) + b"a" + struct.pack("<I", 2) + "é".encode()
    assert inputs("strings", [2], "BYTES", ["a", "é"]) == [b"a", "é".encode()]
    assert inputs("strings", [2, 1], "BYTES", binary=binary) == [b"a", "é".encode()]
    assert inputs("bytes", [1], "BYTES", binary=struct.pack("<I", 2) + b"\xff\0") == [b"\xff\0"]
    assert inputs("doubles", [0, 4], "FP64", []) == []
    assert inputs("doubles", [2, 0], "FP64", []) == [b"", b""]


@pytest.mark.parametrize(
    ("kind", "arguments", "more", "sentence"),
    [
        ("doubles", ([2, 2], "FP64", [1, 2, 3]), {}, "has 4 elements, 3 were sent"),
        ("doubles", ([-1], "FP64", [1]), {}, "counts no queries"),
        ("doubles", ([], "FP64", [1]), {}, "counts no queries"),
        ("doubles", ([10**9], "FP64", [1]), {}, "too many elements"),
        ("doubles", ([2], "FP64", [[1], 2]), {}, "equally deep"),
        ("doubles", ([1], "FP64", ["a"]), {}, "does not fit"),
        ("integers", ([1], "INT64", [2**40]), {}, "does not fit"),
        ("doubles", ([20_000, 1], "FP64", [0] * 20_000), {}, "at most 10000"),
        ("doubles", ([1], "FP16"), {"binary": b"ab"}, "no tensor of FP16"),
        ("doubles", ([1], "FP64"), {"binary": b"abc"}, "no tensor of FP64"),
        ("strings", ([1], "BYTES"), {"binary": b"abc"}, "ends within a text"),
        ("strings", ([1], "BYTES"), {"binary": struct.pack("<I", 1) + b"\xff"}, "not UTF-8"),
        ("strings", ([1], "FP32", [1.0]), {}, "takes a tensor of BYTES"),
        ("strings", ([1, 2], "BYTES", ["a", "b"]), {}, "one text a query"),
        ("doubles", ([1], "FP64", [1]), {"inputs": []}, "takes one input tensor, the request has 0"),
    ],
)
def test_what_is_no_batch_of_inputs_is_refused(kind: str, arguments: Any, more: Any, sentence: str) -> None:
    with pytest.raises(LepaError, match=sentence):
        inputs(kind, *arguments, **more)


def test_what_is_not_of_the_protocol_is_refused() -> None:
    with pytest.raises(LepaError, match="not of the inference protocol"):
        decode_infer(b"{", None)
    head = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","parameters":{"binary_data_size":99}}]}'
    with pytest.raises(LepaError, match="announces 99 bytes of binary data, 0 were sent"):
        decode_infer(head, len(head))


@pytest.mark.parametrize(
    ("outputs", "datatype", "shape", "data"),
    [
        ([b"1", b"2"], "INT64", [2], [1, 2]),
        ([b"1", b"2.5"], "FP64", [2], [1.0, 2.5]),
        ([b"[1.5,2]", b"[3,4]"], "FP64", [2, 2], [1.5, 2.0, 3.0, 4.0]),
        ([b"true"], "BOOL", [1], [True]),
        ([b'"cat"', b"1"], "BYTES", [2], ["cat", "1"]),
        ([b"[1]", b"[1,2]"], "BYTES", [2], ["[1]", "[1,2]"]),
        ([], "BYTES", [0], []),
    ],
)
def test_outputs_become_one_tensor(outputs: list[bytes], datatype: str, shape: list[int], data: list[Any]) -> None:
    answers = [Answer(number, output, "") for number, output in enumerate(outputs)]
    found = json.loads(encode_infer("app", "1", "7", answers))
    assert found["outputs"] == [{"name": "output", "datatype": datatype, "shape": shape, "data": data}]
    assert (found["id"], found["model_name"], found["model_version"]) == ("7", "app", "1")


def test_defaults_are_marked() -> None:
    found = json.loads(encode_infer("app", "1", "", [Answer(0, b"1", ""), Answer(1, b"-1", "too late")]))
    assert found["outputs"][0]["parameters"] == {"defaults": 1, "default_explanation": "too late"}
    assert "id" not in found


def test_metadata() -> None:
    served = ServedApplication(Application("app", "floats", "-1", 1000), ApplicationMetrics(0.0))
    served.set_arms({"m:1": 1.0, "m:2": 1.0}, ())
    found = metadata(served)
    assert found["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, -1]}]
    assert found["versions"] == ["1", "2"]
