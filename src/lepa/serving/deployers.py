"""From a Python model to running replicas, in one call each: closures and scikit-learn estimators.

`save_source` is the same for what a person names on a command line; its directory goes to
`ClipperConnection.build_and_deploy_model`.
"""

import importlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from lepa.model.errors import invalid
from lepa.serving.connection import ClipperConnection
from lepa.serving.inputs import input_type as known_input_type
from lepa.serving.model_directory import CLOSURE, SCIKIT_LEARN, save, save_file
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
    _deploy(connection, name, version, input_type, SCIKIT_LEARN, func, model, labels, num_replicas, batch_size)


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
    kind = known_input_type(input_type).name
    if hasattr(model, "predict"):
        save(directory, SCIKIT_LEARN, kind, None, model)
    else:
        save(directory, CLOSURE, kind, model)


def save_source(directory: Path, input_type: str, source: str) -> None:
    """Write a deployable model directory for what a person names: a file with a fitted scikit-learn estimator (pickle
    or joblib), or `module:name` of a function or an estimator; the module travels with it. Raises LepaError(invalid).
    """
    if Path(source).is_file():
        save_file(directory, SCIKIT_LEARN, known_input_type(input_type).name, Path(source))
        return
    module_name, separator, name = source.partition(":")
    if not separator or not name:
        raise invalid(f'"{source}" is neither a file nor of the form MODULE:NAME')
    try:
        module = importlib.import_module(module_name)
        model = getattr(module, name)
    except (ImportError, AttributeError) as error:
        raise invalid(f'"{source}" cannot be deployed: {error}') from error
    if getattr(module, "__file__", None) and "site-packages" not in str(module.__file__):
        cloudpickle.register_pickle_by_value(module)
    save_model(directory, input_type, model)


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
