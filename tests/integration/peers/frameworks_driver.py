"""Fits a model of each framework, deploys it on plain processes, and compares what is served with what it says itself.

    python frameworks_driver.py FOLDER

PYTHONPATH leads to the frameworks. Prints one JSON object: for each model the outputs served and the outputs wanted.
"""

import json
import sys
import time
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import xgboost
from onnx import TensorProto, helper

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager
from lepa.serving.model_directory import describe

SLO_MICROS = 5_000_000
RANDOM = np.random.default_rng(1)
FEATURES = RANDOM.normal(size=(200, 4))
TARGET = FEATURES[:, 0] * 2 + FEATURES[:, 1]
QUESTIONS = FEATURES[:5]


def doubling():
    """An ONNX model: y = 2 x."""
    two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "doubling", [x], [y], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def models(folder):
    """name -> (what is deployed, outputs wanted)."""
    data = xgboost.DMatrix(FEATURES, TARGET)
    booster = xgboost.train({"max_depth": 2}, data, num_boost_round=5)
    booster.save_model(folder / "booster.ubj")
    wrapper = xgboost.XGBRegressor(n_estimators=5, max_depth=2).fit(FEATURES, TARGET)
    boosted = booster.predict(xgboost.DMatrix(QUESTIONS)).tolist()
    quiet = {"verbosity": -1}
    light = lightgbm.train(quiet, lightgbm.Dataset(FEATURES, TARGET), num_boost_round=5)
    light.save_model(folder / "light.txt")
    light_wrapper = lightgbm.LGBMRegressor(n_estimators=5, **quiet).fit(FEATURES, TARGET)
    onnx.save(doubling(), folder / "doubling.onnx")
    doubled = (QUESTIONS.astype("float32") * 2).tolist()
    return {
        "xgboost-booster": (booster, boosted),
        "xgboost-file": (folder / "booster.ubj", boosted),
        "xgboost-wrapper": (wrapper, wrapper.predict(QUESTIONS).tolist()),
        "lightgbm-booster": (light, light.predict(QUESTIONS).tolist()),
        "lightgbm-file": (folder / "light.txt", light.predict(QUESTIONS).tolist()),
        "lightgbm-wrapper": (light_wrapper, light_wrapper.predict(QUESTIONS).tolist()),
        "onnx-model": (doubling(), doubled),
        "onnx-file": (folder / "doubling.onnx", doubled),
    }


def served(connection, name):
    """The outputs for all questions, once the frontend has read about the model."""
    for _ in range(200):
        answers = [connection.predict(name, list(question)) for question in QUESTIONS]
        if not any(answer["default"] for answer in answers):
            break
        time.sleep(0.05)
    return [answer["output"] for answer in answers]


def run(folder):
    told = {}
    connection = ClipperConnection(
        LocalContainerManager("frameworks", folder, query_port=0, management_port=0, rpc_port=0)
    )
    connection.start_clipper()
    try:
        for name, (model, wanted) in models(folder).items():
            deployers.create_endpoint(connection, name, "doubles", model, slo_micros=SLO_MICROS)
            told[name] = {"served": served(connection, name), "wanted": wanted}
            told[name]["packages"] = describe(folder / "frameworks" / "models" / name / "1").packages
            connection.stop_models([name])
        (folder / "broken.onnx").write_bytes(b"not a model")
        try:
            deployers.deploy_model(connection, "broken", 1, "doubles", folder / "broken.onnx")
        except LepaError as error:
            told["broken"] = error.message
    finally:
        connection.stop_all()
    return told


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
