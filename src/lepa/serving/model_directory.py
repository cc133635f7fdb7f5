"""A deployable model: a directory with the pickled model and a description of what it needs.

    model.json   ModelDescription
    func.pkl     cloudpickle of the prediction function
    model.pkl    for frameworks: the fitted model

A pickle is code: it is read only inside the model's own process (`load`), never by a frontend or a manager. What it was
made with stands beside it in plain JSON, so that a process that cannot run it says so in a sentence.
"""

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

PredictFunction = Callable[[Any], Any]


class ModelDescription(Struct, frozen=True):
    """framework: a key of `FRAMEWORKS`. python: major.minor that pickled it. packages: versions it was made with,
    of the framework itself."""

    framework: str
    input_type: str
    python: str
    packages: dict[str, str] = {}


class Framework(Struct, frozen=True):
    """What differs between frameworks. packages: what the model process must have in the same major version."""

    packages: tuple[str, ...] = ()


FRAMEWORKS = {
    CLOSURE: Framework(),
    "scikit-learn": Framework(packages=("scikit-learn", "numpy")),
}
"""A framework is one row: its model is pickled and handed to the function as `function(model, inputs)`."""


def save(directory: Path, framework: str, input_type: str, function: PredictFunction | None, model: Any = None) -> None:
    """Write a deployable model into an empty directory."""
    import cloudpickle

    packages = {name: version(name) for name in FRAMEWORKS[framework].packages}
    description = ModelDescription(framework, input_type, python_version(), packages)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FUNCTION_FILE).write_bytes(cloudpickle.dumps(function))
    if framework != CLOSURE:
        (directory / MODEL_FILE).write_bytes(cloudpickle.dumps(model))
    (directory / DESCRIPTION_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(description)))


def describe(directory: Path) -> ModelDescription:
    """Read the description. Raises LepaError(invalid) where there is none, or none we know."""
    path = directory / DESCRIPTION_FILE
    try:
        description = msgspec.json.decode(path.read_bytes(), type=ModelDescription)
    except (OSError, msgspec.MsgspecError) as error:
        raise invalid(f"{directory} is not a deployable model: {error}") from error
    if description.framework not in FRAMEWORKS:
        raise invalid(f'{path}: unknown framework "{description.framework}"; known are {", ".join(FRAMEWORKS)}')
    return description


def load(directory: Path) -> PredictFunction:
    """The prediction function of a deployable model. Runs the model's code; only for the model's own process."""
    import cloudpickle

    description = describe(directory)
    _check_environment(description)
    sys.path.append(str(directory / "modules"))
    function = cloudpickle.loads((directory / FUNCTION_FILE).read_bytes())
    if description.framework == CLOSURE:
        return _checked(function, directory)
    model = cloudpickle.loads((directory / MODEL_FILE).read_bytes())
    if function is None:
        return _checked(model.predict, directory)
    return _checked(lambda inputs: function(model, inputs), directory)


def _checked(function: Any, directory: Path) -> PredictFunction:
    if not callable(function):
        raise invalid(f"{directory / FUNCTION_FILE} holds a {type(function).__name__}, not a function")
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
