"""lepa.serving.model_directory"""

from pathlib import Path

import cloudpickle
import joblib
import msgspec
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from lepa.model.errors import LepaError
from lepa.serving.environment import python_version
from lepa.serving.frameworks import CLOSURE, SCIKIT_LEARN
from lepa.serving.model_directory import ModelDescription, describe, load, save, save_file


def rewrite(directory: Path, **changes: object) -> None:
    description = msgspec.structs.replace(describe(directory), **changes)
    (directory / "model.json").write_bytes(msgspec.json.encode(description))


def test_a_closure_comes_back_with_what_it_refers_to(tmp_path: Path) -> None:
    offset = 10
    save(tmp_path, CLOSURE, "ints", lambda inputs: [row + offset for row in inputs])
    assert load(tmp_path)([1, 2]) == [11, 12]
    assert describe(tmp_path) == ModelDescription(CLOSURE, "ints", python_version())


def test_an_estimator_predicts_by_itself_or_through_a_function(tmp_path: Path) -> None:
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0])
    save(tmp_path / "a", "scikit-learn", "doubles", None, model)
    assert load(tmp_path / "a")(np.array([[3.0]])) == pytest.approx([6.0])
    save(tmp_path / "b", "scikit-learn", "doubles", lambda model, inputs: model.predict(inputs) + 1, model)
    assert load(tmp_path / "b")(np.array([[3.0]])) == pytest.approx([7.0])
    assert {"scikit-learn", "numpy"} <= set(describe(tmp_path / "a").packages)


def test_a_file_that_holds_a_fitted_model_is_copied_as_it_is(tmp_path: Path) -> None:
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0]), tmp_path / "fitted.joblib")
    save_file(tmp_path / "m", SCIKIT_LEARN, "doubles", tmp_path / "fitted.joblib")
    assert load(tmp_path / "m")(np.array([[3.0]])) == pytest.approx([6.0])
    joblib.dump([1, 2], tmp_path / "list.joblib")
    save_file(tmp_path / "l", SCIKIT_LEARN, "doubles", tmp_path / "list.joblib")
    with pytest.raises(LepaError, match="a list has no predict method"):
        load(tmp_path / "l")


def test_another_python_or_a_missing_package_is_refused_with_a_sentence(tmp_path: Path) -> None:
    save(tmp_path, CLOSURE, "ints", len)
    rewrite(tmp_path, packages={"no-such-package": "1.0"})
    with pytest.raises(LepaError, match=r"needs no-such-package 1\.0; found none"):
        load(tmp_path)
    rewrite(tmp_path, python="2.7")
    with pytest.raises(LepaError, match=r"was pickled by Python 2\.7"):
        load(tmp_path)


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="is not a deployable model"):
        describe(tmp_path)
    (tmp_path / "model.json").write_text('{"framework":"magic","input_type":"d","python":"3"}')
    with pytest.raises(LepaError, match='unknown framework "magic"; known are closure'):
        describe(tmp_path)


def test_a_directory_of_clippers_own_deployer_is_a_closure(tmp_path: Path) -> None:
    (tmp_path / "func.pkl").write_bytes(cloudpickle.dumps(lambda inputs: ["7"], protocol=2))
    assert describe(tmp_path).framework == CLOSURE
    assert load(tmp_path)([1]) == ["7"]


def test_what_is_not_a_function_is_refused(tmp_path: Path) -> None:
    save(tmp_path, CLOSURE, "ints", 3)  # type: ignore[arg-type]
    with pytest.raises(LepaError, match="deployed from a function, not from a int"):
        load(tmp_path)
