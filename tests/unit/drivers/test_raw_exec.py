from pathlib import Path

import pytest

from lepa.drivers.protocol import DriverError
from lepa.drivers.raw_exec import OPTIONS, find_program


def test_a_program_of_the_task_comes_before_the_path(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/sh").write_text("")
    (tmp_path / "mine").write_text("")
    assert find_program("sh", str(tmp_path), "/bin") == str(tmp_path / "local/sh")
    assert find_program("mine", str(tmp_path), "/bin") == str(tmp_path / "mine")
    assert find_program("/anything", str(tmp_path), "/bin") == "/anything"
    assert find_program("sh", "", "/bin") == "/bin/sh"


def test_a_program_that_is_nowhere_is_refused_with_where_it_was_looked_for(tmp_path: Path) -> None:
    for name in ("nope", "dir/nope"):
        with pytest.raises(DriverError, match="on the PATH \\(/bin\\)"):
            find_program(name, str(tmp_path), "/bin")


def test_options_are_those_of_job_files() -> None:
    assert OPTIONS.problems({"command": "x", "args": ["a"], "cgroup_v1_override": [{"cpu": "a"}]}) == []
    assert OPTIONS.problems({"args": ["a"]}) == ["command must be set"]
