"""How quick, small and steady is a prediction, beside how many of them there are?

Two shared cores hold load generator, frontend and model process; machines differ, so what can be told by the CPU that a
process used is told so.

    serving.noop.http1.over_model_ms   median of one caller, above the model's own time       to reach <= 0.3
    serving.noop.http64.front_cpu_us   CPU of the frontend for a request, 64 callers          to reach <= 40
    serving.noop.memory_mb             frontend and no-op model, shared pages by halves       to reach <= 60
    serving.noop.first_answer_s        both started from nothing, until the first answer      to reach <= 0.5
    serving.poisson.within_percent     of 0.8 of capacity, arriving by chance, in 50 ms       to reach >= 99
    serving.kill.recovery_s            200/s, a replica of two is killed: until p99 is back   to reach <= 5
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import _http_poisson
from benchmarks._http_load import measure
from benchmarks.harness import Figure
from benchmarks.serving import SLO_MICROS, Question, cluster, save_models, wait_for_model
from lepa.serving.addresses import Address
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import MODEL, QUERY, LocalContainerManager

ROUNDS = 3
SECONDS = 2.0
START_TIMEOUT_S = 30.0
CAPACITY_SHARE = 0.8
POISSON_SLO_MS = 50.0
POISSON_SECONDS = 4.0
KILL_RATE = 200
KILL_WARM_S, KILL_WATCH_S, KILL_WINDOW_S = 2.0, 6.0, 0.25
CALM = 2.0
"""Times the p99 before the kill that count as back to normal."""
CALM_MS = 5.0
"""What counts as normal in any case."""

FIGURES = (
    "serving.noop.http1.over_model_ms",
    "serving.noop.http64.front_cpu_us",
    "serving.noop.memory_mb",
    "serving.noop.first_answer_s",
    "serving.poisson.within_percent",
    "serving.kill.recovery_s",
)


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as text:
        folder = Path(text)
        models = save_models(folder)
        with cluster(folder) as connection:
            for name in ("noop", "rf"):
                connection.register_application(name, "doubles", "-1", SLO_MICROS)
                connection.build_and_deploy_model(name, 1, "doubles", models[name], num_replicas=1)
                connection.link_model_to_app(name, name)
            wait_for_model(connection, Question("noop", 1, 1))
            wait_for_model(connection, Question("rf", 64, 64))
            return [
                *_from_nothing(connection, models["noop"]),
                *_one_and_many(connection),
                _poisson(connection),
                _kill(connection),
            ]


def _one_and_many(connection: ClipperConnection) -> list[Figure]:
    """The no-op model takes no time of its own, so one caller's median is what lies around it."""
    port, front = connection.cm.get_query_addr().port, _process(connection, QUERY)
    one = median(measure(port, "/noop/predict", 1, SECONDS)["p50_ms"] for _ in range(ROUNDS))
    costs = []
    for _ in range(ROUNDS):
        before = sum(front.cpu_times()[:2])
        answers = measure(port, "/noop/predict", 64, SECONDS)["answers"] * 4 / 3  # A quarter warms up, uncounted.
        costs.append((sum(front.cpu_times()[:2]) - before) / answers * 1e6)
    return [Figure(FIGURES[0], one, "ms"), Figure(FIGURES[1], median(costs), "us")]


def _process(connection: ClipperConnection, part: str, model: str = "") -> psutil.Process:
    assert isinstance(connection.cm, LocalContainerManager)
    return psutil.Process(
        next(each.pid for each in connection.cm._read().processes if each.part == part and each.model == model)
    )


def _from_nothing(connection: ClipperConnection, model: Path) -> list[Figure]:
    """A further frontend and model process, by themselves: neither is forked from a warm server."""
    seconds, sizes = [], []
    for _ in range(ROUNDS):
        took_s, size_mb = _start_both(connection.cm.get_admin_addr(), model)
        seconds.append(took_s)
        sizes.append(size_mb)
    return [Figure(FIGURES[2], median(sizes), "MB"), Figure(FIGURES[3], median(seconds), "s")]


def _start_both(management: Address, model: Path) -> tuple[float, float]:
    """Seconds until the first answer of the model, and the memory of both after a hundred."""
    port, rpc_port = _free_port(), _free_port()
    who = {"CLIPPER_MODEL_NAME": "noop", "CLIPPER_MODEL_VERSION": "1", "CLIPPER_MODEL_PATH": str(model)}
    variables = {**os.environ, **who, "CLIPPER_PORT": str(rpc_port)}
    options = ["--management", str(management), "--port", str(port), "--rpc-port", str(rpc_port)]
    began = time.monotonic()
    front = subprocess.Popen([sys.executable, "-m", "lepa.serving.frontend", *options], stderr=subprocess.DEVNULL)
    container = subprocess.Popen(
        [sys.executable, "-m", "lepa.serving.model_container"], env=variables, stderr=subprocess.DEVNULL
    )
    try:
        while _asked(port, 1.0) is not False:
            if time.monotonic() > began + START_TIMEOUT_S:
                raise RuntimeError("there was no first answer")
            time.sleep(0.002)
        took_s = time.monotonic() - began
        for number in range(100):
            _asked(port, number / 7)
        both = (psutil.Process(process.pid).memory_full_info().pss for process in (front, container))
        return took_s, sum(both) / 2**20
    finally:
        for process in (front, container):
            process.terminate()
            process.wait(START_TIMEOUT_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _asked(port: int, value: float) -> bool | None:
    """Whether the answer was the default; None where there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/noop/predict", json.dumps({"input": [value]}))
        return bool(json.loads(connection.getresponse().read()).get("default", True))
    return None


def _poisson(connection: ClipperConnection) -> Figure:
    """Random forest; its capacity is what 64 callers that wait for their answers get."""
    port = connection.cm.get_query_addr().port
    capacity = median(measure(port, "/rf/predict", 64, SECONDS, 64)["rate"] for _ in range(ROUNDS))
    shares = [
        _http_poisson.measure(
            port, "/rf/predict", CAPACITY_SHARE * capacity, POISSON_SECONDS, 64, POISSON_SLO_MS, seed
        )["within"]
        for seed in range(ROUNDS)
    ]
    return Figure(FIGURES[4], median(shares) * 100, "%")


def _kill(connection: ClipperConnection) -> Figure:
    """Each request is due at its time, whatever became of those before it."""
    connection.set_num_replicas("noop", 2)
    connection.wait_for_replicas("noop", 1, 2)
    found: list[tuple[float, float]] = []
    lock = threading.Lock()
    start = time.monotonic() + 0.1
    total = int((KILL_WARM_S + KILL_WATCH_S) * KILL_RATE)
    numbers = iter(range(total))

    def ask() -> None:
        caller = http.client.HTTPConnection(*connection.cm.get_query_addr(), timeout=5)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            due = start + number / KILL_RATE
            time.sleep(max(0.0, due - time.monotonic()))
            caller.request("POST", "/noop/predict", json.dumps({"input": [number + 0.25]}))
            answer: dict[str, Any] = json.loads(caller.getresponse().read())
            if answer["default"]:
                raise RuntimeError(f"an answer was lost: {answer}")
            found.append((due, (time.monotonic() - due) * 1e3))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, start + KILL_WARM_S - time.monotonic()))
    killed = time.monotonic()
    os.kill(_process(connection, MODEL, "noop:1").pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    if len(found) != total:
        raise RuntimeError(f"{total - len(found)} of {total} requests had no answer")
    usual = max(CALM_MS, CALM * _p99([took for due, took in found if due < killed]))
    windows = [killed + KILL_WINDOW_S * number for number in range(int(KILL_WATCH_S / KILL_WINDOW_S) - 1)]
    late = [
        begin + KILL_WINDOW_S - killed
        for begin in windows
        if _p99([took for due, took in found if begin <= due < begin + KILL_WINDOW_S]) > usual
    ]
    return Figure(FIGURES[5], max(late, default=0.0), "s")


def _p99(latencies: list[float]) -> float:
    ordered = sorted(latencies)
    return ordered[len(ordered) * 99 // 100] if ordered else 0.0
