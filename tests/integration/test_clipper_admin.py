"""The real clipper_admin 0.4.1, as its users have it, drives frontends of lepa: every method of its connection."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.peers import LOCKS, install


@pytest.mark.timeout(400)
def test_every_method_of_clippers_own_library_works(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    # It leaves the folder of a function behind where temporary files are.
    environment = {**os.environ, "PYTHONPATH": str(install("clipper_admin", tmp_path)), "TMPDIR": str(tmp_path)}
    command = [sys.executable, LOCKS / "clipper_admin_driver.py", sys.executable, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    app = {
        "name": "app",
        "input_type": "doubles",
        "default_output": "-1.0",
        "latency_slo_micros": 500000,
        "linked_models": [],
    }
    assert told["unused"] == []
    assert told["unconnected"]
    assert told["apps"] == ["app"]
    assert told["apps_verbose"] == [app]
    assert told["app_info"] == app
    assert told["no_app_info"] is None
    assert "application 'app' already exists" in told["app_again"]
    assert told["without_model"]["default_explanation"] == "No connected models found for query"
    assert told["without_model"]["output"] == -1.0

    assert told["linked"] == ["m"]
    assert "The model with name 'm' is already linked to 'app'" in told["link_again"]
    assert (told["predicted"]["output"], told["predicted"]["default"]) == (3.0, False)
    assert [one["output"] for one in told["batch"]["batch_predictions"]] == [1.0, 7.0]
    assert told["replicas"] == ["m:1:0"]
    assert told["replica_info"] == {
        "model_id": "m:1",
        "model_name": "m",
        "model_version": "1",
        "model_replica_id": 0,
        "input_type": "doubles",
    }
    assert told["no_replica_info"] is None

    assert told["image"] == "registry/cluster-m:2"
    assert told["pushed"] == ["cluster-m:1", "registry/cluster-m:2", "cluster-n:1"]
    assert (told["current"], told["back"]) == ("2", "1")
    assert told["models"] == ["m:1", "m:2"]
    assert told["model_info"]["labels"] == ["first"]
    assert told["model_info"]["container_name"] == "cluster-m:1"
    assert told["no_model_info"] is None
    assert "model with name 'm' and version '2' already exists" in told["model_again"]
    assert told["num_replicas"] == 2
    assert told["replicas_of_2"] == ["m:2:0", "m:2:1"]
    assert "Cannot set non-existent version '9' for model with name 'm'" in told["bad_version"]
    assert told["containerless"] == "Cannot resize the replica set for containerless model external:1"
    assert "incompatible input_type 'integers'" in told["incompatible"]
    assert told["unlinked"] == []

    assert told["tested"] == ["7"]
    assert told["tested_wrong"] == "Invalid input type"
    assert told["metrics"] == ["counters", "histograms", "meters", "ratio_counters"]
    assert told["query_addr"]
    assert told["metric_addr"]
    assert told["logs"] >= 4

    assert told["after_inactive"] == ["external:1", "m:1", "n:1"]
    assert told["after_versioned"] == ["external:1", "m:1"]
    assert told["after_models"] == ["external:1"]
    assert told["after_all"] == []
    assert told["no_apps"] == []
