"""Directories of an allocation."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lepa.client import alloc_dir
from lepa.client.alloc_dir import AllocDir
from lepa.model.errors import LepaError


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[AllocDir]:
    found = AllocDir(tmp_path / "alloc", "a")
    found.build(["web"])
    yield found
    found.destroy()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_layout(directory: AllocDir) -> None:
    dirs = directory.task("web")
    assert {path.name for path in directory.shared.iterdir()} == {"data", "logs", "tmp"}
    assert {path.name for path in dirs.root.iterdir()} == {"local", "secrets", "tmp", "private"}
    assert (mode(dirs.local), mode(dirs.secrets), mode(dirs.private)) == (0o777, 0o700, 0o700)
    assert mode(directory.path) == 0o711
    assert dirs.root.stat().st_mode & directory.shared.stat().st_mode & directory.logs.stat().st_mode & stat.S_ISVTX


def test_building_again_leaves_given_secrets_alone(directory: AllocDir) -> None:
    directory.give_secrets("web", "", isolated=True)
    directory.build(["web", "new"])
    assert mode(directory.task("web").secrets) == 0o777
    assert directory.task("new").local.is_dir()


def test_secrets_are_given_to_the_tasks_user_or_to_its_container(directory: AllocDir) -> None:
    secrets = directory.task("web").secrets
    directory.give_secrets("web", "nobody", isolated=False)
    if os.geteuid() == 0:
        assert secrets.stat().st_uid == alloc_dir.task_owner("nobody").uid
    directory.give_secrets("web", "", isolated=True)
    assert mode(secrets) == 0o777
    directory.give_secrets("web", "no such user", isolated=False)


def test_the_api_shows_no_secrets(directory: AllocDir) -> None:
    assert directory.readable("web/local/x") == "web/local/x"
    assert directory.readable("/") == ""
    assert directory.readable("alloc/secrets") == "alloc/secrets"
    for path in ("web/secrets", "web/secrets/x", "web/private/x", "web/local/../secrets"):
        with pytest.raises(LepaError, match="prohibited"):
            directory.readable(path)


def test_where_a_tasks_files_lie(directory: AllocDir) -> None:
    local = directory.task("web").local
    for wanted in ("local/x", "/local/x", f"{local}/x", "./local/../local/x"):
        assert directory.of_task("web", wanted) == "web/local/x"
    for wanted in ("../alloc/data/x", "/alloc/data/x", f"{directory.shared}/data/x"):
        assert directory.of_task("web", wanted) == "alloc/data/x"
    assert directory.of_task("web", "/secrets/x") == "web/secrets/x"
    assert directory.of_task("web", "/etc/x") == "web/etc/x"


@pytest.mark.parametrize("wanted", ["../../x", "local/../../../x", "local/out/x", "x\0y"])
def test_a_destination_outside_is_refused(directory: AllocDir, wanted: str) -> None:
    (directory.task("web").local / "out").symlink_to("/etc")
    with pytest.raises(LepaError, match="escapes allocation directory"):
        directory.of_task("web", wanted)


def test_a_sticky_disk_is_handed_on(directory: AllocDir, tmp_path: Path) -> None:
    (directory.shared / "data/kept").write_text("1")
    (directory.task("web").local / "kept").symlink_to("../other")
    other = AllocDir(tmp_path / "alloc", "b")
    other.build(["web"])
    other.inherit(directory, ["web"])
    assert (other.shared / "data/kept").read_text() == "1"
    assert (other.task("web").local / "kept").readlink() == Path("../other")
    other.destroy()


def test_nothing_outside_is_destroyed(directory: AllocDir, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("")
    (directory.task("web").local / "out").symlink_to(tmp_path / "outside")
    directory.destroy()
    assert not directory.path.exists()
    assert (tmp_path / "outside/file").exists()
