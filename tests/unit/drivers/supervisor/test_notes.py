import os
import subprocess
import sys
from pathlib import Path

from lepa.drivers.supervisor.notes import LOG_BYTES_MAX

WRITER = "from lepa.drivers.supervisor.notes import note; note('first'); note('second')"


def written(log: Path) -> str:
    with open(log, "a") as file:
        subprocess.run([sys.executable, "-c", WRITER], stderr=file, check=True)
    return log.read_text()


def test_lines_go_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    assert written(tmp_path / "log") == "before\nfirst\nsecond\n"


def test_a_log_that_grew_too_large_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    os.truncate(tmp_path / "log", LOG_BYTES_MAX + 1)
    assert written(tmp_path / "log") == "first\nsecond\n"
