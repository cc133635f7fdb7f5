"""Models as endpoints: lepa.cli.serving, lepa.cli.app, lepa.cli.model and lepa.cli.predict."""

import re
import sys
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.test_model_top import application, look, model

from lepa.cli import model as model_commands
from lepa.cli import serving
from lepa.cli import session as sessions
from lepa.cli.session import Session
from lepa.cli.terminal import Terminal
from lepa.sdk.connection import Connection
from lepa.serving.autoscale import Autoscale
from lepa.serving.frameworks import CLOSURE, FRAMEWORKS
from lepa.serving.selection import POLICIES

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

    def get_predict_url(self, app: str) -> str:
        return f"http://127.0.0.1:1337/{app}/predict"

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
    assert model_commands._model_name(source) == name


def test_replicas_that_do_not_go_are_an_error(cluster: FakeConnection, lepa: Run) -> None:
    assert "are still connected" in lepa("model", "scale", "double", "1").error


def test_a_policy_is_set_with_options_in_their_types(cluster: FakeConnection, lepa: Run) -> None:
    done = lepa("app", "policy", "sums", "canary", "-option", "canary=2", "-option=share=0.1", "-option=shadow=3,x:1")
    assert done.out == "Application sums is answered by policy canary\n"
    lepa("app", "policy", "sums", "split", "-option=weights=double:1=9,2=1")
    lepa("app", "policy", "sums", "majority")
    assert cluster.calls == [
        ("set_policy", "sums", "canary", {"canary": "2", "share": 0.1, "shadow": ("3", "x:1")}),
        ("set_policy", "sums", "split", {"weights": {"double:1": 9.0, "2": 1.0}}),
        ("set_policy", "sums", "majority", {}),
    ]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("share", "written KEY=VALUE"),
        ("shares=1", "unknown field `shares`; known are epsilon, eta"),
        ("share=much", "Expected `float`"),
        ("weights=2", "Expected `float`"),
        ("combine=sum", "Invalid enum value 'sum'"),
    ],
)
def test_options_that_no_policy_has_are_refused(cluster: FakeConnection, lepa: Run, option: str, sentence: str) -> None:
    done = lepa("app", "policy", "sums", "canary", "-option", option)
    assert done.code == 1
    assert sentence in done.error
    assert cluster.calls == []


def test_replicas_follow_the_load_until_they_are_told_not_to(cluster: FakeConnection, lepa: Run) -> None:
    done = lepa("model", "autoscale", "double", "-min=0", "-max=8", "-busy=0.5", "-down-after=10s", "-idle=2m")
    assert done.out == "The replicas of model double follow its load\n"
    lepa("model", "autoscale", "double")
    assert lepa("model", "autoscale", "-off", "double").out == "Model double keeps the replicas it has\n"
    assert cluster.calls == [
        ("set_autoscale", "double", 0, 8, 0.5, 10.0, 120.0),
        ("set_autoscale", "double"),
        ("stop_autoscale", "double"),
    ]
    assert "-off goes alone" in lepa("model", "autoscale", "double", "-off", "-min=0").error
    assert "-idle: invalid duration" in lepa("model", "autoscale", "double", "-idle=x").error


def test_a_model_goes_back_and_says_to_which_version(cluster: FakeConnection, lepa: Run) -> None:
    assert lepa("model", "rollback", "double").out == "Model double answers with version 1\n"
    assert cluster.calls == [("roll_back_model", "double")]


def test_the_way_batches_are_made_is_chosen(cluster: FakeConnection, lepa: Run) -> None:
    shown = lepa("model", "batching", "-wait=2ms", "double", "quantile").out
    assert shown == "Batches of model double are made by policy quantile\n"
    lepa("model", "batching", "-version=2", "-size=8", "double", "fixed")
    assert cluster.calls == [
        ("set_batching", "double", "", "quantile", 0, 2000),
        ("set_batching", "double", "2", "fixed", 8, 0),
    ]


def test_help_texts_name_every_policy_framework_and_default(lepa: Run) -> None:
    policies = lepa("app", "policy", "-help").out
    assert [name for name in POLICIES if name not in policies] == ["DefaultOutputSelectionPolicy"]
    deploy = re.sub(r"-\s+", "-", lepa("model", "deploy", "-help").out)
    assert [name for name in FRAMEWORKS if name not in deploy] == [CLOSURE]
    assert [suffix for row in FRAMEWORKS.values() for suffix in row.files if suffix not in deploy] == []
    autoscale = " ".join(lepa("model", "autoscale", "-help").out.split())
    assert Autoscale() == Autoscale(1, 10, 0.7, 60.0, 300.0)
    assert all(f"Default: {value}." in autoscale for value in ("1", "10", "0.7", "1m", "5m"))


class Frontends:
    """Query frontends that answered ten queries more at each look, one second apart."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.away: set[str] = set()

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def tops(self) -> dict[str, Any]:
        answered = self.now_ns // 10**8
        each = look(application(answered), model(answered))
        return {address: each for address in ("a:1337", "b:1337") if address not in self.away}


@pytest.fixture
def frontends(cluster: FakeConnection, monkeypatch: pytest.MonkeyPatch) -> Frontends:
    made = Frontends()

    def passing(nomad: Connection, out: Terminal) -> Session:
        return Session(nomad, out, now_ns=lambda: made.now_ns, sleep=made.sleep)

    monkeypatch.setattr(sessions, "open_session", passing)
    monkeypatch.setattr(cluster, "tops", made.tops, raising=False)
    return made


def test_in_a_pipe_top_is_printed_once(cluster: FakeConnection, frontends: Frontends, lepa: Run) -> None:
    shown = lepa("model", "top").out
    assert shown.startswith("Applications\nApplication  Policy")
    assert shown.split("\n")[2].split()[:3] == ["digits", "single", "20.0"]
    assert frontends.now_ns == 10**9
    lepa("model", "top", "-once", "-interval=5s")
    assert frontends.now_ns == 6 * 10**9


def test_on_a_terminal_top_is_drawn_again_and_again(
    cluster: FakeConnection, frontends: Frontends, lepa: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_commands, "LOOKS_MAX", 3)
    monkeypatch.setattr(sessions, "terminal", lambda **_: Terminal(sys.stdout, sys.stderr, colour=False, live=True))
    assert "20.0" in lepa("model", "top").out
    assert frontends.now_ns == 3 * 10**9


def test_a_frontend_that_is_away_is_left_out_and_all_of_them_an_error(
    cluster: FakeConnection, frontends: Frontends, lepa: Run
) -> None:
    frontends.away = {"a:1337"}
    assert lepa("model", "top").out.split("\n")[2].split()[2] == "10.0"
    frontends.away.add("b:1337")
    assert "no query frontend answers" in lepa("model", "top").error
    assert "longer than nothing" in lepa("model", "top", "-interval=0s").error
