"""scikit-learn's predictions without the ceremony around them, for models where that is most of the time.

`predict` of a linear model computes for 3 microseconds and spends 115 on validation; a forest of 100 trees computes
for 250 and spends 4,500 on joblib, locks and warnings, once a tree, at any size of a batch. Served a small batch after
another, that is where the machine's time goes. So the arithmetic of the commonest models is done here, straight from
their fitted attributes, with the same operations in the same order.

It is used only where it cannot be told from the original. A model qualifies by its methods: they must be the very
functions whose arithmetic this is, so a subclass with ideas of its own, or a release that computes otherwise, does not.
Then both must give equal outputs for `PROBES` batches when the model is loaded. And a batch that is not finite numbers
in as many columns as the model was fitted with goes to the original, which knows what to say about it.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

log = logging.getLogger(__name__)

Predict = Callable[[Any], Any]

PROBES = (0.1, 1.0, 10.0, 1000.0)
"""Spreads of the random numbers in the batches that both ways are compared by."""
PROBE_ROWS = 16


def quick_predict(model: Any) -> Predict | None:
    """A function that predicts as `model.predict` does, but sooner; None where there is none."""
    try:
        arithmetic = _arithmetic(model)
        if arithmetic is None:
            return None
        predict = _guarded(model, arithmetic)
        if _same(model, predict):
            return predict
    except Exception as error:
        log.debug("model has no quick way to predict model=%s", type(model).__name__, exc_info=error)
    return None


def _arithmetic(model: Any) -> Predict | None:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    kinds = (
        (RandomForestClassifier, ("predict", "predict_proba"), _forest_classes),
        (RandomForestRegressor, ("predict",), _forest_means),
        (LogisticRegression, ("predict", "decision_function"), _linear_classes),
        (LinearRegression, ("predict", "_decision_function"), _linear_values),
        (DecisionTreeClassifier, ("predict",), _tree_values),
    )
    for kind, methods, make in kinds:
        if all(getattr(type(model), name, None) is getattr(kind, name, model) for name in methods):
            return make(model)
    return None


def _guarded(model: Any, arithmetic: Predict) -> Predict:
    """`arithmetic` for ordinary batches, the model's own `predict` for all others."""
    columns, original = model.n_features_in_, model.predict

    def predict(rows: Any) -> Any:
        if type(rows) is np.ndarray and rows.ndim == 2 and rows.dtype.kind == "f" and rows.shape[1] == columns:
            single = rows.astype(np.float32)
            if np.isfinite(single).all():
                return arithmetic(rows)
        return original(rows)

    return predict


def _same(model: Any, predict: Predict) -> bool:
    random = np.random.default_rng(1)
    for spread in PROBES:
        rows = random.normal(0.0, spread, (PROBE_ROWS, model.n_features_in_))
        expected, found = model.predict(rows), predict(rows)
        if expected.dtype != found.dtype or not np.array_equal(expected, found):
            return False
        if not np.array_equal(model.predict(rows[:1]), predict(rows[:1])):
            return False
    return True


def _sum_of_trees(model: Any) -> Predict:
    """The trees' values, added up in their order."""
    trees = [estimator.tree_.predict for estimator in model.estimators_]

    def total(rows: Any) -> Any:
        single = np.ascontiguousarray(rows, np.float32)
        values = trees[0](single).astype(np.float64)
        for tree in trees[1:]:
            values += tree(single)
        values /= len(trees)
        return values

    return total


def _forest_classes(model: Any) -> Predict | None:
    if model.n_outputs_ != 1:
        return None
    total, classes = _sum_of_trees(model), model.classes_
    return lambda rows: classes.take(total(rows).argmax(axis=1), axis=0)


def _forest_means(model: Any) -> Predict | None:
    if model.n_outputs_ != 1:
        return None
    total = _sum_of_trees(model)
    return lambda rows: total(rows)[:, 0]


def _tree_values(model: Any) -> Predict | None:
    if model.n_outputs_ != 1:
        return None
    tree, classes = model.tree_.predict, getattr(model, "classes_", None)
    if classes is None:
        return lambda rows: tree(np.ascontiguousarray(rows, np.float32))[:, 0]
    return lambda rows: classes.take(tree(np.ascontiguousarray(rows, np.float32)).argmax(axis=1), axis=0)


def _linear_classes(model: Any) -> Predict:
    weights, intercept, classes = model.coef_.T, model.intercept_, model.classes_
    if weights.shape[1] == 1:
        return lambda rows: classes.take((rows @ weights + intercept).ravel() > 0, axis=0)
    return lambda rows: classes.take((rows @ weights + intercept).argmax(axis=1), axis=0)


def _linear_values(model: Any) -> Predict:
    weights, intercept = model.coef_.T, model.intercept_
    return lambda rows: rows @ weights + intercept
