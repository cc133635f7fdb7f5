"""lepa.serving.quick_predict: with scikit-learn as the oracle."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from lepa.serving.quick_predict import quick_predict

DIGITS = load_digits()
TRAIN, TEST = DIGITS.data[:600], DIGITS.data[600:1200]
NAMES = np.array([f"digit {number}" for number in DIGITS.target[:600]])


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (RandomForestClassifier(20, random_state=1), NAMES),
        (ExtraTreesClassifier(20, random_state=1), DIGITS.target[:600]),
        (RandomForestRegressor(10, random_state=1), DIGITS.target[:600]),
        (ExtraTreesRegressor(10, random_state=1), DIGITS.target[:600]),
        (DecisionTreeClassifier(random_state=1), NAMES),
        (DecisionTreeRegressor(random_state=1), DIGITS.target[:600]),
        (LogisticRegression(max_iter=50), NAMES),
        (LogisticRegression(max_iter=50), DIGITS.target[:600] > 4),
        (LinearRegression(), DIGITS.target[:600]),
        (LinearRegression(), np.stack([DIGITS.target[:600], DIGITS.target[:600] ** 2], axis=1)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_outputs_are_the_models_own_bit_for_bit(model: Any, target: Any) -> None:
    model.fit(TRAIN, target)
    predict = quick_predict(model)
    assert predict is not None
    for rows in (TEST, TEST[:1], TEST.astype(np.float32), np.asfortranarray(TEST)):
        expected, found = model.predict(rows), predict(rows)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


class Opinionated(LogisticRegression):  # type: ignore[misc]
    def decision_function(self, X: Any) -> Any:
        return -super().decision_function(X)


@pytest.mark.parametrize(
    "model",
    [
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=20)),
        Opinionated(max_iter=20),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_what_computes_otherwise_is_left_alone(model: Any) -> None:
    assert quick_predict(model.fit(TRAIN, NAMES)) is None


def test_a_model_that_answers_otherwise_than_its_attributes_say_is_left_alone() -> None:
    model = RandomForestClassifier(3, random_state=1).fit(TRAIN, NAMES)
    model.predict = lambda rows: np.array(["no"] * len(rows))
    assert quick_predict(model) is None


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (np.full((1, 64), np.nan), "NaN"),
        (np.full((1, 64), np.inf), "infinity"),
        (np.zeros((1, 63)), "63 features"),
        (np.zeros(64), "2D array"),
        (np.array([np.zeros(64), np.zeros(2)], dtype=object), "array"),
    ],
)
def test_bad_batches_are_refused_in_scikit_learns_words(rows: Any, sentence: str) -> None:
    predict = quick_predict(LogisticRegression(max_iter=20).fit(TRAIN, NAMES))
    assert predict is not None
    with pytest.raises(ValueError, match=sentence):
        predict(rows)


def test_integers_are_taken_as_scikit_learn_takes_them() -> None:
    model = LinearRegression().fit(TRAIN, DIGITS.target[:600])
    predict = quick_predict(model)
    assert predict is not None
    rows = TEST.astype(np.int32)
    assert np.array_equal(predict(rows), model.predict(rows))
