from pathlib import Path

from lepa.drivers.supervisor import cgroups


def test_oom_kills_are_read_from_either_version_of_the_tree(tmp_path: Path) -> None:
    v1, v2, quiet = tmp_path / "v1", tmp_path / "v2", tmp_path / "quiet"
    for folder in (v1, v2, quiet):
        folder.mkdir()
    (v1 / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (v2 / "memory.events").write_text("low 0\nmax 3\noom 1\noom_kill 1\n")
    (quiet / "memory.events").write_text("low 0\noom 0\noom_kill 0\n")
    assert cgroups.oom_killed((str(v1),))
    assert cgroups.oom_killed((str(quiet), str(v2)))
    assert not cgroups.oom_killed((str(quiet), str(tmp_path / "missing")))


def test_members_of_nested_groups_are_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "cgroup.procs").write_text("11\n12\n")
    (tmp_path / "inner/cgroup.procs").write_text("13\n")
    assert sorted(cgroups.pids(str(tmp_path))) == [11, 12, 13]
    assert cgroups.pids(str(tmp_path / "missing")) == []


def test_killing_or_removing_a_group_that_is_gone_is_done_already(tmp_path: Path) -> None:
    assert cgroups.kill(str(tmp_path / "missing"))
    assert cgroups.remove(str(tmp_path / "missing"))


def test_the_unified_tree_comes_first() -> None:
    kinds = [kind for kind, _ in cgroups.hierarchies()]
    assert "cgroup2" not in kinds[1:]
