"""How many predictions a second pass through HTTP, frontend, RPC, model process and back?

Two shared cores hold load generator, frontend and model process. Each figure stands beside a bare uvloop + httptools
server that answers a constant, loaded by the same generator in the same run.

    serving.noop.http1     no-op model,  1 caller                        expected >= 2,500/s
    serving.noop.http16    no-op model, 16 callers                       expected >= 20,000/s
    serving.noop.http64    no-op model, 64 callers (to reach: 8,000)     expected >= 35,000/s
    serving.logreg.http16  logistic regression on 64 numbers, 16 callers expected >= 10,000/s
    each with .p99_ms      the slowest of a hundred answers; at 64 callers expected <= 6 ms
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.harness import Figure
from benchmarks.http_load import measure
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager
from lepa.serving.deployers import create_endpoint

FIGURES = (
    "serving.noop.http1",
    "serving.noop.http16",
    "serving.noop.http64",
    "serving.logreg.http16",
    "serving.noop.http1.p99_ms",
    "serving.noop.http16.p99_ms",
    "serving.noop.http64.p99_ms",
    "serving.logreg.http16.p99_ms",
)
ROUNDS = 3
SECONDS = 2.0
SLO_MICROS = 500_000


def run() -> list[Figure]:
    with _echo() as echo_port, _cluster() as connection:
        port = connection.cm.get_query_addr().port
        create_endpoint(connection, "noop", "doubles", _noop, slo_micros=SLO_MICROS)
        create_endpoint(connection, "logreg", "doubles", _logistic_regression(), slo_micros=SLO_MICROS)
        _wait_for_model(connection, "noop", 1)
        _wait_for_model(connection, "logreg", 64)
        figures = []
        for name, callers, width in (("noop", 1, 1), ("noop", 16, 1), ("noop", 64, 1), ("logreg", 16, 64)):
            figures += _figures(f"serving.{name}.http{callers}", port, echo_port, f"/{name}/predict", callers, width)
        return figures


def _figures(name: str, port: int, echo_port: int, path: str, callers: int, width: int) -> list[Figure]:
    ours, bare = [], []
    for _ in range(ROUNDS):
        ours.append(measure(port, path, callers, SECONDS, width))
        bare.append(measure(echo_port, path, callers, SECONDS, width))
    if any(result["errors"] or result["defaults"] for result in ours):
        raise RuntimeError(f"{name}: some answers were errors or defaults: {ours}")
    return [
        Figure(name, _median(ours, "rate"), "1/s", _median(bare, "rate"), "bare uvloop server"),
        Figure(f"{name}.p99_ms", _median(ours, "p99_ms"), "ms", _median(bare, "p99_ms"), "bare uvloop server"),
    ]


def _median(results: list[dict[str, Any]], key: str) -> float:
    return median(result[key] for result in results)


def _noop(inputs: Any) -> list[str]:
    return ["1"] * len(inputs)


def _logistic_regression() -> Any:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    digits = load_digits()
    return LogisticRegression(max_iter=200).fit(digits.data, digits.target)


def _wait_for_model(connection: ClipperConnection, name: str, width: int) -> None:
    """Return when the query frontend has read about the model."""
    for _ in range(100):
        if not connection.predict(name, [0.0] * width)["default"]:
            return
    raise RuntimeError(f"{name} gave only defaults")


@contextlib.contextmanager
def _cluster() -> Iterator[ClipperConnection]:
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as directory:
        manager = LocalContainerManager("bench", directory, query_port=0, management_port=0, rpc_port=0)
        connection = ClipperConnection(manager)
        connection.start_clipper()
        try:
            yield connection
        finally:
            connection.stop_all()


@contextlib.contextmanager
def _echo() -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.http_echo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()
