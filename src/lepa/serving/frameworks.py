"""What differs between the frameworks that models come from: one table, one row each.

A row says how a model is recognised, written to a file and read again, and how it predicts when no function is given.
Everything else about deploying a model is the same for all of them (`model_directory`, `deployers`). A framework is
imported only when a model of it is saved or loaded: nothing here needs one to be installed.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lepa.model.errors import LepaError, invalid

PredictFunction = Callable[[Any], Any]

CLOSURE = "closure"
PICKLE = ".pkl"


class Framework(Struct, frozen=True):
    """One row.

    modules: top-level modules whose classes are its models. packages: distributions that the model's process needs, in
    the same major version. suffix: of the file that a model is saved in. files: suffixes of files that are taken as
    they are. save, load: a model to such a file and back. predict: how a model answers a batch by itself.
    """

    name: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    suffix: str
    files: tuple[str, ...]
    save: Callable[[Any, Path], None]
    load: Callable[[Path], Any]
    predict: Callable[[Any], PredictFunction]


def framework(name: str) -> Framework:
    """The row called `name`. Raises LepaError(invalid) for another."""
    if name not in FRAMEWORKS:
        raise invalid(f'unknown framework "{name}"; known are {", ".join(FRAMEWORKS)}')
    return FRAMEWORKS[name]


def framework_of(model: Any) -> str:
    """The framework a model belongs to, by the modules that its classes come from; anything else that predicts, or can
    be called, is a closure."""
    tops = [kind.__module__.partition(".")[0] for kind in type(model).__mro__]
    for row in FRAMEWORKS.values():
        if any(top in row.modules for top in tops):
            return row.name
    if hasattr(model, "predict") or callable(model):
        return CLOSURE
    raise invalid(
        f"a {type(model).__name__} is neither a function nor a model of {', '.join(FRAMEWORKS)}, "
        "and has no predict method; deploy a function that takes a batch of inputs"
    )


def framework_of_file(path: Path) -> str:
    """The framework of a file that holds a fitted model, by its suffix. Raises LepaError(invalid) for others."""
    for row in FRAMEWORKS.values():
        if path.suffix.lower() in row.files:
            return row.name
    known = ", ".join(f"{suffix} ({row.name})" for row in FRAMEWORKS.values() for suffix in row.files)
    raise invalid(f"{path} does not end like a file of a fitted model; known are {known}")


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LepaError("unsupported", f"the model needs {package}, which is not installed here: {error}") from error


# Pickles


def _save_pickle(model: Any, path: Path) -> None:
    import cloudpickle

    path.write_bytes(cloudpickle.dumps(model))


def _load_pickle(path: Path) -> Any:
    import cloudpickle

    return cloudpickle.loads(path.read_bytes())


def _load_joblib(path: Path) -> Any:
    """joblib comes with scikit-learn, and reads plain pickles too."""
    return _import("joblib", "scikit-learn").load(path)


def _predict_sklearn(model: Any) -> PredictFunction:
    from lepa.serving.quick_predict import quick_predict

    return quick_predict(model) or _own_predict(model)


def _own_predict(model: Any) -> PredictFunction:
    predict = getattr(model, "predict", None)
    if not callable(predict):
        raise invalid(f"a {type(model).__name__} has no predict method; pass a function that takes (model, inputs)")
    return cast(PredictFunction, predict)


def _itself(model: Any) -> PredictFunction:
    if not callable(model):
        raise invalid(f"a closure is deployed from a function, not from a {type(model).__name__}")
    return cast(PredictFunction, model)


# Gradient boosting: wrappers with scikit-learn's manners are pickled, bare boosters have files of their own


def _load_xgboost(path: Path) -> Any:
    xgboost = _import("xgboost", "xgboost")
    return _load_pickle(path) if path.suffix == PICKLE else xgboost.Booster(model_file=str(path))


def _predict_xgboost(model: Any) -> PredictFunction:
    xgboost = _import("xgboost", "xgboost")
    if not isinstance(model, xgboost.Booster):
        return _own_predict(model)
    return lambda inputs: model.predict(xgboost.DMatrix(inputs))


def _load_lightgbm(path: Path) -> Any:
    lightgbm = _import("lightgbm", "lightgbm")
    return _load_pickle(path) if path.suffix == PICKLE else lightgbm.Booster(model_file=str(path))


# ONNX Runtime


_ONNX_TYPES = {"float": "float32", "double": "float64", "int32": "int32", "int64": "int64", "uint8": "uint8"}


def _save_onnx(model: Any, path: Path) -> None:
    if not hasattr(model, "SerializeToString"):
        raise invalid(f"a {type(model).__name__} cannot be saved; deploy the .onnx file or the onnx.ModelProto")
    path.write_bytes(model.SerializeToString())


def _load_onnx(path: Path) -> Any:
    runtime = _import("onnxruntime", "onnxruntime")
    return runtime.InferenceSession(str(path), providers=runtime.get_available_providers())


def _predict_onnx(session: Any) -> PredictFunction:
    """The first output for the first input, which takes the batch; strings go in as they are."""
    entry = session.get_inputs()[0]
    dtype = _ONNX_TYPES.get(entry.type.removeprefix("tensor(").removesuffix(")"))

    def predict(inputs: Any) -> Any:
        return session.run(None, {entry.name: inputs.astype(dtype) if dtype else inputs})[0]

    return predict


# PyTorch


def _load_torch(path: Path) -> Any:
    torch = _import("torch", "torch")
    model = _load_pickle(path) if path.suffix == PICKLE else torch.jit.load(str(path), map_location="cpu")
    return model.eval()


def _predict_torch(model: Any) -> PredictFunction:
    """Inputs as a tensor of the type of the model's weights."""
    torch = _import("torch", "torch")
    weights = next(iter(model.parameters()), None)

    def predict(inputs: Any) -> Any:
        batch = torch.as_tensor(inputs)
        with torch.inference_mode():
            return model(batch if weights is None else batch.to(weights.device, weights.dtype)).cpu().numpy()

    return predict


SCIKIT_LEARN = "scikit-learn"
_PICKLES = (PICKLE, ".pickle", ".joblib")

FRAMEWORKS = {
    row.name: row
    for row in (
        Framework(CLOSURE, (), (), PICKLE, (), _save_pickle, _load_pickle, _itself),
        Framework(
            "xgboost",
            ("xgboost",),
            ("xgboost",),
            PICKLE,
            (".ubj", ".json"),
            _save_pickle,
            _load_xgboost,
            _predict_xgboost,
        ),
        Framework(
            "lightgbm", ("lightgbm",), ("lightgbm",), PICKLE, (".txt",), _save_pickle, _load_lightgbm, _own_predict
        ),
        Framework(
            "onnx",
            ("onnx", "onnxruntime"),
            ("onnxruntime",),
            ".onnx",
            (".onnx",),
            _save_onnx,
            _load_onnx,
            _predict_onnx,
        ),
        Framework(
            "pytorch", ("torch",), ("torch",), PICKLE, (".pt", ".pth"), _save_pickle, _load_torch, _predict_torch
        ),
        Framework(
            SCIKIT_LEARN,
            ("sklearn",),
            ("scikit-learn", "numpy"),
            PICKLE,
            _PICKLES,
            _save_pickle,
            _load_joblib,
            _predict_sklearn,
        ),
    )
}
"""By name; scikit-learn last, for the wrappers of others inherit from its classes."""
