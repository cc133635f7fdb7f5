"""lepa.serving.frontend and lepa.serving.http_connection, with a model container in a thread."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lepa.kit.sources import SeededRandom, SystemClock
from lepa.model.errors import LepaError
from lepa.serving import http_connection as module
from lepa.serving.addresses import Address
from lepa.serving.frameworks import PredictFunction
from lepa.serving.frontend import FrontendSettings, QueryFrontend, main, management_finder
from lepa.serving.model_container import ContainerSettings, ModelContainer
from lepa.serving.query import LATE
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_links, add_model

PROMETHEUS = "/metrics?format=prometheus"


def registry() -> Registry:
    found = add_application(Registry(), Application("app", "strings", "none", 1_000_000))
    found = add_application(found, Application("my app", "doubles", "0", 1_000_000))
    return add_links(add_model(found, ModelVersion("m", "1", "strings")), "app", ("m",))


@pytest.fixture
async def frontend() -> AsyncIterator[QueryFrontend]:
    settings = FrontendSettings(port=0, rpc_port=0)
    async with QueryFrontend(settings, None, SystemClock(), SeededRandom(1)) as made:
        made.configure(registry())
        async with joined(made, lambda inputs: [i[::-1] for i in inputs]):
            yield made


@asynccontextmanager
async def joined(frontend: QueryFrontend, function: PredictFunction) -> AsyncIterator[None]:
    """A container of model m:1 is connected."""
    address = Address("127.0.0.1", frontend.replicas.port)
    container = ModelContainer(ContainerSettings("m", "1", Path("/model"), "strings", address), function)
    thread = threading.Thread(target=container.run)
    thread.start()
    await asyncio.wait_for(frontend.replicas.changed.wait(), 5)
    try:
        yield
    finally:
        container.stop()
        await asyncio.to_thread(thread.join)


class Caller:
    """One HTTP connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def connect(frontend: QueryFrontend) -> "Caller":
        return Caller(*await asyncio.open_connection("127.0.0.1", frontend.port))

    def send(self, method: str, path: str, body: bytes = b"", headers: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> tuple[int, Any, str]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)).decode()
        length = int(head.split("Content-Length: ")[1].split("\r\n")[0])
        body = (await self.reader.readexactly(length)).decode()
        try:
            return int(head.split()[1]), json.loads(body), head
        except ValueError:
            return int(head.split()[1]), body, head

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        self.send(method, path, body)
        return (await self.answer())[:2]


async def ask(frontend: QueryFrontend, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    caller = await Caller.connect(frontend)
    answer = await caller.ask(method, path, body)
    caller.writer.close()
    return answer


async def test_single_and_batch_predictions(frontend: QueryFrontend) -> None:
    assert await ask(frontend, "POST", "/app/predict", b'{"input":"abc"}') == (
        200,
        {"query_id": 0, "output": "cba", "default": False},
    )
    status, found = await ask(frontend, "POST", "/app/predict/?x=1", b'{"input_batch":["12","ab"]}')
    assert (status, [one["output"] for one in found["batch_predictions"]]) == (200, [21, "ba"])
    status, found = await ask(frontend, "POST", "/app/predict", b'{"input_batch":["12"]}')
    assert found["output"] == 21
    assert await ask(frontend, "POST", "/app/predict", b'{"input_batch":[]}') == (200, {"batch_predictions": []})


async def test_without_a_model_the_default_is_explained(frontend: QueryFrontend) -> None:
    status, found = await ask(frontend, "POST", "/my%20app/predict", b'{"input":[1]}')
    assert status == 200
    assert found == {
        "query_id": 0,
        "output": 0,
        "default": True,
        "default_explanation": "No connected models found for query",
    }


async def test_defaults_of_a_model_that_is_too_slow_are_marked_in_each_answer_and_counted() -> None:
    """B260, B261."""
    registered = add_application(Registry(), Application("app", "strings", "none", 1_000))
    registered = add_links(add_model(registered, ModelVersion("m", "1", "strings")), "app", ("m",))
    asked, done = threading.Event(), threading.Event()

    def slow(inputs: Any) -> Any:
        asked.set()
        done.wait(10)
        return inputs

    async with (
        QueryFrontend(FrontendSettings(port=0, rpc_port=0), None, SystemClock(), SeededRandom(1)) as made,
        joined(made, slow),
    ):
        made.configure(registered)
        try:
            late = {"output": "none", "default": True, "default_explanation": LATE}
            status, found = await ask(made, "POST", "/app/predict", b'{"input":"a"}')
            assert (status, found) == (200, {"query_id": 0, **late})
            assert await asyncio.to_thread(asked.wait, 5)
            status, found = await ask(made, "POST", "/app/predict", b'{"input_batch":["b","c"]}')
            assert (status, [one.items() >= late.items() for one in found["batch_predictions"]]) == (200, [True] * 2)
            ratios = (await ask(made, "GET", "/metrics"))[1]["ratio_counters"]
            assert {"app:app:default_prediction_ratio": {"ratio": "1.0"}} in ratios
            top = (await ask(made, "GET", "/top"))[1]
            assert (top["applications"][0]["predictions"], top["applications"][0]["defaults"]) == (3, 3)
            assert 'lepa_serving_defaults_total{app="app"} 3' in (await ask(made, "GET", PROMETHEUS))[1]
        finally:
            done.set()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("POST", "/app/predict", b"{", 400, "Json error"),
        ("POST", "/app/predict", b'{"input":"a","version":"9"}', 400, "Query processing error"),
        ("POST", "/app/update", b"{}", 400, "Json error"),
        ("POST", "/x/predict", b"{}", 404, "Not found"),
        ("GET", "/app/predict", b"", 405, "Method not allowed"),
        ("POST", "/metrics", b"", 405, "Method not allowed"),
    ],
)
async def test_errors_say_what_is_wrong(
    frontend: QueryFrontend, method: str, path: str, body: bytes, status: int, name: str
) -> None:
    found_status, found = await ask(frontend, method, path, body)
    assert (found_status, found["error"]) == (status, name)
    assert found["cause"]


async def test_metrics_health_and_feedback(frontend: QueryFrontend) -> None:
    assert await ask(frontend, "GET", "/health") == (200, {"healthy": True})
    assert (await ask(frontend, "POST", "/app/update", b'{"uid":1,"input":"a","label":1.0}'))[1] == (
        "Feedback received? 1"
    )
    assert list((await ask(frontend, "GET", "/metrics"))[1]) == ["counters", "ratio_counters", "meters", "histograms"]


async def test_what_is_counted_is_told_to_prometheus_and_to_top(frontend: QueryFrontend) -> None:
    await ask(frontend, "POST", "/app/predict", b'{"input":"abc"}')
    caller = await Caller.connect(frontend)
    caller.send("GET", "/metrics?format=prometheus")
    status, text, head = await caller.answer()
    caller.writer.close()
    assert (status, "Content-Type: text/plain; version=0.0.4" in head) == (200, True)
    assert 'lepa_serving_batches_total{model="m",version="1",replica="0",reason="full"} 1' in text
    status, found = await ask(frontend, "GET", "/top")
    assert (status, found["models"][0]["predictions"]) == (200, 1)


async def test_old_clients_hear_of_errors_in_clippers_words(frontend: QueryFrontend) -> None:
    frontend.compat = True
    status, found = await ask(frontend, "POST", "/app/predict", b"{}")
    assert (status, found["error"]) == (400, "Query processing error")
    assert found["cause"] == "JSON object does not have required keys input or input_batch"
    status, found = await ask(frontend, "POST", "/app/predict", b'{"input":1}')
    assert found["cause"].startswith("Error parsing JSON: Type mismatch! JSON key input expected type Stringbut found")
    status, found = await ask(frontend, "POST", "/app/update", b'{"input":"a","label":1}')
    assert status == 400
    assert found.startswith("Error parsing JSON: JSON object does not have required key: uid. Expected JSON schema:")


async def test_without_a_registry_a_frontend_is_not_healthy_and_asks_to_try_again() -> None:
    settings = FrontendSettings(port=0, rpc_port=0)
    async with QueryFrontend(settings, None, SystemClock(), SeededRandom(1)) as made:
        assert await ask(made, "GET", "/health") == (503, {"healthy": False})
        assert (await ask(made, "POST", "/app/predict", b"{}"))[0] == 503


async def test_pipelined_requests_are_answered_in_order(frontend: QueryFrontend) -> None:
    caller = await Caller.connect(frontend)
    for number in range(3 * module.PIPELINED_MAX):
        caller.send("POST", "/app/predict", b'{"input":"n%03d"}' % number)
    outputs = [(await caller.answer())[1]["output"] for _ in range(3 * module.PIPELINED_MAX)]
    assert outputs == [f"n{number:03d}"[::-1] for number in range(3 * module.PIPELINED_MAX)]
    caller.writer.close()


async def test_a_caller_that_wants_to_close_is_answered_first(frontend: QueryFrontend) -> None:
    caller = await Caller.connect(frontend)
    caller.send("POST", "/app/predict", b'{"input":"ab"}', "Connection: close\r\n")
    status, found, head = await caller.answer()
    assert (status, found["output"]) == (200, "ba")
    assert "Connection: close" in head
    assert await caller.reader.read() == b""
    caller.writer.close()


async def test_what_is_not_http_and_bodies_that_are_too_large_are_refused(
    frontend: QueryFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await Caller.connect(frontend)
    caller.writer.write(b"junk\r\n\r\n")
    assert (await caller.answer())[0] == 400
    assert await caller.reader.read() == b""
    caller.writer.close()
    assert (await ask(frontend, "POST", "/" + "x" * module.URL_BYTES_MAX, b"{}"))[0] == 400
    large = b'{"input":"%b"}' % (b"x" * 3_000_000)
    assert (await ask(frontend, "POST", "/app/predict", large))[1]["output"] == "x" * 3_000_000
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 1_000_000)
    assert (await ask(frontend, "POST", "/app/predict", large))[0] == 413


async def test_a_caller_that_leaves_is_forgotten(frontend: QueryFrontend) -> None:
    caller = await Caller.connect(frontend)
    caller.send("POST", "/app/predict", b'{"input":"ab"}')
    caller.writer.close()
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not frontend.connections and not frontend.predictions.open_count:
            return
    raise AssertionError("the connection is still known")


async def test_idle_connections_are_closed_and_busy_ones_are_not(frontend: QueryFrontend) -> None:
    caller = await Caller.connect(frontend)
    await caller.ask("GET", "/health")
    (connection,) = frontend.connections
    connection.close_if_idle_since(asyncio.get_running_loop().time() - 60)
    assert frontend.connections
    connection.close_if_idle_since(asyncio.get_running_loop().time() + 60)
    assert await caller.reader.read() == b""
    caller.writer.close()


async def test_connections_are_bounded(frontend: QueryFrontend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 0)
    caller = await Caller.connect(frontend)
    assert await caller.reader.read() == b""
    caller.writer.close()


async def test_the_management_frontend_is_found_by_address_or_by_service() -> None:
    assert await management_finder("a:1", "")() == Address("a", 1)
    assert await management_finder("service:x", "static://b:2")() == Address("b", 2)
    with pytest.raises(LepaError):
        management_finder("service:x", "")


def test_a_frontend_that_cannot_start_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--management", "nonsense"]) == 1
    assert "expected host:port" in capsys.readouterr().err


def test_deadlines_that_are_due_are_kept_on_uvloop_too() -> None:
    """uvloop's handle of a timer that is due at once cannot be asked when it is."""

    async def ask_and_arm() -> tuple[int, Any]:
        async with QueryFrontend(FrontendSettings(port=0, rpc_port=0), None, SystemClock(), SeededRandom(1)) as made:
            made.configure(registry())
            async with joined(made, lambda inputs: time.sleep(0.2) or list(inputs)):
                caller = await Caller.connect(made)
                caller.send("POST", "/app/predict", b'{"input":"a"}')
                for _ in range(5000):
                    if deadline := made.predictions.next_deadline():
                        break
                    await asyncio.sleep(0.001)
                assert deadline is not None
                for _ in range(2):
                    made._arm(deadline + 0.001)  # as when it passed while the frontend was at work
                found = await caller.answer()
                caller.writer.close()
                return found[:2]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status, answer = runner.run(ask_and_arm())
    assert (status, answer["output"]) == (200, "a")
