"""lepa.serving.grpc_door and lepa.serving.grpc_messages: Triton's own gRPC client and messages are the other side."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from lepa.kit.sources import SeededRandom, SystemClock
from lepa.model.errors import LepaError
from lepa.serving import grpc_messages
from lepa.serving.addresses import Address
from lepa.serving.frontend import FrontendSettings, QueryFrontend
from lepa.serving.grpc_door import decode_infer
from lepa.serving.model_container import ContainerSettings, ModelContainer
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_links, add_model

FUNCTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "sum": ("doubles", lambda rows: rows.sum(axis=1)),
    "pair": ("integers", lambda rows: [[int(row[0]), int(row[0])] for row in rows]),
    "shout": ("strings", lambda texts: [text.upper() for text in texts]),
    "sign": ("floats", lambda rows: ["true" if row[0] > 0 else "false" for row in rows]),
}


def registry() -> Registry:
    found = Registry()
    for name, (kind, _) in FUNCTIONS.items():
        found = add_application(found, Application(name, kind, "-1", 2_000_000))
        found = add_links(add_model(found, ModelVersion(name, "1", kind)), name, (name,))
    return add_application(found, Application("none", "doubles", "-1", 2_000_000))


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    settings = FrontendSettings(port=0, rpc_port=0, grpc_port=0)
    async with QueryFrontend(settings, None, SystemClock(), SeededRandom(1)) as frontend:
        frontend.configure(registry())
        containers, threads = [], []
        for name, (kind, function) in FUNCTIONS.items():
            address = Address("127.0.0.1", frontend.replicas.port)
            containers.append(ModelContainer(ContainerSettings(name, "1", Path("/m"), kind, address), function))
            threads.append(Thread(target=containers[-1].run, daemon=True))
            threads[-1].start()
        for _ in range(500):
            if len(frontend.predictions.replicas) == len(FUNCTIONS):
                break
            await asyncio.sleep(0.01)
        with triton.InferenceServerClient(f"127.0.0.1:{frontend.grpc_port}") as made:
            yield made
        for container, thread in zip(containers, threads, strict=True):
            container.stop()
            await asyncio.to_thread(thread.join)


def tensor(values: Any, datatype: str) -> Any:
    made = triton.InferInput("input", list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


async def infer(client: Any, model: str, values: Any, datatype: str, version: str = "") -> Any:
    return await asyncio.to_thread(client.infer, model, [tensor(values, datatype)], version, request_id="7")


async def test_tritons_client_reads_what_is_served(client: Any) -> None:
    call = asyncio.to_thread
    assert await call(client.is_server_live)
    assert await call(client.is_server_ready)
    assert await call(client.is_model_ready, "sum")
    assert not await call(client.is_model_ready, "none")
    assert (await call(client.get_server_metadata)).name == "lepa"
    found = await call(client.get_model_metadata, "sum")
    assert (found.name, list(found.versions), found.inputs[0].datatype) == ("sum", ["1"], "FP64")


async def test_tritons_client_infers_with_raw_contents(client: Any) -> None:
    found = await infer(client, "sum", np.array([[1.0, 2.0], [3.0, 4.5]]), "FP64", "1")
    assert found.as_numpy("output").tolist() == [3.0, 7.5]
    assert (found.get_response().id, found.get_response().model_version) == ("7", "1")
    found = await infer(client, "pair", np.array([[1], [2], [3]], np.int32), "INT32")
    assert found.as_numpy("output").tolist() == [[1, 1], [2, 2], [3, 3]]
    found = await infer(client, "shout", np.array([b"cat", "très".encode()], np.object_), "BYTES")
    assert found.as_numpy("output").tolist() == [b"CAT", "TRÈS".encode()]
    found = await infer(client, "sign", np.array([[1], [-1]], np.float32), "FP32")
    assert found.as_numpy("output").tolist() == [True, False]
    assert (await infer(client, "sum", np.zeros((0, 2)), "FP64")).as_numpy("output").tolist() == []
    found = await infer(client, "none", np.array([[1.0]]), "FP64")
    parameters = found.get_output("output").parameters
    assert parameters["defaults"].int64_param == 1
    assert parameters["default_explanation"].string_param == "No connected models found for query"


async def test_typed_contents_are_answered_with_typed_contents(client: Any) -> None:
    tensors = {
        "sum": ("FP64", {"fp64_contents": [1, 2]}, [1, 2], "fp64_contents", [3.0]),
        "pair": ("INT32", {"int_contents": [5, 6]}, [2, 1], "int64_contents", [5, 5, 6, 6]),
        "shout": ("BYTES", {"bytes_contents": [b"a"]}, [1], "bytes_contents", [b"A"]),
        "sign": ("FP32", {"fp32_contents": [-1]}, [1, 1], "bool_contents", [False]),
    }
    for model, (datatype, contents, shape, field, wanted) in tensors.items():
        asked = service_pb2.ModelInferRequest(model_name=model)
        asked.inputs.add(name="x", datatype=datatype, shape=shape, contents=contents)
        found = await asyncio.to_thread(client._client_stub.ModelInfer, asked)
        assert list(getattr(found.outputs[0].contents, field)) == wanted
        assert not found.raw_output_contents


async def test_errors_are_statuses_with_a_sentence(client: Any) -> None:
    row = np.array([[1.0]])
    for model, values, datatype, version, status, sentence in (
        ("nobody", row, "FP64", "", "NOT_FOUND", "there is no application nobody"),
        ("sum", row, "FP64", "9", "INVALID_ARGUMENT", "version: 9 does not exist"),
        ("shout", row, "FP64", "", "INVALID_ARGUMENT", "takes a tensor of BYTES"),
    ):
        with pytest.raises(InferenceServerException, match=sentence) as raised:
            await infer(client, model, values, datatype, version)
        assert status in raised.value.status()


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"inputs": []}, "takes one input tensor, the request has 0"),
        ({"inputs": [{"name": "x", "datatype": "FP64", "shape": [2]}]}, "has 2 elements, 0 were sent"),
        ({"inputs": [{"name": "x", "datatype": "FP65", "shape": [0]}]}, "datatype FP65"),
        ({"inputs": [{"name": "x", "datatype": "FP64", "shape": [-1]}]}, "counts no queries"),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1]}], "raw_input_contents": [b"123"]},
            "3 bytes are no tensor of FP64",
        ),
        (
            {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1]}], "raw_input_contents": [b"", b""]},
            "either in raw_input_contents, once",
        ),
    ],
)
def test_what_is_no_tensor_is_refused(request_: dict[str, Any], sentence: str) -> None:
    asked = grpc_messages.CLASSES["ModelInferRequest"](**request_)
    with pytest.raises(LepaError, match=sentence):
        decode_infer(asked)


@pytest.mark.parametrize("name", grpc_messages.MESSAGES)
def test_messages_are_those_of_the_protocol(name: str) -> None:
    theirs: Any = service_pb2
    for part in name.split("."):
        theirs = getattr(theirs, part)
    for field in grpc_messages.CLASSES[name].DESCRIPTOR.fields:
        other = theirs.DESCRIPTOR.fields_by_name[field.name]
        assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated)
        assert (field.message_type and field.message_type.full_name) == (
            other.message_type and other.message_type.full_name
        )
