"""Models as endpoints."""

from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent

from lepa.cli import serving

APP = {
    "name": "sums",
    "input_type": "doubles",
    "default_output": "-1",
    "latency_slo_micros": 20_000,
    "linked_models": ["double"],
}
MODEL = {"model_name": "double", "model_version": "1", "input_type": "doubles", "is_current_version": True}


class FakeConnection:
    """Remembers what it was asked, and answers as one cluster with one application and one model."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.replicas = [["double:1"] * 2]
        self.linked = ["double"]
        self.app: dict[str, Any] | None = APP
        self.answer: dict[str, Any] = {"query_id": 1, "output": "42.0", "default": False}

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any, **named: Any) -> None:
            self.calls.append((name, *values, *named.values()))

        return call

    def get_query_addr(self) -> str:
        return "127.0.0.1:1337"

    def get_all_apps(self, verbose: bool) -> Any:
        return [APP]

    def get_app_info(self, name: str) -> Any:
        return self.app

    def get_linked_models(self, app: str) -> list[str]:
        return self.linked

    def get_all_models(self, verbose: bool) -> Any:
        return [MODEL]

    def get_all_model_replicas(self, verbose: bool) -> Any:
        shown = self.replicas.pop(0) if len(self.replicas) > 1 else self.replicas[0]
        return [{"model_id": key} for key in shown]

    def get_current_model_version(self, name: str) -> str:
        return "1"

    def predict(self, app: str, value: Any, version: str) -> Any:
        self.calls.append(("predict", app, value, version))
        return self.answer


@pytest.fixture
def cluster(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> FakeConnection:
    """A cluster that runs."""
    connection = FakeConnection()
    monkeypatch.setattr(serving.Cluster, "start", lambda self: connection)
    monkeypatch.setattr(serving.Cluster, "running", lambda self: connection)
    return connection


def test_applications_are_registered_listed_linked_and_deleted(cluster: FakeConnection, lepa: Run) -> None:
    assert lepa("app", "register", "-slo", "20ms", "-default-output=0", "sums").out == (
        "Application sums registered: POST http://127.0.0.1:1337/sums/predict\n"
    )
    assert lepa("app", "list").out == (
        "Name  Input Type  SLO   Default Output  Models\nsums  doubles     20ms  -1              double\n"
    )
    for words in (("link", "sums", "double"), ("unlink", "sums", "double"), ("delete", "sums")):
        assert lepa("app", *words).code == 0
    assert cluster.calls == [
        ("register_application", "sums", "doubles", "0", 20_000),
        ("link_model_to_app", "sums", "double"),
        ("unlink_model_from_app", "sums", "double"),
        ("unregister_application", "sums"),
    ]
    assert "-slo: invalid duration" in lepa("app", "register", "-slo", "x", "sums").error
    assert "longer than nothing" in lepa("app", "register", "-slo", "0s", "sums").error


def test_a_model_is_deployed_and_linked(cluster: FakeConnection, lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    monkeypatch.setattr("lepa.serving.deployers.save_source", lambda directory, kind, source: saved.append(source))
    cluster.app, cluster.linked = None, []
    done = lepa("model", "deploy", "-app=sums", "-replicas=2", "my_models:Double")
    assert done.out == ("Model double:1 deployed with 2 replicas\nIt answers POST http://127.0.0.1:1337/sums/predict\n")
    assert saved == ["my_models:Double"]
    assert [call[0] for call in cluster.calls] == [
        "register_application",
        "build_and_deploy_model",
        "link_model_to_app",
    ]
    assert cluster.calls[1][1:4] == ("double", "1", "doubles")


def test_models_are_listed_scaled_and_stopped(cluster: FakeConnection, lepa: Run) -> None:
    assert lepa("model", "list").out.split("\n")[1].split() == ["double", "1", "true", "doubles", "2"]
    cluster.replicas = [["double:1"] * 2, ["double:1"]]
    assert lepa("model", "scale", "double", "1").out == "Model double:1 has 1 replica\n"
    assert cluster.calls[:2] == [("set_num_replicas", "double", 1, "1"), ("wait_for_replicas", "double", "1", 1)]
    assert "is a number" in lepa("model", "scale", "double", "x").error
    lepa("model", "stop", "double")
    lepa("model", "stop", "-version=1", "double")
    assert cluster.calls[-2:] == [("stop_models", ["double"]), ("stop_versioned_models", {"double": ["1"]})]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("doubles", "[1.5, 2]", [1.5, 2]),
        ("strings", "hello", "hello"),
        ("strings", '"quoted"', "quoted"),
        ("strings", "5", "5"),
    ],
)
def test_an_input_is_read_by_its_type(cluster: FakeConnection, lepa: Run, kind: str, text: str, value: Any) -> None:
    cluster.app = {**APP, "input_type": kind}
    assert lepa("predict", "sums", text).out == "42.0\n"
    assert cluster.calls == [("predict", "sums", value, "")]


def test_defaults_and_mistakes_are_told(cluster: FakeConnection, lepa: Run) -> None:
    assert "the input is not JSON" in lepa("predict", "sums", "[1").error
    assert lepa("predict", "-json", "sums", "[1]").out == '{"query_id": 1, "output": "42.0", "default": false}\n'
    cluster.answer = {"output": "-1", "default": True, "default_explanation": "Failed to retrieve a prediction"}
    assert lepa("predict", "sums", "[1]").out == "-1  (default: Failed to retrieve a prediction)\n"
    cluster.app = None
    assert 'there is no application "sums"' in lepa("predict", "sums", "[1]").error


def test_without_a_cluster_the_way_to_start_one_is_told(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/service/clipper-other-mgmt-http", [])
    done = lepa("app", "list", "-cluster", "other")
    assert done.code == 1
    assert 'no serving cluster "other" runs' in done.error


@pytest.mark.parametrize(
    ("source", "name"), [("a/Fitted_Model.pkl", "fitted-model"), ("pkg.mod:Double_It", "double-it"), ("x:__", "model")]
)
def test_models_are_named_after_their_source(source: str, name: str) -> None:
    assert serving._model_name(source) == name


def test_replicas_that_do_not_go_are_an_error(cluster: FakeConnection, lepa: Run) -> None:
    assert "are still connected" in lepa("model", "scale", "double", "1").error
