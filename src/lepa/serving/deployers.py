"""From a Python model to running replicas, in one call each: closures and scikit-learn estimators."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lepa.model.errors import invalid
from lepa.serving.connection import ClipperConnection
from lepa.serving.inputs import input_type as known_input_type
from lepa.serving.model_directory import CLOSURE, save
from lepa.serving.records import BATCH_SIZE_ADAPTIVE

DEFAULT_SLO_MICROS = 3_000_000

Function = Callable[..., Any]


def deploy_python_closure(
    connection: ClipperConnection,
    name: str,
    version: str | int,
    input_type: str,
    func: Function,
    labels: Sequence[str] = (),
    num_replicas: int = 1,
    batch_size: int = BATCH_SIZE_ADAPTIVE,
) -> None:
    """Deploy `func(inputs) -> outputs`, with everything it refers to."""
    if not callable(func):
        raise invalid(f"a closure is deployed from a function, not from a {type(func).__name__}")
    _deploy(connection, name, version, input_type, CLOSURE, func, None, labels, num_replicas, batch_size)


def deploy_sklearn_model(
    connection: ClipperConnection,
    name: str,
    version: str | int,
    input_type: str,
    model: Any,
    func: Function | None = None,
    labels: Sequence[str] = (),
    num_replicas: int = 1,
    batch_size: int = BATCH_SIZE_ADAPTIVE,
) -> None:
    """Deploy a fitted estimator; `func(model, inputs) -> outputs`, or its own `predict`."""
    if func is None and not hasattr(model, "predict"):
        raise invalid(f"{type(model).__name__} has no predict method; pass a function that takes (model, inputs)")
    _deploy(connection, name, version, input_type, "scikit-learn", func, model, labels, num_replicas, batch_size)


def create_endpoint(
    connection: ClipperConnection,
    name: str,
    input_type: str,
    model: Any,
    default_output: str = "None",
    version: str | int = 1,
    slo_micros: int = DEFAULT_SLO_MICROS,
    num_replicas: int = 1,
) -> None:
    """Register an application, deploy a model (an estimator or a function) under the same name, and link them."""
    connection.register_application(name, input_type, default_output, slo_micros)
    if hasattr(model, "predict"):
        deploy_sklearn_model(connection, name, version, input_type, model, num_replicas=num_replicas)
    else:
        deploy_python_closure(connection, name, version, input_type, model, num_replicas=num_replicas)
    connection.link_model_to_app(name, name)


def save_model(directory: Path, input_type: str, model: Any) -> None:
    """Write a deployable model directory for an estimator or a function."""
    framework, function, fitted = ("scikit-learn", None, model) if hasattr(model, "predict") else (CLOSURE, model, None)
    save(directory, framework, known_input_type(input_type).name, function, fitted)


def _deploy(
    connection: ClipperConnection,
    name: str,
    version: str | int,
    input_type: str,
    framework: str,
    function: Function | None,
    model: Any,
    labels: Sequence[str],
    num_replicas: int,
    batch_size: int,
) -> None:
    kind = known_input_type(input_type).name
    with tempfile.TemporaryDirectory(prefix="lepa-model-") as directory:
        save(Path(directory), framework, kind, function, model)
        connection.build_and_deploy_model(name, version, kind, directory, labels, num_replicas, batch_size)
