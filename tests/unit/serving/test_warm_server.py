"""lepa.serving.warm_server"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lepa.model.errors import LepaError
from lepa.serving.warm_server import fork_model


def eventually(done: Any) -> None:
    for _ in range(1000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "s"
    process = subprocess.Popen([sys.executable, "-m", "lepa.serving.warm_server", "--socket", str(path)])
    eventually(path.exists)
    yield path
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0
    assert not path.exists()


def test_a_forked_process_has_its_own_environment_and_log_and_is_reaped(server: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pid = fork_model(server, {"CLIPPER_MODEL_NAME": "m"}, log, "scikit-learn")
    eventually(lambda: not psutil.pid_exists(pid))
    assert "CLIPPER_MODEL_VERSION is not set" in log.read_text()


def test_a_forked_process_ends_by_a_signal_and_the_server_goes_on(server: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CLIPPER_MODEL_NAME": "m",
        "CLIPPER_MODEL_VERSION": "1",
        "CLIPPER_MODEL_PATH": str(tmp_path),
    }
    (tmp_path / "model.json").write_text('{"framework":"closure","input_type":"d","python":"2.7"}')
    for _ in range(2):
        log = tmp_path / "log"
        pid = fork_model(server, environment, log, "")
        eventually(lambda pid=pid: not psutil.pid_exists(pid))
        assert "pickled by Python 2.7" in log.read_text()


def test_nobody_at_the_socket_is_said(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="does not answer"):
        fork_model(tmp_path / "nothing", {}, tmp_path / "log", "")
