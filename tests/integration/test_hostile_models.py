"""Models that misbehave and callers that send what they should not: row S15. The frontend and the other models go on.

Whatever happens, the model beside them answers, and the frontend is the same process as before.
"""

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import QUERY, LocalContainerManager

SLO_MICROS = 2_000_000
REQUEST_BYTES = 1 << 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClipperConnection]:
    folder = tmp_path_factory.mktemp("hostile")
    connection = ClipperConnection(
        LocalContainerManager("hostile", folder, query_port=0, management_port=0, rpc_port=0)
    )
    connection.start_clipper()
    try:
        serve(connection, "good", lambda texts: [text.upper() for text in texts])
        yield connection
    finally:
        connection.stop_all()


@pytest.fixture(autouse=True)
def _others_go_on(cluster: ClipperConnection) -> Iterator[None]:
    before = frontend(cluster).pid
    yield
    assert frontend(cluster).pid == before
    assert cluster.predict("good", f"after {time.monotonic()}")["output"].startswith("AFTER")


def frontend(cluster: ClipperConnection) -> psutil.Process:
    assert isinstance(cluster.cm, LocalContainerManager)
    (found,) = [each for each in cluster.cm._read().processes if each.part == QUERY and cluster.cm._alive(each)]
    return psutil.Process(found.pid)


def serve(
    cluster: ClipperConnection, name: str, function: Callable[[Any], Any], kind: str = "strings", replicas: int = 1
) -> None:
    deployers.create_endpoint(cluster, name, kind, function, "-1", slo_micros=SLO_MICROS, num_replicas=replicas)
    eventually(lambda: "No connected models" not in cluster.predict(name, hello(kind)).get("default_explanation", ""))


def hello(kind: str) -> Any:
    return "hello" if kind == "strings" else [1.0]


def eventually(done: Callable[[], bool], timeout_s: float = 20.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.02)


def why(cluster: ClipperConnection, app: str, value: Any) -> str:
    """The explanation of the default that is the answer."""
    answer = cluster.predict(app, value)
    assert answer["default"], answer
    return str(answer["default_explanation"])


def replicas(cluster: ClipperConnection, app: str) -> int:
    (top,) = cluster.tops().values()
    return sum(row["replicas"] for row in top["models"] if row["model"] == app)


def test_a_model_that_raises_exits_or_answers_with_nonsense_fails_its_queries_only(cluster: ClipperConnection) -> None:
    def fickle(texts: Any) -> Any:
        import sys

        if "raise" in texts:
            raise ValueError("no")
        if "exit" in texts:
            sys.exit(3)
        if "none" in texts:
            return None
        if "few" in texts:
            return list(texts)[1:]
        if "many" in texts:
            return [*texts, "more"]
        return [object() if text == "object" else text for text in texts]

    serve(cluster, "fickle", fickle)
    assert why(cluster, "fickle", "raise") == "The model failed: ValueError: no"
    assert why(cluster, "fickle", "exit") == "The model failed: SystemExit: 3"
    assert "TypeError" in why(cluster, "fickle", "none")
    assert "gave 0 outputs for 1 inputs" in why(cluster, "fickle", "few")
    assert "gave 2 outputs for 1 inputs" in why(cluster, "fickle", "many")
    assert cluster.predict("fickle", "fine")["output"] == "fine"
    assert replicas(cluster, "fickle") == 1


def test_a_model_that_kills_its_process_kills_no_more_than_two_replicas_a_query(cluster: ClipperConnection) -> None:
    def deadly(texts: Any) -> Any:
        import os

        if "die" in texts:
            os._exit(7)
        return list(texts)

    serve(cluster, "deadly", deadly, replicas=3)
    assert why(cluster, "deadly", "die") == "The model's replica was lost while it predicted"
    eventually(lambda: replicas(cluster, "deadly") == 1)
    assert cluster.predict("deadly", "live")["output"] == "live"


def test_a_model_that_hangs_costs_its_queries_the_objective_and_one_batch_runs_at_a_time(
    cluster: ClipperConnection,
) -> None:
    """B271 as well."""

    def stuck(texts: Any) -> Any:
        import time

        if "hang" in texts:
            time.sleep(3600)
        return list(texts)

    serve(cluster, "stuck", stuck, replicas=2)
    asked = time.monotonic()
    assert "within the specified latency SLO" in why(cluster, "stuck", "hang")
    assert SLO_MICROS / 1e6 - 0.001 <= time.monotonic() - asked < SLO_MICROS / 1e6 * 1.1 + 0.5
    assert cluster.predict("stuck", "on")["output"] == "on"


def test_a_model_that_floods_its_output_holds_nobody_up(cluster: ClipperConnection) -> None:
    def chatty(texts: Any) -> Any:
        import sys

        for _ in range(20):
            print("x" * 100_000)
            print("y" * 100_000, file=sys.stderr)
        return list(texts)

    serve(cluster, "chatty", chatty)
    assert cluster.predict("chatty", "word")["output"] == "word"


def test_a_model_that_forks_answers_once_and_its_death_is_noticed(cluster: ClipperConnection) -> None:
    """Two ways to fork: one child sleeps on with whatever it inherited, one comes back from the prediction."""

    def forking(texts: Any) -> Any:
        import os
        import time

        if "sleep" in texts and not os.fork():
            time.sleep(3)
            os._exit(0)
        if "return" in texts:
            os.fork()
        if "pid" in texts:
            return [os.getpid()] * len(texts)
        return list(texts)

    serve(cluster, "forking", forking, replicas=1)
    for word in ("sleep", "return", "return"):
        for number in range(3):
            assert cluster.predict("forking", f"{word}")["output"] == word or number
    assert replicas(cluster, "forking") == 1
    pid = cluster.predict("forking", "pid")["output"]
    cluster.predict("forking", "sleep")
    os.kill(pid, 9)
    eventually(lambda: replicas(cluster, "forking") == 0, timeout_s=2.0)


def test_a_model_that_opens_ports_serves_on(cluster: ClipperConnection) -> None:
    def listening(texts: Any) -> Any:
        import socket

        opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(50)]
        globals()["kept"] = opened
        return [str(len(opened))] * len(texts)

    serve(cluster, "listening", listening)
    assert cluster.predict("listening", "x")["output"] == 50


@pytest.fixture(scope="module")
def digits(cluster: ClipperConnection) -> Any:
    data = load_digits()
    model = DecisionTreeClassifier(random_state=1).fit(data.data, data.target)
    deployers.create_endpoint(cluster, "digits", "doubles", model, "-1", slo_micros=SLO_MICROS)
    eventually(lambda: not cluster.predict("digits", list(data.data[0]))["default"])
    return data.data, model.predict(data.data)


def test_inputs_of_a_wrong_shape_fail_alone_in_the_batch_with_others(cluster: ClipperConnection, digits: Any) -> None:
    rows, expected = digits
    assert "64 features" in why(cluster, "digits", [1.0, 2.0])
    assert "The model failed" in why(cluster, "digits", [])
    mixed = [list(rows[0]), [1.0], list(rows[1]), [], list(rows[2]) * 2]
    status, answer = post(cluster, "digits", json.dumps({"input_batch": mixed}).encode())
    found = answer["batch_predictions"]
    assert [each["output"] for each in found] == [expected[0], -1, expected[1], -1, -1]
    assert (status, [each["default"] for each in found]) == (200, [False, True, False, True, True])


def post(cluster: ClipperConnection, app: str, body: bytes) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*cluster.cm.get_query_addr(), timeout=60)
    try:
        connection.request("POST", f"/{app}/predict", body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"input": [NaN]}', "Error parsing JSON"),
        (b'{"input": [Infinity]}', "Error parsing JSON"),
        (b'{"input": [1e999]}', "Error parsing JSON"),
        (b'{"input": "text"}', "Error parsing JSON"),
        (b'{"input": [[1.0]]}', "Error parsing JSON"),
        (b'{"input": ' + b"[" * 100_000, "Error parsing JSON"),
        (b"[1]", "Error parsing JSON"),
        (b"\xff\xfe", "Error parsing JSON"),
        (b'{"input_batch": [' + b"[0]," * 10_000 + b"[0]]}", "at most 10000"),
        (b'{"input": [1.0], "version": "99"}', "version: 99 does not exist"),
        (b'{"input": [1.0], "version": 1}', "Error parsing JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_input_is_refused_in_words(
    cluster: ClipperConnection, digits: Any, body: bytes, sentence: str
) -> None:
    """B264 as well."""
    status, answer = post(cluster, "digits", body)
    assert (status, sentence in answer["cause"]) == (400, True), answer


def test_ten_thousand_items_are_answered(cluster: ClipperConnection, digits: Any) -> None:
    rows, expected = digits
    batch = [list(rows[number % 500]) for number in range(10_000)]
    status, answer = post(cluster, "digits", json.dumps({"input_batch": batch}).encode())
    if status == 200:
        found = answer["batch_predictions"]
        right = [each["default"] or each["output"] == expected[n % 500] for n, each in enumerate(found)]
        assert len(found) == 10_000
        assert all(right)
        assert sum(not each["default"] for each in found) > 0
    else:
        assert status == 413


def test_a_body_of_a_terabyte_is_refused_and_not_kept(cluster: ClipperConnection) -> None:
    process = frontend(cluster)
    before = process.memory_info().rss
    with socket.create_connection(cluster.cm.get_query_addr()) as caller:
        caller.settimeout(30)
        caller.sendall(b"POST /good/predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % REQUEST_BYTES)
        sent, piece = 0, bytes(1 << 20)
        try:
            while sent < REQUEST_BYTES:
                caller.sendall(piece)
                sent += len(piece)
            answer = caller.recv(4096)
        except OSError:
            answer = caller.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413")
    assert sent < REQUEST_BYTES
    assert process.memory_info().rss < before + (100 << 20)


def test_a_model_of_another_python_is_refused_with_a_sentence(cluster: ClipperConnection, tmp_path: Any) -> None:
    deployers.save_model(tmp_path / "old", "strings", lambda texts: list(texts))
    description = json.loads((tmp_path / "old" / "model.json").read_text())
    (tmp_path / "old" / "model.json").write_text(json.dumps(description | {"python": "2.7"}))
    with pytest.raises(LepaError, match=r"2\.7"):
        cluster.build_and_deploy_model("old", 1, "strings", tmp_path / "old")
    assert cluster.get_model_info("old", 1) is None


def test_a_model_file_is_never_read_outside_the_models_own_process(cluster: ClipperConnection, tmp_path: Any) -> None:
    """The pickle writes down who reads it."""

    class Told:
        def __reduce__(self) -> Any:
            code = f"open({str(tmp_path / 'who')!r}, 'a').write(f'{{__import__(\"os\").getpid()}} ') and list"
            return eval, (code,)

    import pickle

    deployers.save_model(tmp_path / "told", "strings", list)
    (tmp_path / "told" / "func.pkl").write_bytes(pickle.dumps(Told()))
    cluster.build_and_deploy_model("told", 1, "strings", tmp_path / "told")
    assert isinstance(cluster.cm, LocalContainerManager)
    pids = {str(each.pid) for each in cluster.cm.processes("told:1")}
    assert set((tmp_path / "who").read_text().split()) == pids
