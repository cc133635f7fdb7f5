"""The Open Inference Protocol, version 2, over gRPC, on a port of its own: the extra `grpc` has to be installed.

A request becomes queries like any other: same deadlines, same batches, same cache. Tensors are taken as raw contents or
as typed ones, and answered in the way they came. Errors are statuses of gRPC with lepa's sentence as their details.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc

from lepa import __version__
from lepa.model.errors import LepaError, invalid
from lepa.serving import inference_protocol
from lepa.serving.grpc_messages import CLASSES, METHODS, SERVICE
from lepa.serving.http_connection import BODY_BYTES_MAX
from lepa.serving.inference_protocol import InferRequest, Tensor
from lepa.serving.open_doors import Frontend
from lepa.serving.served import Answer, ServedApplication

STOP_GRACE_S = 1.0
CALLS_MAX = 10_000
"""Calls at once; more are refused with RESOURCE_EXHAUSTED."""

_STATUS = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "not_found": grpc.StatusCode.NOT_FOUND,
    "unsupported": grpc.StatusCode.UNIMPLEMENTED,
    "timeout": grpc.StatusCode.UNAVAILABLE,
}
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}

Handler = Callable[[Any], Awaitable[Any]]


class GrpcDoor:
    """See the module; an async context manager. port: 0 is any free one, and known once it listens."""

    def __init__(self, frontend: Frontend, host: str, port: int) -> None:
        self._frontend = frontend
        self._host = host
        self.port = port

    async def __aenter__(self) -> Self:
        limits = [("grpc.max_receive_message_length", BODY_BYTES_MAX), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=limits, maximum_concurrent_rpcs=CALLS_MAX)
        handlers = {name: self._handler(name) for name in METHODS}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            self.port = self._server.add_insecure_port(f"{host}:{self.port}")
        except RuntimeError as error:
            raise OSError(f"port {self.port} for gRPC: {error}") from error
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._server.stop(STOP_GRACE_S)

    def _handler(self, name: str) -> "grpc.RpcMethodHandler[Any, Any]":
        request, response = METHODS[name]
        calls: dict[str, Handler] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
        }
        return grpc.unary_unary_rpc_method_handler(
            partial(_answered, calls[name]),
            request_deserializer=CLASSES[request].FromString,
            response_serializer=CLASSES[response].SerializeToString,
        )

    async def _server_live(self, request: Any) -> Any:
        return CLASSES["ServerLiveResponse"](live=True)

    async def _server_ready(self, request: Any) -> Any:
        return CLASSES["ServerReadyResponse"](ready=self._frontend.configured)

    async def _server_metadata(self, request: Any) -> Any:
        return CLASSES["ServerMetadataResponse"](**inference_protocol.server_metadata(__version__))

    async def _model_ready(self, request: Any) -> Any:
        predictions = self._frontend.predictions
        served = inference_protocol.application_named(predictions, request.name)
        return CLASSES["ModelReadyResponse"](ready=inference_protocol.is_ready(predictions, served))

    async def _model_metadata(self, request: Any) -> Any:
        served = inference_protocol.application_named(self._frontend.predictions, request.name)
        return CLASSES["ModelMetadataResponse"](**inference_protocol.metadata(served))

    async def _model_infer(self, request: Any) -> Any:
        served = inference_protocol.application_named(self._frontend.predictions, request.model_name)
        asked, elements = decode_infer(request)
        inputs = inference_protocol.inputs_of(asked, elements, served.input_type)
        answers = await self._ask(served, inputs, request.model_version)
        version = request.model_version or next(iter(inference_protocol.versions_of(served)), "")
        return encode_infer(request, version, answers)

    async def _ask(self, served: ServedApplication, inputs: list[bytes], version: str) -> list[Answer]:
        """The answers to all inputs; each comes by its deadline."""
        every: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answers: dict[int, Answer] = {}

        def answered(position: int, answer: Answer) -> None:
            answers[position] = answer
            if len(answers) == len(inputs) and not every.done():
                every.set_result(None)

        for position, data in enumerate(inputs):
            self._frontend.ask(served, data, version, partial(answered, position))
        if inputs:
            await every
        return [answers[position] for position in range(len(inputs))]


async def _answered(handler: Handler, request: Any, context: Any) -> Any:
    """What the handler answers, or its error as a status."""
    try:
        return await handler(request)
    except LepaError as error:
        await context.abort(_STATUS.get(error.code, grpc.StatusCode.INTERNAL), error.message)


def decode_infer(request: Any) -> tuple[InferRequest, list[Any]]:
    """The request and the elements of its one tensor, as `inference_protocol` has them. Raises LepaError(invalid)."""
    tensors = [Tensor(each.name, list(each.shape), each.datatype) for each in request.inputs]
    asked = InferRequest(tensors, request.id)
    tensor = inference_protocol.one_tensor(asked)
    if request.raw_input_contents:
        if len(request.raw_input_contents) != 1 or request.inputs[0].HasField("contents"):
            raise invalid(f"{tensor.name} has its elements either in raw_input_contents, once, or in contents")
        elements = inference_protocol.raw_elements(tensor.datatype, memoryview(request.raw_input_contents[0]))
    elif field := _CONTENTS.get(tensor.datatype):
        elements = list(getattr(request.inputs[0].contents, field))
    else:
        raise invalid(f"{tensor.name} has datatype {tensor.datatype}; known are {', '.join(_CONTENTS)}")
    inference_protocol.check_count(tensor, elements)
    return asked, elements


def encode_infer(request: Any, version: str, answers: list[Answer]) -> Any:
    """The response to a request, with raw contents when it came with raw ones."""
    response = CLASSES["ModelInferResponse"](model_name=request.model_name, model_version=version, id=request.id)
    datatype, shape, elements = inference_protocol.output_tensor(answers)
    output = response.outputs.add(name=inference_protocol.OUTPUT, datatype=datatype, shape=shape)
    for name, value in inference_protocol.output_parameters(answers).items():
        setattr(output.parameters[name], "string_param" if isinstance(value, str) else "int64_param", value)
    if request.raw_input_contents:
        response.raw_output_contents.append(inference_protocol.raw_data(datatype, elements))
    else:
        texts = [element.encode() for element in elements] if datatype == "BYTES" else elements
        getattr(output.contents, _CONTENTS[datatype]).extend(texts)
    return response
