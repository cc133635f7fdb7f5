"""`lepa app …`, `lepa model …`, `lepa predict`: models as endpoints. The cluster's parts are jobs like any other."""

import functools
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, table
from lepa.cli.session import Session, Shape, api, read_input, segment, shaped
from lepa.kit.durations import MICROSECOND, format_duration, parse_duration
from lepa.model.errors import LepaError, invalid, not_found

if TYPE_CHECKING:
    from lepa.serving.connection import ClipperConnection

DEFAULT_CLUSTER = "default-cluster"
DEFAULT_SLO = "100ms"
GONE_POLL_S, GONE_LOOKS_MAX = 0.1, 300
"""How long replicas that were told to stop may take."""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9.]+")


@dataclass(frozen=True)
class Cluster:
    """One serving cluster, as jobs of the agent that the session talks to."""

    session: Session
    name: str

    def start(self) -> "ClipperConnection":
        """Its parts, started where they do not run."""
        connection = self._connection()
        connection.start_clipper()
        return connection

    def running(self) -> "ClipperConnection":
        """Its parts, which have to run already. Raises LepaError(not_found)."""
        connection = self._connection()
        service = connection.cm.plan.management_service  # type: ignore[attr-defined]
        if not self.session.nomad.get(f"/v1/service/{segment(service)}").value:
            raise not_found(f'no serving cluster "{self.name}" runs; `lepa app register` starts one')
        connection.connect()
        return connection

    def _connection(self) -> "ClipperConnection":
        from lepa.serving.connection import ClipperConnection
        from lepa.serving.container_managers.jobs import JobsContainerManager

        to = self.session.nomad.target
        host = f"[{to.host}]" if ":" in to.host else to.host
        return ClipperConnection(
            JobsContainerManager(f"{host}:{to.port}", self.name, namespace=to.namespace or "default", token=to.token)
        )


def serving(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a `Cluster` as its first argument."""

    @functools.wraps(function)
    def run(session: Session, cluster: str, **values: Any) -> Any:
        return function(Cluster(session, cluster), **values)

    named = option("cluster", "Name of the serving cluster.", default=DEFAULT_CLUSTER, metavar="name")
    return named(api(run))


def _micros(text: str) -> int:
    try:
        micros = parse_duration(text) // MICROSECOND
    except ValueError as error:
        raise invalid(f"-slo: {error}") from error
    if micros <= 0:
        raise invalid("-slo is longer than nothing, such as 20ms")
    return micros


# Applications


@command()
@argument("name")
@option("input-type", "bytes, integers, floats, doubles or strings.", default="doubles", metavar="type")
@option("default-output", "The answer where no model answers in time.", default="-1", metavar="text")
@option("slo", "Within this time every request is answered.", default=DEFAULT_SLO, metavar="duration")
@serving
def app_register(cluster: Cluster, name: str, input_type: str, default_output: str, slo: str) -> None:
    """Make an application answer `POST /<name>/predict`. The cluster is started where it does not run."""
    micros = _micros(slo)
    connection = cluster.start()
    connection.register_application(name, input_type, default_output, micros)
    cluster.session.out.line(f"Application {name} registered: POST http://{connection.get_query_addr()}/{name}/predict")


@command()
@shaped
@serving
def app_list(cluster: Cluster, shape: Shape) -> None:
    """List applications with their objective and the models that answer them."""
    found: list[Json] = cluster.running().get_all_apps(verbose=True)
    if shape:
        cluster.session.out.line(shape.render(found))
        return
    rows = [
        (
            app["name"],
            app["input_type"],
            format_duration(app["latency_slo_micros"] * MICROSECOND),
            app["default_output"],
            ",".join(app.get("linked_models") or ()),
        )
        for app in sorted(found, key=lambda app: str(app["name"]))
    ]
    header = ("Name", "Input Type", "SLO", "Default Output", "Models")
    cluster.session.out.line(table(header, rows) if rows else "No applications registered")


@command()
@argument("application", shown="<app>")
@argument("model")
@serving
def app_link(cluster: Cluster, application: str, model: str) -> None:
    """Let a model answer an application."""
    cluster.running().link_model_to_app(application, model)
    cluster.session.out.line(f"Model {model} answers application {application}")


@command()
@argument("application", shown="<app>")
@argument("model")
@serving
def app_unlink(cluster: Cluster, application: str, model: str) -> None:
    """Let a model no longer answer an application."""
    cluster.running().unlink_model_from_app(application, model)
    cluster.session.out.line(f"Model {model} no longer answers application {application}")


@command()
@argument("application", shown="<app>")
@serving
def app_delete(cluster: Cluster, application: str) -> None:
    """Take an application away; its models stay."""
    cluster.running().unregister_application(application)
    cluster.session.out.line(f"Application {application} deleted")


# Models


@command()
@argument("source", shown="<file|module:name>")
@option("name", "Name of the model; without it, that of the file or function.", metavar="name")
@option("version", "Version of the model.", default="1", metavar="version")
@option("input-type", "bytes, integers, floats, doubles or strings.", default="doubles", metavar="type")
@option("replicas", "How many model processes to run.", kind=int, default=1, metavar="count")
@option("batch-size", "Inputs in a batch at most; -1 finds the best.", kind=int, default=-1, metavar="count")
@option("app", "Register this application where there is none, and link the model to it.", metavar="name")
@option("slo", "With -app: within this time every request is answered.", default=DEFAULT_SLO, metavar="duration")
@option("default-output", "With -app: the answer where no model answers in time.", default="-1", metavar="text")
@serving
def model_deploy(
    cluster: Cluster,
    source: str,
    name: str | None,
    version: str,
    input_type: str,
    replicas: int,
    batch_size: int,
    app: str | None,
    slo: str,
    default_output: str,
) -> None:
    """Deploy a model and wait until its replicas are connected.

    A file holds a fitted scikit-learn estimator (pickle or joblib); `module:name` is a function that takes a list of
    inputs and returns one output for each, or an estimator, in a Python module of the current directory.
    """
    from lepa.serving.deployers import save_source

    micros = _micros(slo)
    called = name or _model_name(source)
    out = cluster.session.out
    sys.path.insert(0, os.getcwd())
    with tempfile.TemporaryDirectory(prefix="lepa-model-") as directory:
        save_source(Path(directory), input_type, source)
        connection = cluster.start()
        if app and connection.get_app_info(app) is None:
            connection.register_application(app, input_type, default_output, micros)
        connection.build_and_deploy_model(
            called, version, input_type, directory, num_replicas=replicas, batch_size=batch_size
        )
    out.line(f"Model {called}:{version} deployed with {replicas} {'replica' if replicas == 1 else 'replicas'}")
    if app:
        if called not in connection.get_linked_models(app):
            connection.link_model_to_app(app, called)
        out.line(f"It answers POST http://{connection.get_query_addr()}/{app}/predict")


def _model_name(source: str) -> str:
    """A name that serving takes, after a file or a function."""
    stem = source.rpartition(":")[2] if ":" in source else Path(source).stem
    return _NOT_IN_NAMES.sub("-", stem.lower()).strip("-.") or "model"


@command()
@shaped
@serving
def model_list(cluster: Cluster, shape: Shape) -> None:
    """List models with their versions and the replicas that are connected."""
    connection = cluster.running()
    models: list[Json] = connection.get_all_models(verbose=True)
    if shape:
        cluster.session.out.line(shape.render(models))
        return
    connected = _connected(connection)
    rows = [
        (
            model["model_name"],
            model["model_version"],
            model["is_current_version"],
            model["input_type"],
            connected.count(f"{model['model_name']}:{model['model_version']}"),
        )
        for model in sorted(models, key=lambda model: (str(model["model_name"]), str(model["model_version"])))
    ]
    header = ("Name", "Version", "Current", "Input Type", "Replicas")
    cluster.session.out.line(table(header, rows) if rows else "No models deployed")


@command()
@argument("model")
@argument("replicas", shown="<count>")
@option("version", "Version of the model; without it, the current one.", metavar="version")
@serving
def model_scale(cluster: Cluster, model: str, replicas: str, version: str | None) -> None:
    """Set the number of a model's replicas, and wait until they are connected."""
    if not replicas.isdigit():
        raise invalid(f'the number of replicas is a number, not "{replicas}"')
    connection = cluster.running()
    wanted = version or connection.get_current_model_version(model)
    connection.set_num_replicas(model, int(replicas), wanted)
    connection.wait_for_replicas(model, wanted, int(replicas))
    _wait_until_gone(cluster.session, connection, f"{model}:{wanted}", int(replicas))
    cluster.session.out.line(f"Model {model}:{wanted} has {replicas} {'replica' if replicas == '1' else 'replicas'}")


def _wait_until_gone(session: Session, connection: "ClipperConnection", key: str, count: int) -> None:
    """Return when no more than `count` replicas are connected."""
    for _ in range(GONE_LOOKS_MAX):
        if _connected(connection).count(key) <= count:
            return
        session.sleep(GONE_POLL_S)
    raise LepaError("timeout", f"replicas of {key} that were told to stop are still connected")


def _connected(connection: "ClipperConnection") -> list[str]:
    """`name:version` of every connected replica."""
    return [each["model_id"] for each in connection.get_all_model_replicas(verbose=True)]


@command()
@argument("model")
@option("version", "Only this version.", metavar="version")
@serving
def model_stop(cluster: Cluster, model: str, version: str | None) -> None:
    """Stop a model's replicas and forget it, or one of its versions."""
    connection = cluster.running()
    if version is None:
        connection.stop_models([model])
    else:
        connection.stop_versioned_models({model: [version]})
    cluster.session.out.line(f"Model {model}{f':{version}' if version else ''} stopped")


# Predictions


@command()
@argument("application", shown="<app>")
@argument("input", shown="<input|->")
@option("version", "Version of the model to ask.", default="", metavar="version")
@flag("json", "Print the whole answer.")
@serving
def predict(cluster: Cluster, application: str, input: str, version: str, json: bool) -> None:
    """Ask an application about one input, given as JSON (such as `[1.5, 2]`), or as text for applications of strings.

    With - the input is read from standard input.
    """
    text = read_input("-").decode("utf-8", "replace") if input == "-" else input
    connection = cluster.running()
    app = connection.get_app_info(application)
    if app is None:
        raise not_found(f'there is no application "{application}"; `lepa app list` lists them')
    answer = connection.predict(application, _value(text, app["input_type"]), version)
    cluster.session.out.line(_shown(answer, whole=json))


def _value(text: str, input_type: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        if input_type in ("strings", "bytes"):
            return text
        raise invalid(f"the input is not JSON: {error}; {input_type} are given as [1, 2.5]") from error
    return text if input_type in ("strings", "bytes") and not isinstance(value, str) else value


def _shown(answer: Json, *, whole: bool) -> str:
    if whole or "output" not in answer:
        return json.dumps(answer)
    output = answer["output"]
    text = output if isinstance(output, str) else json.dumps(output)
    return (
        f"{text}  (default: {answer.get('default_explanation') or 'no model answered in time'})"
        if answer.get("default")
        else text
    )
