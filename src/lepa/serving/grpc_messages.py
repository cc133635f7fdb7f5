"""The messages of the Open Inference Protocol, version 2, over gRPC, described in a table: no generated code.

Names and numbers are those of the protocol's public definition (package `inference`, service `GRPCInferenceService`);
fields that lepa does not use are left out, and readers of protobuf skip what they do not know. `$` before a type is one
of our messages, `[]` means repeated, `{}` a map from strings.
"""

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_NAMED = "name=1 string, version=2 string"

MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live=1 bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready=1 bool",
    "ModelReadyRequest": _NAMED,
    "ModelReadyResponse": "ready=1 bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": f"{_NAMED}, extensions=3 []string",
    "ModelMetadataRequest": _NAMED,
    "ModelMetadataResponse": "name=1 string, versions=2 []string, platform=3 string, "
    "inputs=4 []$ModelMetadataResponse.TensorMetadata, outputs=5 []$ModelMetadataResponse.TensorMetadata",
    "ModelMetadataResponse.TensorMetadata": "name=1 string, datatype=2 string, shape=3 []int64",
    "InferParameter": "bool_param=1 bool, int64_param=2 int64, string_param=3 string",
    "InferTensorContents": "bool_contents=1 []bool, int_contents=2 []int32, int64_contents=3 []int64, "
    "uint_contents=4 []uint32, uint64_contents=5 []uint64, fp32_contents=6 []float, fp64_contents=7 []double, "
    "bytes_contents=8 []bytes",
    "ModelInferRequest": "model_name=1 string, model_version=2 string, id=3 string, "
    "inputs=5 []$ModelInferRequest.InferInputTensor, raw_input_contents=7 []bytes",
    "ModelInferRequest.InferInputTensor": "name=1 string, datatype=2 string, shape=3 []int64, "
    "contents=5 $InferTensorContents",
    "ModelInferResponse": "model_name=1 string, model_version=2 string, id=3 string, "
    "outputs=5 []$ModelInferResponse.InferOutputTensor, raw_output_contents=6 []bytes",
    "ModelInferResponse.InferOutputTensor": "name=1 string, datatype=2 string, shape=3 []int64, "
    "parameters=4 {}$InferParameter, contents=5 $InferTensorContents",
}
ONEOFS = {"InferParameter": "parameter_choice"}
"""Messages whose fields exclude each other."""

_Field = descriptor_pb2.FieldDescriptorProto


class Method(NamedTuple):
    """One call of the service."""

    request: str
    response: str


METHODS = {
    name: Method(f"{name}Request", f"{name}Response")
    for name in ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
}


def _describe(message: Any, name: str, fields: str) -> None:
    message.name = name.rpartition(".")[2]
    oneof = ONEOFS.get(name)
    if oneof:
        message.oneof_decl.add(name=oneof)
    for text in filter(None, fields.split(", ")):
        left, kind = text.split(" ")
        field_name, number = left.split("=")
        field = message.field.add(name=field_name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if oneof:
            field.oneof_index = 0
        if kind.startswith("{}"):
            entry = "".join(part.title() for part in field_name.split("_")) + "Entry"
            _describe(message.nested_type.add(), f"{name}.{entry}", f"key=1 string, value=2 {kind[2:]}")
            message.nested_type[-1].options.map_entry = True
            kind = f"[]${name}.{entry}"
        if kind.startswith("[]"):
            field.label = _Field.LABEL_REPEATED
            kind = kind[2:]
        if kind.startswith("$"):
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{kind[1:]}"
        else:
            field.type = getattr(_Field, f"TYPE_{kind.upper()}")


def _classes() -> dict[str, Any]:
    """The message classes by name, in a pool of their own: another library may have defined the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="lepa/inference.proto", package=PACKAGE, syntax="proto3")
    described: dict[str, Any] = {}
    for name, fields in MESSAGES.items():
        outer, _, _ = name.rpartition(".")
        described[name] = described[outer].nested_type.add() if outer else file.message_type.add()
        _describe(described[name], name, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{PACKAGE}.{name}")) for name in MESSAGES}


CLASSES = _classes()
