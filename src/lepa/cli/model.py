"""`lepa model …`: versions of models, their replicas and their batches."""

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lepa.cli import model_top as view
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, bare, table
from lepa.cli.serving import DEFAULT_SLO, Cluster, duration, serving, slo_micros
from lepa.cli.session import Session, Shape, shaped
from lepa.kit.durations import MICROSECOND, SECOND
from lepa.model.errors import LepaError, invalid, not_found

if TYPE_CHECKING:
    from lepa.serving.connection import ClipperConnection

GONE_POLL_S, GONE_LOOKS_MAX = 0.1, 300
"""How long replicas that were told to stop may take."""
DEFAULT_INTERVAL = "1s"
LOOKS_MAX = 7 * 24 * 3600
"""Looks of one `lepa model top`: a week of those that are a second apart."""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9.]+")


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

    A file holds a fitted model, and its suffix says of which framework: scikit-learn (.pkl, .pickle, .joblib), xgboost
    (.ubj, .json), lightgbm (.txt), onnx (.onnx) or pytorch (.pt, .pth: TorchScript). `module:name` is, in a Python
    module of the current directory, a function that takes a batch of inputs and returns one output for each, a model of
    one of these frameworks, or whatever else has a predict method.
    """
    from lepa.serving.deployers import save_source

    objective = slo_micros(slo)
    called = name or _model_name(source)
    out = cluster.session.out
    sys.path.insert(0, os.getcwd())
    with tempfile.TemporaryDirectory(prefix="lepa-model-") as directory:
        save_source(Path(directory), input_type, source)
        connection = cluster.start()
        if app and connection.get_app_info(app) is None:
            connection.register_application(app, input_type, default_output, objective)
        connection.build_and_deploy_model(
            called, version, input_type, directory, num_replicas=replicas, batch_size=batch_size
        )
    out.line(f"Model {called}:{version} deployed with {replicas} {'replica' if replicas == 1 else 'replicas'}")
    if app:
        if called not in connection.get_linked_models(app):
            connection.link_model_to_app(app, called)
        out.line(f"It answers POST {connection.get_predict_url(app)}")


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
@option("min", "Replicas at least; 0 lets it go away while nobody asks. Default: 1.", kind=int, metavar="count")
@option("max", "Replicas at most. Default: 10.", kind=int, metavar="count")
@option("busy", "Share of time that a replica should work, in 0..1. Default: 0.7.", kind=float, metavar="share")
@option("down-after", "Fewer must be enough for so long before one goes. Default: 1m.", metavar="duration")
@option("streams", "Requests passed through at once that keep one busy. Default: 8.", kind=float, metavar="count")
@option("idle", "With -min=0: the last one goes after so long without a query. Default: 5m.", metavar="duration")
@flag("off", "Let the replicas stay as many as they are.")
@serving
def model_autoscale(
    cluster: Cluster,
    model: str,
    min: int | None,
    max: int | None,
    busy: float | None,
    down_after: str | None,
    streams: float | None,
    idle: str | None,
    off: bool,
) -> None:
    """Let the number of a model's replicas follow its load."""
    given = {
        "replicas_min": min,
        "replicas_max": max,
        "busy_target": busy,
        "streams_target": streams,
        "down_after_s": down_after and duration("down-after", down_after) / SECOND,
        "idle_s": idle and duration("idle", idle) / SECOND,
    }
    settings = {key: value for key, value in given.items() if value is not None}
    if off and settings:
        raise invalid("-off goes alone: it ends what the other flags describe")
    connection = cluster.running()
    if off:
        connection.stop_autoscale(model)
        cluster.session.out.line(f"Model {model} keeps the replicas it has")
    else:
        connection.set_autoscale(model, **settings)
        cluster.session.out.line(f"The replicas of model {model} follow its load")


@command()
@argument("model")
@argument("policy")
@option("version", "Version of the model; without it, the current one.", default="", metavar="version")
@option("size", "With policy fixed: inputs in a batch.", kind=int, default=0, metavar="count")
@option("wait", "A batch that is not full waits so long for more, such as 2ms.", default="0s", metavar="duration")
@serving
def model_batching(cluster: Cluster, model: str, policy: str, version: str, size: int, wait: str) -> None:
    """Say how the batches of a model are made: aimd (the default), quantile, ridge, throughput or fixed."""
    wait_us = duration("wait", wait) // MICROSECOND
    cluster.running().set_batching(model, version, policy, size, wait_us)
    cluster.session.out.line(f"Batches of model {model} are made by policy {policy}")


@command()
@argument("model")
@serving
def model_rollback(cluster: Cluster, model: str) -> None:
    """Make the version of a model current that was so before; done twice, it is undone."""
    connection = cluster.running()
    connection.roll_back_model(model)
    cluster.session.out.line(f"Model {model} answers with version {connection.get_current_model_version(model)}")


@command()
@flag("once", "Print what happens within one interval, and end; so it is in a pipe.")
@option("interval", "Time between two looks.", default=DEFAULT_INTERVAL, metavar="duration")
@serving
def model_top(cluster: Cluster, once: bool, interval: str) -> None:
    """Show what applications and models do now, over and over until Ctrl-C.

    Rates, shares of defaults and how busy replicas are belong to the last interval, latencies to the newest queries;
    of several query frontends the worst latency is shown.
    """
    interval_s = duration("interval", interval) / SECOND
    if interval_s <= 0:
        raise invalid("-interval is longer than nothing, such as 1s")
    connection, session = cluster.running(), cluster.session
    if once or not session.out.live:
        _follow(session, connection, interval_s, 1, session.out.line)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(Text(""), auto_refresh=False) as live:

        def draw(text: str) -> None:
            live.update(Text.from_ansi(text if session.out.colour else bare(text)), refresh=True)

        _follow(session, connection, interval_s, LOOKS_MAX, draw)


def _follow(
    session: Session, connection: "ClipperConnection", interval_s: float, looks: int, draw: Callable[[str], None]
) -> None:
    """Draw the difference of each look at the query frontends and the one before."""
    before, before_ns = _look(connection), session.now_ns()
    for _ in range(looks):
        session.sleep(interval_s)
        after, after_ns = _look(connection), session.now_ns()
        draw(view.render(before, after, (after_ns - before_ns) / SECOND))
        before, before_ns = after, after_ns


def _look(connection: "ClipperConnection") -> view.Look:
    """What every query frontend that answers says of itself."""
    found = connection.tops()
    if not found:
        raise not_found("no query frontend answers")
    return found


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
