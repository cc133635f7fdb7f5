"""lepa.serving.open_doors and lepa.serving.pass_through: a query frontend with a model container and an HTTP server."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serving.test_frontend import Caller, ask

from lepa.kit.sources import SeededRandom, SystemClock
from lepa.serving.addresses import Address
from lepa.serving.autoscale import Autoscale
from lepa.serving.frontend import FrontendSettings, QueryFrontend
from lepa.serving.model_container import ContainerSettings, ModelContainer
from lepa.serving.records import (
    Application,
    ModelVersion,
    Registry,
    add_application,
    add_links,
    add_model,
    set_autoscale,
)


class Server:
    """An HTTP server that speaks OpenAI's API, as far as a test wants: it streams words."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.go_on = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: first\n\n")
        waits = [asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(reader.read())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self.go_on.is_set():
            writer.write(b"data: [DONE]\n\n")
        else:
            self.left.set()
        for wait in waits:
            wait.cancel()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()


def registry(endpoint: str) -> Registry:
    found = Registry()
    for name, kind in (("sum", "doubles"), ("embed", "strings"), ("chat", "strings"), ("none", "strings")):
        found = add_application(found, Application(name, kind, "-1", 1_000_000))
    for name, kind in (("sum", "doubles"), ("embed", "strings")):
        found = add_links(add_model(found, ModelVersion(name, "1", kind)), name, (name,))
    return add_links(add_model(found, ModelVersion("llm", "1", "strings", endpoint=endpoint)), "chat", ("llm",))


@pytest.fixture
async def frontend(server: tuple[Server, int]) -> AsyncIterator[QueryFrontend]:
    settings = FrontendSettings(port=0, rpc_port=0)
    async with QueryFrontend(settings, None, SystemClock(), SeededRandom(1)) as made:
        made.configure(registry(f"127.0.0.1:1,127.0.0.1:{server[1]}"))
        functions: dict[str, Any] = {
            "sum": lambda rows: rows.sum(axis=1),
            "embed": lambda texts: [[len(t), 0.5] for t in texts],
        }
        containers, threads = [], []
        for name, function in functions.items():
            kind = "doubles" if name == "sum" else "strings"
            address = Address("127.0.0.1", made.replicas.port)
            containers.append(ModelContainer(ContainerSettings(name, "1", Path("/m"), kind, address), function))
            threads.append(threading.Thread(target=containers[-1].run, daemon=True))
            threads[-1].start()
        for _ in range(500):
            if len(made.predictions.replicas) == len(functions):
                break
            await asyncio.sleep(0.01)
        yield made
        for container, thread in zip(containers, threads, strict=True):
            container.stop()
            await asyncio.to_thread(thread.join)


async def test_the_inference_protocol_from_readiness_to_outputs(frontend: QueryFrontend) -> None:
    assert (await ask(frontend, "GET", "/v2"))[1]["name"] == "lepa"
    assert (await ask(frontend, "GET", "/v2/health/live"))[0] == 200
    assert (await ask(frontend, "GET", "/v2/health/ready"))[0] == 200
    assert (await ask(frontend, "GET", "/v2/models/sum/ready"))[0] == 200
    assert (await ask(frontend, "GET", "/v2/models/none/ready"))[0] == 503
    assert (await ask(frontend, "GET", "/v2/models/sum"))[1]["versions"] == ["1"]
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP64", "data": [1, 2, 3, 4]}
    body = json.dumps({"id": "9", "inputs": [tensor]}).encode()
    status, found = await ask(frontend, "POST", "/v2/models/sum/infer", body)
    assert (status, found["id"], found["outputs"][0]["data"]) == (200, "9", [3.0, 7.0])
    status, found = await ask(frontend, "POST", "/v2/models/sum/versions/1/infer", body)
    assert (status, found["model_version"]) == (200, "1")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("POST", "/v2/models/nobody/infer", b"{}", 404, "no application nobody"),
        ("POST", "/v2/models/sum/infer", b"{}", 400, "not of the inference protocol"),
        ("GET", "/v2/models/sum/infer", b"", 404, "no GET of infer"),
        ("GET", "/v2/nothing", b"", 404, "has no /v2/nothing"),
    ],
)
async def test_what_the_protocol_does_not_have_is_refused(
    frontend: QueryFrontend, method: str, path: str, body: bytes, status: int, sentence: str
) -> None:
    found_status, found = await ask(frontend, method, path, body)
    assert found_status == status
    assert sentence in found["error"]


async def test_a_header_tells_where_binary_data_begins(frontend: QueryFrontend) -> None:
    caller = await Caller.connect(frontend)
    body = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}'
    header = f"Inference-Header-Content-Length: {len(body)}\r\n"
    caller.send("POST", "/v2/models/sum/infer", body + b"\0\0\x80?", header)
    assert (await caller.answer())[1]["outputs"][0]["data"] == [1.0]
    caller.send("POST", "/v2/models/sum/infer", body, "Inference-Header-Content-Length: 9999\r\n")
    assert (await caller.answer())[0] == 400
    caller.writer.close()


async def test_embeddings_of_an_application_of_strings(frontend: QueryFrontend) -> None:
    assert [m["id"] for m in (await ask(frontend, "GET", "/v1/models"))[1]["data"]] == ["sum", "embed", "chat", "none"]
    status, found = await ask(frontend, "POST", "/v1/embeddings", b'{"model":"embed","input":["ab","c"]}')
    assert (status, [one["embedding"] for one in found["data"]]) == (200, [[2, 0.5], [1, 0.5]])
    for body, wanted, sentence in (
        (b'{"model":"sum","input":"a"}', 400, "application sum takes doubles"),
        (b'{"model":"none","input":"a"}', 503, "No connected models"),
        (b'{"model":"nobody","input":"a"}', 404, "no application nobody"),
    ):
        status, found = await ask(frontend, "POST", "/v1/embeddings", body)
        assert (status, sentence in found["error"]["message"]) == (wanted, True), found
    status, found = await ask(frontend, "POST", "/v1/chat/completions", b'{"model":"embed","messages":[]}')
    assert (status, "has no endpoint" in found["error"]["message"]) == (400, True)
    assert (await ask(frontend, "GET", "/v1/chat/completions"))[0] == 404


async def row_of_the_llm(frontend: QueryFrontend) -> Any:
    models = (await ask(frontend, "GET", "/top"))[1]["models"]
    return next(row for row in models if row["model"] == "llm")


async def test_a_request_waits_for_the_first_replica_of_a_model_that_has_gone_to_zero(
    frontend: QueryFrontend, server: tuple[Server, int]
) -> None:
    found = registry("127.0.0.1:1")
    frontend.configure(set_autoscale(found, "llm", Autoscale(replicas_min=0)))
    caller = await Caller.connect(frontend)
    caller.send("POST", "/v1/chat/completions", b'{"model":"chat"}')
    await asyncio.sleep(0.05)
    assert frontend.predictions.models["llm:1"].streams.open == 1
    frontend._doors._pass_through._addresses = elsewhere(server[1])  # type: ignore[method-assign]
    await asyncio.wait_for(caller.reader.readuntil(b"first\n\n"), 5)
    caller.writer.close()
    await asyncio.wait_for(server[0].left.wait(), 5)


def elsewhere(port: int) -> Any:
    async def addresses(endpoint: str) -> list[Address]:
        return [Address("127.0.0.1", port)]

    return addresses


async def test_a_model_with_an_endpoint_streams_through(frontend: QueryFrontend, server: tuple[Server, int]) -> None:
    caller = await Caller.connect(frontend)
    caller.send(
        "POST", "/v1/chat/completions", b'{"model":"chat","stream":true}', "Authorization: Bearer x\r\nX-A: 1\r\n"
    )
    assert b"text/event-stream" in await asyncio.wait_for(caller.reader.readuntil(b"\r\n\r\n"), 5)
    assert await caller.reader.readuntil(b"\n\n") == b"data: first\n\n"
    assert (await row_of_the_llm(frontend))["streams"] == 1
    server[0].go_on.set()
    assert await asyncio.wait_for(caller.reader.read(), 5) == b"data: [DONE]\n\n"
    row = await row_of_the_llm(frontend)
    assert (row["streams"], row["streams_begun"]) == (0, 1)
    assert row["streams_s"] > 0
    assert (await row_of_the_llm(frontend))["streams_s"] == row["streams_s"]
    caller.writer.close()
    (request,) = server[0].requests
    assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"authorization: Bearer x" in request
    assert b"x-a" not in request
    assert request.endswith(b'{"model":"chat","stream":true}')


async def test_a_caller_that_leaves_ends_the_stream(frontend: QueryFrontend, server: tuple[Server, int]) -> None:
    caller = await Caller.connect(frontend)
    caller.send("POST", "/v1/chat/completions", b'{"model":"chat"}')
    await asyncio.wait_for(caller.reader.readuntil(b"first\n\n"), 5)
    caller.writer.close()
    await asyncio.wait_for(server[0].left.wait(), 5)


async def test_an_endpoint_that_nobody_serves_is_said(frontend: QueryFrontend) -> None:
    for endpoint, sentence in (("127.0.0.1:1", "no server of 127.0.0.1:1"), ("service:llm", "no --discovery")):
        frontend.configure(registry(endpoint))
        status, found = await ask(frontend, "POST", "/v1/chat/completions", b'{"model":"chat"}')
        assert status == 502
        assert sentence in found["cause"]
