"""How many predictions a second pass through HTTP, frontend, RPC, model process and back?

Two shared cores hold load generator, frontend and model process. Each figure stands beside mosec, which was the fastest
of the peers for most of these questions, serving the same function under the same load in the same run; where it cannot
be installed, beside a bare uvloop + httptools server that answers a constant. The random forest has 100 trees.

    serving.noop.http64     no-op model, 64 callers               to reach >= 30,000/s and 1.2 x
    serving.logreg.http16   logistic regression, 16 callers       to reach >= 12,000/s
    serving.rf.http16       random forest, 16 callers             to reach >= 2,500/s
    serving.rf.http64       random forest, 64 callers             to reach >= 5,500/s
    serving.sleep5.http16   5 ms a batch, 16 callers              to reach >= 2,400/s
    each with .p99_ms       the slowest of a hundred answers      to reach: lower than the peer's
    serving.rpc_noop        RPC and batching alone, no HTTP, every answer within 20 ms    to reach >= 48,000/s
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import uvloop

from benchmarks._http_load import measure
from benchmarks.harness import Figure
from benchmarks.peers import environment, install
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager
from lepa.serving.frontend import FrontendSettings, QueryFrontend
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_links, add_model
from lepa.serving.served import Answer

ROUNDS = 3
SECONDS = 2.0
SLO_MICROS = 500_000
RPC_SLO_MICROS = 20_000
RPC_OUTSTANDING = 256
RPC_SECONDS = 3.0
START_TIMEOUT_S = 60.0


class Question(NamedTuple):
    """One row of the table. width: numbers in an input."""

    model: str
    callers: int
    width: int

    @property
    def name(self) -> str:
        return f"serving.{self.model}.http{self.callers}"


QUESTIONS = (
    Question("noop", 64, 1),
    Question("logreg", 16, 64),
    Question("rf", 16, 64),
    Question("rf", 64, 64),
    Question("sleep5", 16, 1),
)
FIGURES = (*(q.name for q in QUESTIONS), *(f"{q.name}.p99_ms" for q in QUESTIONS), "serving.rpc_noop")


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as text:
        folder = Path(text)
        models = save_models(folder)
        mosec = install("mosec", folder / "mosec")
        figures = []
        with cluster(folder) as connection:
            for name, directory in models.items():
                connection.register_application(name, "doubles", "-1", SLO_MICROS)
                connection.build_and_deploy_model(name, 1, "doubles", directory)
                connection.link_model_to_app(name, name)
            for question in QUESTIONS:
                with _peer(mosec, models[question.model]) as (peer, port, path):
                    figures += _figures(connection, question, peer, port, path)
        return [*figures, _rpc_noop(models["noop"])]


def _figures(connection: ClipperConnection, question: Question, peer: str, port: int, path: str) -> list[Figure]:
    query_port = connection.cm.get_query_addr().port
    wait_for_model(connection, question)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        load = (question.callers, SECONDS, question.width)
        ours.append(measure(query_port, f"/{question.model}/predict", *load))
        theirs.append(measure(port, path, *load))
    if any(result["errors"] or result["defaults"] for result in ours):
        raise RuntimeError(f"{question.name}: some answers were errors or defaults: {ours}")
    return [
        Figure(question.name, _median(ours, "rate"), "1/s", _median(theirs, "rate"), peer),
        Figure(f"{question.name}.p99_ms", _median(ours, "p99_ms"), "ms", _median(theirs, "p99_ms"), peer),
    ]


def _median(results: list[dict[str, Any]], key: str) -> float:
    return median(result[key] for result in results)


# Models


def save_models(folder: Path) -> dict[str, Path]:
    """Deployable directories, by name."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    digits = load_digits()

    def noop(inputs: Any) -> Any:
        return [1.0] * len(inputs)

    def sleep5(inputs: Any) -> Any:
        import time

        time.sleep(0.005)
        return [1.0] * len(inputs)

    made = {
        "noop": noop,
        "sleep5": sleep5,
        "logreg": LogisticRegression(max_iter=200).fit(digits.data, digits.target),
        "rf": RandomForestClassifier(100, random_state=1).fit(digits.data, digits.target),
    }
    for name, model in made.items():
        deployers.save_model(folder / name, "doubles", model)
    return {name: folder / name for name in made}


def wait_for_model(connection: ClipperConnection, question: Question) -> None:
    """Return when the query frontend has read about the model."""
    for _ in range(200):
        if not connection.predict(question.model, [0.0] * question.width)["default"]:
            return
        time.sleep(0.01)
    raise RuntimeError(f"{question.model} gave only defaults")


# Servers


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[ClipperConnection]:
    manager = LocalContainerManager("bench", folder, query_port=0, management_port=0, rpc_port=0)
    connection = ClipperConnection(manager)
    connection.start_clipper()
    try:
        yield connection
    finally:
        connection.stop_all()


@contextlib.contextmanager
def _peer(python: Path | None, model: Path) -> Iterator[tuple[str, int, str]]:
    """Name, port and path of what a figure stands beside."""
    with _mosec(python, model) if python else _echo() as found:
        yield found


@contextlib.contextmanager
def _mosec(python: Path, model: Path) -> Iterator[tuple[str, int, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Path(__file__).parent / "peers" / "mosec_server.py"
    command = [python, server, "--address", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    variables = {**environment(), "MODEL_DIRECTORY": str(model)}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=model)
    try:
        _wait_for_port(port)
        yield "mosec", port, "/inference"
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


def _wait_for_port(port: int) -> None:
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            time.sleep(1.0)  # The front listens before its workers have loaded the model.
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


@contextlib.contextmanager
def _echo() -> Iterator[tuple[str, int, str]]:
    command = [sys.executable, "-m", "benchmarks._http_echo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield "bare uvloop server", int(process.stdout.readline()), "/"
        finally:
            process.terminate()


# RPC and batching alone


def _rpc_noop(model: Path) -> Figure:
    rate = median(uvloop.run(_drive(model)) for _ in range(ROUNDS))
    return Figure("serving.rpc_noop", rate, "1/s")


async def _drive(model: Path) -> float:
    """Answers a second when a frontend without HTTP always has RPC_OUTSTANDING queries under way."""
    settings = FrontendSettings(port=0, rpc_port=0, cache_bytes=0)
    async with QueryFrontend(settings, None, SystemClock(), SystemRandom()) as frontend:
        registry = add_application(Registry(), Application("noop", "doubles", "-1", RPC_SLO_MICROS))
        registry = add_model(registry, ModelVersion("noop", "1", "doubles"))
        frontend.configure(add_links(registry, "noop", ("noop",)))
        variables = {
            **os.environ,
            "CLIPPER_MODEL_NAME": "noop",
            "CLIPPER_MODEL_VERSION": "1",
            "CLIPPER_MODEL_PATH": str(model),
            "CLIPPER_PORT": str(frontend.replicas.port),
        }
        command = [sys.executable, "-m", "lepa.serving.model_container"]
        process = subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL)
        try:
            await asyncio.wait_for(frontend.replicas.changed.wait(), START_TIMEOUT_S)
            return await _answers_a_second(frontend)
        finally:
            process.terminate()
            process.wait(START_TIMEOUT_S)


async def _answers_a_second(frontend: QueryFrontend) -> float:
    served = frontend.predictions.applications["noop"]
    counted = [0, 0]
    running = True

    def answered(data: bytes, answer: Answer) -> None:
        counted[bool(answer.explanation)] += 1
        if running:
            frontend.ask(served, data, "", partial(answered, data))

    for number in range(RPC_OUTSTANDING):
        data = number.to_bytes(8, "little")
        frontend.ask(served, data, "", partial(answered, data))
    await asyncio.sleep(RPC_SECONDS / 4)
    counted[:] = [0, 0]
    start = time.perf_counter()
    await asyncio.sleep(RPC_SECONDS)
    elapsed = time.perf_counter() - start
    running = False
    answers, late = counted
    if late > answers / 100:
        raise RuntimeError(f"{late} of {answers} answers were not within {RPC_SLO_MICROS} microseconds")
    return answers / elapsed
