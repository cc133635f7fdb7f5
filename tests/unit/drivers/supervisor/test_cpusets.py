"""Files of cgroups of both kinds, as the kernel has them; real processes are in the drivers' integration tests."""

import os
from pathlib import Path

import pytest

from lepa.drivers.supervisor import cgroups, cpusets


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cgroup of a task under v2, without the cpuset controller as yet."""
    task = tmp_path / "lepa/t"
    task.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory\n")
    for folder in (tmp_path, tmp_path / "lepa"):
        (folder / "cgroup.subtree_control").touch()
    (task / "cgroup.procs").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [("cgroup2", str(tmp_path))])
    return task


def test_under_v2_a_tasks_own_cgroup_holds_it(unified: Path) -> None:
    assert cpusets.cpuset_root(str(unified.parent)) == str(unified.parent)
    cpusets.hold(str(unified), "0,2", lambda: [os.getpid()])
    assert (unified / "cpuset.cpus").read_text() == "0,2"
    assert [(unified.parents[up] / "cgroup.subtree_control").read_text() for up in (0, 1)] == ["+cpuset"] * 2


def test_under_v1_a_cgroup_beside_it_does_with_its_processes_moved_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unified, legacy = tmp_path / "unified", tmp_path / "cpuset"
    for folder in (unified, legacy / "lepa/t"):
        folder.mkdir(parents=True)
    (unified / "cgroup.controllers").write_text("\n")
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [("cgroup2", str(unified)), ("cpuset", str(legacy))])
    root = cpusets.cpuset_root(str(unified / "lepa"))
    assert root == str(legacy / "lepa")
    for name, said in (("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")):
        (legacy / name).write_text(said)
        for folder in (legacy / "lepa", legacy / "lepa/t"):
            (folder / name).touch()
    cpusets.hold(os.path.join(root, "t"), "1", lambda: [77])
    assert (legacy / "lepa/cpuset.cpus").read_text() == "0-3\n"
    assert {name: (legacy / "lepa/t" / name).read_text().strip() for name in ("cpuset.cpus", "cpuset.mems")} == {
        "cpuset.cpus": "1",
        "cpuset.mems": "0",
    }
    assert (legacy / "lepa/t/cgroup.procs").read_text() == "77"


def test_hosts_without_the_controller_hold_nobody(unified: Path) -> None:
    (unified.parents[1] / "cgroup.controllers").write_text("cpu memory\n")
    assert cpusets.cpuset_root(str(unified.parent)) == ""
    assert cpusets.cpuset_root("") == ""
