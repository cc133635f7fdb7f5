"""lepa.serving.frameworks; the packages themselves are in tests/integration/test_frameworks.py"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from lepa.model.errors import LepaError
from lepa.serving import frameworks
from lepa.serving.frameworks import FRAMEWORKS, framework, framework_of, framework_of_file


def model_from(module: str, **attributes: Any) -> Any:
    return type("Model", (), {"__module__": module, **attributes})()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (len, "closure"),
        (LinearRegression(), "scikit-learn"),
        (model_from("xgboost.sklearn"), "xgboost"),
        (model_from("lightgbm.basic"), "lightgbm"),
        (model_from("onnx.onnx_ml_pb2"), "onnx"),
        (model_from("torch.nn.modules"), "pytorch"),
        (model_from("mine", predict=lambda self, inputs: inputs), "closure"),
    ],
)
def test_a_model_is_known_by_where_its_class_comes_from(model: Any, name: str) -> None:
    assert framework_of(model) == name


def test_a_class_of_ones_own_belongs_to_the_framework_it_inherits_from() -> None:
    class Mine(LinearRegression):  # type: ignore[misc]
        pass

    assert framework_of(Mine()) == "scikit-learn"
    with pytest.raises(LepaError, match="a int is neither a function nor a model of"):
        framework_of(3)


def test_a_file_is_known_by_its_suffix() -> None:
    assert framework_of_file(Path("a.ONNX")) == "onnx"
    assert framework_of_file(Path("a.pkl")) == "scikit-learn"
    assert framework_of_file(Path("a.ubj")) == "xgboost"
    with pytest.raises(LepaError, match=r"known are .*\.onnx \(onnx\)"):
        framework_of_file(Path("a.exe"))
    with pytest.raises(LepaError, match='unknown framework "magic"'):
        framework("magic")


def test_a_framework_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(frameworks, "importlib", SimpleNamespace(import_module=missing))
    for name in ("xgboost", "lightgbm", "onnx", "pytorch"):
        with pytest.raises(LepaError, match="which is not installed here"):
            FRAMEWORKS[name].load(tmp_path / "model.bin")


class Session:
    """As onnxruntime's."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", type=self.kind)]

    def run(self, outputs: Any, inputs: Any) -> Any:
        return [(inputs["x"].dtype, inputs["x"] * 2)]


def test_an_onnx_session_gets_the_type_that_it_wants() -> None:
    predict = FRAMEWORKS["onnx"].predict(Session("tensor(float)"))
    assert predict(np.array([[1.0]]))[0] == np.dtype("float32")
    with pytest.raises(LepaError, match="cannot be saved; deploy the"):
        FRAMEWORKS["onnx"].save(Session("tensor(float)"), Path("/nowhere"))
