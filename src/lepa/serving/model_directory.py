"""A deployable model: a directory with the pickled model and a description of what it needs.

    model.json   ModelDescription
    func.pkl     cloudpickle of the prediction function; without it a model predicts by itself
    model.*      for frameworks: the fitted model, as the framework saves it

A pickle is code: it is read only inside the model's own process (`load`), never by a frontend or a manager. What it was
made with stands beside it in plain JSON, so that a process that cannot run it says so in a sentence. `frameworks` has
what differs between frameworks.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lepa.model.errors import invalid
from lepa.serving import environment
from lepa.serving.frameworks import CLOSURE, PredictFunction, framework

DESCRIPTION_FILE = "model.json"
FUNCTION_FILE = "func.pkl"
MODEL_STEM = "model"
ROUNDS_MAX = 10
"""Own modules that refer to further own modules are found one layer a round."""


class ModelDescription(Struct, frozen=True):
    """framework: a key of `FRAMEWORKS`. python: major.minor that pickled it. packages: what it was made with: those of
    its framework, and those that its pickles refer to. model_file: "" for a closure."""

    framework: str
    input_type: str
    python: str
    packages: dict[str, str] = {}
    model_file: str = ""


def save(directory: Path, name: str, input_type: str, function: PredictFunction | None, model: Any = None) -> None:
    """Write a deployable model of the framework `name` into an empty directory."""
    directory.mkdir(parents=True, exist_ok=True)
    row = framework(name)
    pickles = []
    if function is not None:
        pickles.append(_pickled(function))
        (directory / FUNCTION_FILE).write_bytes(pickles[0])
    model_file = ""
    if name != CLOSURE:
        model_file = MODEL_STEM + row.suffix
        row.save(model, directory / model_file)
        if row.suffix == ".pkl":
            pickles.append((directory / model_file).read_bytes())
    modules = {module for pickle in pickles for module in environment.modules_named(pickle)}
    _describe(directory, name, input_type, model_file, environment.packages_of(modules))


def save_file(directory: Path, name: str, input_type: str, model_file: Path) -> None:
    """Write a deployable model from a file that holds a fitted one. The file is copied, not read: it is code."""
    directory.mkdir(parents=True, exist_ok=True)
    target = MODEL_STEM + model_file.suffix.lower()
    shutil.copyfile(model_file, directory / target)
    _describe(directory, name, input_type, target, {})


def _pickled(function: PredictFunction) -> bytes:
    """The function with everything it refers to in modules that are a person's own files."""
    import cloudpickle

    by_value: list[Any] = []
    try:
        for _ in range(ROUNDS_MAX):
            pickle: bytes = cloudpickle.dumps(function)
            found = environment.own_modules(environment.modules_named(pickle))
            if not (fresh := [module for module in found if module not in by_value]):
                break
            for module in fresh:
                cloudpickle.register_pickle_by_value(module)
            by_value += fresh
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return pickle


def _describe(directory: Path, name: str, input_type: str, model_file: str, packages: dict[str, str]) -> None:
    made_with = {**packages, **environment.versions(framework(name).packages)}
    description = ModelDescription(name, input_type, environment.python_version(), made_with, model_file)
    (directory / DESCRIPTION_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(description)))


def describe(directory: Path) -> ModelDescription:
    """Read the description. Raises LepaError(invalid) where there is none, or none we know. A directory that Clipper's
    own deployer wrote holds a closure and no description."""
    path = directory / DESCRIPTION_FILE
    if not path.exists() and (directory / FUNCTION_FILE).exists():
        return ModelDescription(CLOSURE, "", environment.python_version())
    try:
        description = msgspec.json.decode(path.read_bytes(), type=ModelDescription)
    except (OSError, msgspec.MsgspecError) as error:
        raise invalid(f"{directory} is not a deployable model: {error}") from error
    framework(description.framework)
    return description


def load(directory: Path) -> PredictFunction:
    """The prediction function of a deployable model. Runs the model's code; only for the model's own process."""
    description = describe(directory)
    environment.check(description.python, description.packages)
    sys.path.append(str(directory / "modules"))
    row = framework(description.framework)
    function_file = directory / FUNCTION_FILE
    function = framework(CLOSURE).load(function_file) if function_file.exists() else None
    if description.framework == CLOSURE:
        return row.predict(function)
    model = row.load(directory / description.model_file)
    if function is None:
        return row.predict(model)
    return lambda inputs: function(model, inputs)
