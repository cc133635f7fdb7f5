"""From a Python model to running replicas, in one call: functions, and the models of every row of `frameworks`.

`save_source` is the same for what a person names on a command line; its directory goes to
`ClipperConnection.build_and_deploy_model`.
"""

import importlib
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lepa.model.errors import invalid
from lepa.serving.connection import ClipperConnection
from lepa.serving.frameworks import CLOSURE, framework, framework_of, framework_of_file
from lepa.serving.inputs import input_type as known_input_type
from lepa.serving.model_directory import save, save_file
from lepa.serving.records import BATCH_SIZE_ADAPTIVE

DEFAULT_SLO_MICROS = 3_000_000

Function = Callable[..., Any]


def deploy_model(
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
    """Deploy a fitted model, a file with one, or a function. func: answers as `func(model, inputs) -> outputs`; without
    it the model predicts as its framework does."""
    kind = known_input_type(input_type).name
    with tempfile.TemporaryDirectory(prefix="lepa-model-") as directory:
        save_model(Path(directory), kind, model, func)
        connection.build_and_deploy_model(name, version, kind, directory, labels, num_replicas, batch_size)


deploy_sklearn_model = deploy_model
"""The name in which scikit-learn's users look for it."""


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
    framework(CLOSURE).predict(func)
    deploy_model(connection, name, version, input_type, func, None, labels, num_replicas, batch_size)


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
    """Register an application, deploy a model (or a function) under the same name, and link them."""
    connection.register_application(name, input_type, default_output, slo_micros)
    deploy_model(connection, name, version, input_type, model, num_replicas=num_replicas)
    connection.link_model_to_app(name, name)


def save_model(directory: Path, input_type: str, model: Any, func: Function | None = None) -> None:
    """Write a deployable model directory for a model, a file with one (a `Path`), or a function."""
    kind = known_input_type(input_type).name
    if isinstance(model, Path):
        save_file(directory, framework_of_file(model), kind, model)
        return
    name = framework_of(model)
    if name != CLOSURE:
        save(directory, name, kind, func, model)
    elif func is None:
        save(directory, CLOSURE, kind, getattr(model, "predict", model))
    else:
        save(directory, CLOSURE, kind, partial(func, model))


def save_source(directory: Path, input_type: str, source: str) -> None:
    """Write a deployable model directory for what a person names: a file with a fitted model, or `module:name` of a
    function or a model; the module travels with it. Raises LepaError(invalid)."""
    if Path(source).is_file():
        save_model(directory, input_type, Path(source))
        return
    module_name, separator, name = source.partition(":")
    if not separator or not name:
        raise invalid(f'"{source}" is neither a file nor of the form MODULE:NAME')
    try:
        model = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise invalid(f'"{source}" cannot be deployed: {error}') from error
    save_model(directory, input_type, model)
