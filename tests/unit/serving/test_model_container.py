"""lepa.serving.model_container"""

import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.serving import addressing, model_container
from lepa.serving.addresses import Address
from lepa.serving.addressing import StaticProvider
from lepa.serving.container_rpc import (
    HEARTBEAT_FRAMES,
    KEEP_ALIVE_FRAMES,
    WHO_ARE_YOU_FRAMES,
    Failure,
    Outputs,
    decode_from_container,
    encode_batch,
    encode_introduction,
    encode_new_container,
)
from lepa.serving.inputs import INPUT_TYPES
from lepa.serving.model_container import (
    ContainerSettings,
    ModelContainer,
    main,
    model_inputs,
    predict_batch,
    settings_from,
)

DOUBLES = INPUT_TYPES["doubles"]


def doubles(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


def test_settings_come_from_clippers_variables() -> None:
    found = settings_from({"CLIPPER_MODEL_NAME": "m", "CLIPPER_MODEL_VERSION": "1", "CLIPPER_INPUT_TYPE": "d"})
    assert found == ContainerSettings("m", "1", Path("/model"), "doubles", Address("127.0.0.1", 7000))


def test_a_service_and_an_address_mean_that_the_address_is_a_balancer() -> None:
    who = {"CLIPPER_MODEL_NAME": "m", "CLIPPER_MODEL_VERSION": "1"}
    service = {"LEPA_RPC_SERVICE": "front", "LEPA_DISCOVERY": "static://a:1"}
    assert not settings_from(who | service).balanced
    assert not settings_from(who | {"CLIPPER_IP": "10.0.0.9"}).balanced
    assert settings_from(who | service | {"CLIPPER_IP": "10.0.0.9"}).balanced


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, "CLIPPER_MODEL_NAME is not set"),
        ({"CLIPPER_MODEL_NAME": "m"}, "CLIPPER_MODEL_VERSION is not set"),
        ({"CLIPPER_MODEL_NAME": "m", "CLIPPER_MODEL_VERSION": "1", "CLIPPER_PORT": "x"}, "expected a port number"),
        ({"CLIPPER_MODEL_NAME": "m", "CLIPPER_MODEL_VERSION": "1", "LEPA_RPC_SERVICE": "s"}, "not LEPA_DISCOVERY"),
    ],
)
def test_what_is_missing_is_named(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(LepaError, match=sentence):
        settings_from(environment)


def test_equal_inputs_are_rows_that_may_be_changed() -> None:
    rows = model_inputs(DOUBLES, [doubles(1, 2), doubles(3, 4)])
    assert rows.tolist() == [[1, 2], [3, 4]]
    rows += 1
    assert model_inputs(INPUT_TYPES["bytes"], [b"\xff"]).tolist() == [[-1]]
    assert model_inputs(INPUT_TYPES["integers"], [b"\1\0\0\0"]).dtype == np.dtype("<i4")


def test_unequal_inputs_are_arrays_and_strings_are_str() -> None:
    ragged = model_inputs(DOUBLES, [doubles(1), doubles(2, 3)])
    assert [row.tolist() for row in ragged] == [[1], [2, 3]]
    assert list(model_inputs(INPUT_TYPES["strings"], [b"a", "é".encode()])) == ["a", "é"]


def test_outputs_of_any_type_become_text() -> None:
    assert predict_batch(lambda rows: rows.sum(axis=1), DOUBLES, [doubles(1), doubles(2)]) == [b"1.0", b"2.0"]
    assert predict_batch(lambda rows: ["é", b"raw"], DOUBLES, [doubles(1), doubles(2)]) == ["é".encode(), b"raw"]


def test_only_queries_that_cannot_be_answered_are_refused() -> None:
    def roots(rows: Any) -> list[float]:
        return [float(row[0]) ** 0.5 if row[0] >= 0 else 1 / 0 for row in rows]

    found = predict_batch(roots, DOUBLES, [doubles(4), doubles(-1), doubles(9)])
    assert found == [b"2.0", Failure("ZeroDivisionError: division by zero"), b"3.0"]


def test_too_few_outputs_and_no_list_at_all_are_failures() -> None:
    assert predict_batch(lambda rows: [], DOUBLES, [b""]) == [
        Failure("ValueError: the model gave 0 outputs for 1 inputs")
    ]
    assert isinstance(predict_batch(lambda rows: None, DOUBLES, [b""])[0], Failure)


class Frontend:
    """A ROUTER that plays the query frontend for a container in a thread."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.rcvtimeo = 5000
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.peer = b""

    def heard(self) -> list[bytes]:
        """The next message that is not a heartbeat in between."""
        self.peer, *frames = self.socket.recv_multipart()
        return frames

    def next_but_heartbeats(self) -> list[bytes]:
        while (frames := self.heard()) == list(HEARTBEAT_FRAMES):
            pass
        return frames

    def say(self, frames: Any) -> None:
        self.socket.send_multipart([self.peer, *frames])


@pytest.fixture
def frontend() -> Iterator[Frontend]:
    made = Frontend()
    yield made
    made.socket.close(0)
    made.context.term()


@pytest.fixture
def container(frontend: Frontend) -> Iterator[ModelContainer]:
    settings = ContainerSettings("m", "1", Path("/model"), "doubles", Address("127.0.0.1", frontend.port))
    made = ModelContainer(settings, lambda rows: rows[:, 0])
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.stop()
    thread.join(5)
    assert not thread.is_alive()


def test_a_container_says_who_it_is_when_asked_and_answers_packed_and_plain(
    frontend: Frontend, container: ModelContainer
) -> None:
    assert frontend.heard() == list(HEARTBEAT_FRAMES)
    frontend.say(WHO_ARE_YOU_FRAMES)
    assert frontend.next_but_heartbeats() == encode_new_container("m", "1", 3, container.instance)
    for packed in (True, False):
        frontend.say(encode_batch(5, 3, [doubles(1), doubles(2)], packed))
        frames = frontend.next_but_heartbeats()
        assert len(frames) == (6 if packed else 7)
        assert decode_from_container(frames) == Outputs(5, [b"1.0", b"2.0"])
    frontend.say([b"", b"junk"])
    frontend.say(encode_batch(6, 4, [b"text"], True))
    answer = decode_from_container(frontend.next_but_heartbeats())
    assert answer == Outputs(6, [Failure("the model takes doubles, the query is of input type 4")])
    frontend.say(encode_batch(7, 3, [], True))
    assert decode_from_container(frontend.next_but_heartbeats()) == Outputs(7, [])


def test_a_silent_frontend_is_connected_to_anew(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(model_container, "SILENT_S", 0.2)
    monkeypatch.setattr(model_container, "KEEP_EVERY_S", 0.05)
    request.getfixturevalue("container")
    frontend.heard()
    first = frontend.peer
    while frontend.peer == first:
        frontend.heard()
    frontend.say(KEEP_ALIVE_FRAMES)


class Passing:
    """The time, and what the model says that it took."""

    def __init__(self) -> None:
        self.took_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.took_s


def test_a_container_that_predicts_for_long_does_not_take_the_frontend_for_lost(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B275."""
    passing = Passing()

    def slow(rows: Any) -> Any:
        passing.took_s += 2 * model_container.SILENT_S
        return rows[:, 0]

    monkeypatch.setattr(model_container, "time", passing)
    monkeypatch.setattr(model_container, "KEEP_EVERY_S", 0.01)
    monkeypatch.setattr(model_container, "HEARTBEAT_S", 0.02)
    settings = ContainerSettings("m", "1", Path("/model"), "doubles", Address("127.0.0.1", frontend.port))
    container = ModelContainer(settings, slow)
    thread = threading.Thread(target=container.run)
    thread.start()
    try:
        frontend.heard()
        first = frontend.peer
        frontend.say(encode_batch(5, 3, [doubles(1)], True))
        assert decode_from_container(frontend.next_but_heartbeats()) == Outputs(5, [b"1.0"])
        assert {(frontend.heard()[-1], frontend.peer) for _ in range(5)} == {(HEARTBEAT_FRAMES[-1], first)}
    finally:
        container.stop()
        thread.join(5)


def test_sessions_through_a_balancer_end_up_at_different_frontends(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ROUTER plays a balancer and the two frontends behind it: it introduces itself as one, then as the other."""
    monkeypatch.setattr(model_container, "KEEP_EVERY_S", 0.02)
    monkeypatch.setattr(model_container, "REDIAL_FIRST_S", 0.05)
    provider = StaticProvider([Address("10.0.0.1", 1), Address("10.0.0.2", 2)])
    monkeypatch.setattr(addressing, "dns_provider", lambda url: provider)
    balancer = Address("127.0.0.1", frontend.port)
    settings = ContainerSettings("m", "1", Path("/model"), "doubles", balancer, rpc_service="front", balanced=True)
    container = ModelContainer(settings, lambda rows: rows[:, 0])
    thread = threading.Thread(target=container.run)
    thread.start()
    try:
        peers: dict[bytes, bytes] = {}
        for name in (b"a", b"a", b"b"):
            while frontend.heard() != list(HEARTBEAT_FRAMES) or frontend.peer in peers:
                pass
            peers[frontend.peer] = name
            frontend.say(encode_introduction(name))
        deadline = time.monotonic() + 5
        while sorted(session.frontend for session in container._sessions.values()) != [b"a", b"b"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        container.stop()
        thread.join(5)


def test_a_process_that_cannot_serve_says_why_and_exits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", {})
    assert main() == 1
    assert "CLIPPER_MODEL_NAME is not set" in capsys.readouterr().err
    environment = {"CLIPPER_MODEL_NAME": "m", "CLIPPER_MODEL_VERSION": "1", "CLIPPER_MODEL_PATH": str(tmp_path)}
    monkeypatch.setattr(os, "environ", environment)
    assert main() == 1
    assert "is not a deployable model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("cat", b"cat"),
        (b"raw", b"raw"),
        (np.float64(1.5), b"1.5"),
        (np.array([1.0, 2.5]), b"[1.0, 2.5]"),
        ({"scores": np.array([1])}, b'{"scores": [1]}'),
        ((1, "a"), b'[1, "a"]'),
        (True, b"True"),
    ],
)
def test_outputs_become_text_and_arrays_become_json(output: Any, text: bytes) -> None:
    assert predict_batch(lambda inputs: [output], INPUT_TYPES["integers"], [b"\0\0\0\0"]) == [text]


def test_an_output_that_cannot_be_written_fails_its_query() -> None:
    (failure,) = predict_batch(lambda inputs: [[object()]], INPUT_TYPES["integers"], [b"\0\0\0\0"])
    assert isinstance(failure, Failure)
    assert "a object in an output cannot be written as JSON" in failure.text


def test_replicas_do_not_try_again_in_step_with_each_other() -> None:
    waits = [model_container.redial_after_s(2.0, SeededRandom(seed)) for seed in range(20)]
    assert len(set(waits)) == 20
    assert all(1.0 <= wait <= 2.0 for wait in waits)
