"""lepa.serving.deployers"""

import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from lepa.model.errors import LepaError
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager
from lepa.serving.deployers import deploy_python_closure, deploy_sklearn_model, save_model, save_source
from lepa.serving.frameworks import CLOSURE, SCIKIT_LEARN
from lepa.serving.model_directory import describe, load


def test_the_framework_of_a_model_is_seen(tmp_path: Path) -> None:
    save_model(tmp_path / "a", "d", LinearRegression())
    save_model(tmp_path / "b", "d", len)
    assert describe(tmp_path / "a").framework == SCIKIT_LEARN
    assert describe(tmp_path / "b").framework == CLOSURE
    assert describe(tmp_path / "b").input_type == "doubles"


def test_a_file_or_a_name_in_a_module_is_deployable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0]), tmp_path / "fitted.joblib")
    save_source(tmp_path / "a", "doubles", str(tmp_path / "fitted.joblib"))
    assert load(tmp_path / "a")(np.array([[1.0]])) == pytest.approx([2.0])

    (tmp_path / "shouting.py").write_text(
        "def helper(x):\n    return x.upper()\ndef shout(xs):\n    return [helper(x) for x in xs]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    save_source(tmp_path / "b", "strings", "shouting:shout")
    monkeypatch.delitem(sys.modules, "shouting")
    (tmp_path / "shouting.py").unlink()
    assert load(tmp_path / "b")(["a"]) == ["A"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nothing", "neither a file nor of the form MODULE:NAME"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("json:no_such_name", "no_such_name"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path: Path, source: str, sentence: str) -> None:
    with pytest.raises(LepaError, match=sentence):
        save_source(tmp_path, "doubles", source)


def test_what_cannot_predict_is_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    connection = ClipperConnection(LocalContainerManager("none", tmp_path))
    with pytest.raises(LepaError, match="deployed from a function, not from a int"):
        deploy_python_closure(connection, "m", 1, "doubles", 3)  # type: ignore[arg-type]
    with pytest.raises(LepaError, match="a int is neither a function nor a model of closure, xgboost"):
        deploy_sklearn_model(connection, "m", 1, "doubles", 3)


class Doubler:
    def predict(self, inputs: list[int]) -> list[int]:
        return [2 * number for number in inputs]


def test_whatever_predicts_is_deployable_and_a_function_may_stand_before_it(tmp_path: Path) -> None:
    save_model(tmp_path / "a", "ints", Doubler())
    assert load(tmp_path / "a")([2]) == [4]
    save_model(tmp_path / "b", "ints", Doubler(), lambda model, inputs: [n + 1 for n in model.predict(inputs)])
    assert load(tmp_path / "b")([2]) == [5]
