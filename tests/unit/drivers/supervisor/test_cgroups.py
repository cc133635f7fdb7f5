from collections.abc import Callable
from pathlib import Path

import pytest

from lepa.drivers import oci
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


V2, V1_FREEZER, V1_MEMORY = "v2", "freezer", "memory"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A directory that stands in for the hierarchies of a host."""

    def mount(*kinds: str) -> Path:
        for kind in kinds:
            (tmp_path / kind).mkdir()
        found = [("cgroup2" if kind == V2 else kind, str(tmp_path / kind)) for kind in kinds]
        monkeypatch.setattr(cgroups, "hierarchies", lambda: found)
        return tmp_path

    return mount


@pytest.mark.parametrize(
    ("kinds", "place"),
    [
        pytest.param((V2,), "v2/lepa", id="unified"),
        pytest.param((V2, V1_MEMORY, V1_FREEZER), "v2/lepa", id="hybrid"),
        pytest.param((V1_MEMORY, V1_FREEZER), "freezer/lepa", id="legacy"),
        pytest.param((V1_MEMORY,), "", id="nothing that holds a tree"),
    ],
)
def test_tasks_are_tracked_where_a_tree_can_be_ended(
    mounted: Callable[..., Path], kinds: tuple[str, ...], place: str
) -> None:
    root = mounted(*kinds)
    assert cgroups.tracking_root() == (str(root / place) if place else "")
    assert not place or list((root / place).iterdir()) == []


def test_we_go_home_by_the_path_that_the_kernel_tells(
    mounted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mounted(V2)
    monkeypatch.setattr(cgroups, "_own_path", lambda kind: {"cgroup2": "/system.slice/lepa.service"}[kind])
    tracking, own = root / "v2/lepa", root / "v2/system.slice/lepa.service"
    own.mkdir(parents=True)
    assert cgroups.home(cgroups.tracking_root()) == str(own)
    assert (own / "cgroup.procs").read_text() == "0"
    assert [path.read_text() for path in tracking.glob("trial-*/cgroup.procs")] == ["0"]
    own.rename(root / "v2/elsewhere")
    assert cgroups.home(str(tracking)) == ""


def test_a_tree_is_ended_by_one_write_where_the_kernel_can(mounted: Callable[..., Path]) -> None:
    """Nobody is signalled one by one then: the processes that the file names are not there."""
    task = mounted(V2) / "v2/lepa/t"
    assert cgroups.make(str(task))
    (task / "cgroup.procs").write_text(f"{2**22 + 1}\n")
    assert not cgroups.kill(str(task))
    assert (task / "cgroup.kill").read_text() == "1"
    (task / "cgroup.procs").write_text("")
    assert cgroups.kill(str(task))


def test_a_container_is_looked_for_in_the_hierarchies_with_its_figures(mounted: Callable[..., Path]) -> None:
    root = mounted(V2)
    assert oci.cgroup_directories("/lepa/t") == (f"{root}/v2/lepa/t",)


def test_a_container_of_a_legacy_host_is_looked_for_in_both(mounted: Callable[..., Path]) -> None:
    root = mounted(V1_MEMORY, "cpuacct", V1_FREEZER)
    assert oci.cgroup_directories("/lepa/t") == (f"{root}/memory/lepa/t", f"{root}/cpuacct/lepa/t")
