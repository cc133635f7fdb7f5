"""The real tritonclient asks lepa through the Open Inference Protocol."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.peers import LOCKS, install
from tritonclient import grpc as triton

from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager

SLO_MICROS = 2_000_000


def ask_over_grpc(manager: LocalContainerManager) -> Any:
    """What the sums of two rows are, as soon as a model answers."""
    rows = triton.InferInput("input", [2, 2], "FP64").set_data_from_numpy(np.array([[1.0, 2.0], [3.0, 4.5]]))
    with triton.InferenceServerClient(str(manager.get_grpc_addr())) as client:
        for _ in range(200):
            if client.is_model_ready("sum"):
                break
            time.sleep(0.05)
        return client.infer("sum", [rows]).as_numpy("output").tolist()


@pytest.mark.timeout(400)
def test_tritons_client_reads_metadata_and_infers_with_binary_and_json_tensors(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(install("tritonclient", tmp_path))}
    manager = LocalContainerManager("oip", tmp_path, query_port=0, management_port=0, rpc_port=0, grpc_port=0)
    connection = ClipperConnection(manager)
    connection.start_clipper()
    try:
        deployers.create_endpoint(connection, "sum", "doubles", lambda rows: rows.sum(axis=1), slo_micros=SLO_MICROS)
        deployers.create_endpoint(
            connection, "shout", "strings", lambda texts: [text.upper() for text in texts], slo_micros=SLO_MICROS
        )
        for _ in range(200):
            if not connection.predict("shout", "a")["default"]:
                break
            time.sleep(0.05)
        command = [sys.executable, LOCKS / "tritonclient_driver.py", connection.get_query_addr()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        manager.restart_query_frontend()
        over_grpc = ask_over_grpc(manager)
    finally:
        connection.stop_all()
    assert over_grpc == [3.0, 7.5]
    assert done.returncode == 0, done.stderr[-5000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (told["live"], told["ready"], told["model_ready"], told["server"]) == (True, True, True, "lepa")
    assert told["model"]["inputs"] == [{"name": "input", "datatype": "FP64", "shape": [-1, -1]}]
    assert told["sum_True"] == told["sum_False"] == told["asked"] == [3.0, 7.5]
    assert told["shout"] == ["CAT", "TR\u00c9S"]
    assert "there is no application nobody" in told["nobody"]
