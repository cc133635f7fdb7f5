"""A deployable model: a directory with the pickled model and a description of what it needs.

    model.json   ModelDescription
    func.pkl     cloudpickle of the prediction function
    model.pkl    for frameworks: the fitted model, as the framework saves it

A pickle is code: it is read only inside the model's own process (`load`), never by a frontend or a manager. What it was
made with stands beside it in plain JSON, so that a process that cannot run it says so in a sentence.
"""

import importlib
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lepa.model.errors import LepaError, invalid

DESCRIPTION_FILE = "model.json"
FUNCTION_FILE = "func.pkl"
MODEL_FILE = "model.pkl"
CLOSURE = "closure"
SCIKIT_LEARN = "scikit-learn"

PredictFunction = Callable[[Any], Any]


class ModelDescription(Struct, frozen=True):
    """framework: a key of `FRAMEWORKS`. python: major.minor that pickled it. packages: versions it was made with,
    of the framework itself."""

    framework: str
    input_type: str
    python: str
    packages: dict[str, str] = {}


class Framework(Struct, frozen=True):
    """What differs between frameworks. load: reads a model file; packages: what the model process must have in the same
    major version."""

    load: Callable[[Path], Any]
    packages: tuple[str, ...] = ()


def _load_pickle(path: Path) -> Any:
    import cloudpickle

    return cloudpickle.loads(path.read_bytes())


def _load_joblib(path: Path) -> Any:
    """joblib comes with scikit-learn, and reads plain pickles too."""
    return importlib.import_module("joblib").load(path)


FRAMEWORKS = {
    CLOSURE: Framework(_load_pickle),
    SCIKIT_LEARN: Framework(_load_joblib, packages=("scikit-learn", "numpy")),
}
"""A framework is one row: its model is saved in a file and handed to the function as `function(model, inputs)`."""


def save(directory: Path, framework: str, input_type: str, function: PredictFunction | None, model: Any = None) -> None:
    """Write a deployable model into an empty directory."""
    import cloudpickle

    _write_description(directory, framework, input_type)
    (directory / FUNCTION_FILE).write_bytes(cloudpickle.dumps(function))
    if framework != CLOSURE:
        (directory / MODEL_FILE).write_bytes(cloudpickle.dumps(model))


def save_file(directory: Path, framework: str, input_type: str, model_file: Path) -> None:
    """Write a deployable model from a file that holds a fitted one. The file is copied, not read: it is code."""
    _write_description(directory, framework, input_type)
    shutil.copyfile(model_file, directory / MODEL_FILE)


def _write_description(directory: Path, framework: str, input_type: str) -> None:
    packages = {name: version(name) for name in FRAMEWORKS[framework].packages}
    description = ModelDescription(framework, input_type, python_version(), packages)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DESCRIPTION_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(description)))


def describe(directory: Path) -> ModelDescription:
    """Read the description. Raises LepaError(invalid) where there is none, or none we know. A directory that Clipper's
    own deployer wrote holds a closure and no description."""
    path = directory / DESCRIPTION_FILE
    if not path.exists() and (directory / FUNCTION_FILE).exists():
        return ModelDescription(CLOSURE, "", python_version())
    try:
        description = msgspec.json.decode(path.read_bytes(), type=ModelDescription)
    except (OSError, msgspec.MsgspecError) as error:
        raise invalid(f"{directory} is not a deployable model: {error}") from error
    if description.framework not in FRAMEWORKS:
        raise invalid(f'{path}: unknown framework "{description.framework}"; known are {", ".join(FRAMEWORKS)}')
    return description


def load(directory: Path) -> PredictFunction:
    """The prediction function of a deployable model. Runs the model's code; only for the model's own process."""
    description = describe(directory)
    _check_environment(description)
    sys.path.append(str(directory / "modules"))
    function_file = directory / FUNCTION_FILE
    function = _load_pickle(function_file) if function_file.exists() else None
    if description.framework == CLOSURE:
        return _checked(function, directory)
    model = FRAMEWORKS[description.framework].load(directory / MODEL_FILE)
    if function is None:
        return _checked(getattr(model, "predict", None), directory)
    return _checked(lambda inputs: function(model, inputs), directory)


def _checked(function: Any, directory: Path) -> PredictFunction:
    if not callable(function):
        raise invalid(f"{directory} holds no function that predicts, but a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def _check_environment(description: ModelDescription) -> None:
    if description.python != python_version():
        raise LepaError(
            "unsupported",
            f"the model was pickled by Python {description.python} and this process is Python {python_version()}; "
            "deploy it again from the Python that shall run it",
        )
    for name, made_with in description.packages.items():
        here = _installed(name)
        if here is None or here.split(".")[0] != made_with.split(".")[0]:
            raise LepaError(
                "unsupported", f"the model needs {name} {made_with}; found {here or 'none'}; install it here"
            )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def python_version() -> str:
    """major.minor of this interpreter."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
