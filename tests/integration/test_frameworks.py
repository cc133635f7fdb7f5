"""Models of the real XGBoost, LightGBM and ONNX Runtime are served as they predict themselves.

PyTorch's wheel is larger than everything else together; its row is tested with a stand-in in the unit tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.peers import LOCKS, install


@pytest.mark.timeout(600)
def test_models_of_every_framework_are_served_as_they_predict_themselves(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(install("frameworks", tmp_path))}
    command = [sys.executable, LOCKS / "frameworks_driver.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    broken = told.pop("broken")
    assert "model broken:1 did not come up" in broken
    assert len(told) == 8
    for name, found in told.items():
        for served, wanted in zip(found["served"], found["wanted"], strict=True):
            assert served == pytest.approx(wanted, rel=1e-5), name
    assert "xgboost-cpu" in told["xgboost-booster"]["packages"]
    assert "lightgbm" in told["lightgbm-file"]["packages"]
    assert "onnxruntime" in told["onnx-file"]["packages"]
