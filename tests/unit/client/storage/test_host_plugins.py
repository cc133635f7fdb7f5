"""Plugins that make volumes on a node."""

import json
import os
from pathlib import Path

import pytest

from lepa.client.storage.host_plugins import External, Mkdir, find_plugins
from lepa.model.errors import LepaError
from lepa.model.volume import HostVolume

VOLUME = HostVolume(
    namespace="ns",
    id="11111111-2222",
    name="data",
    parameters={"key": "val"},
    requested_capacity_min_bytes=5,
    requested_capacity_max_bytes=10,
    host_path="/made/before",
)


def program(folder: Path, script: str, name: str = "own") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def external(tmp_path: Path, script: str) -> External:
    return External(program(tmp_path / "plugins", script), tmp_path / "volumes", "the-node", "the-pool")


async def test_mkdir_makes_and_removes_a_directory(tmp_path: Path) -> None:
    plugin = Mkdir(tmp_path / "volumes")
    volume = HostVolume(id="v1", parameters={"mode": "0750"})
    made = await plugin.create(volume)
    assert Path(made.path).stat().st_mode & 0o777 == 0o750
    (Path(made.path) / "kept").write_text("x")
    assert (await plugin.create(volume)).path == made.path
    assert (Path(made.path) / "kept").exists()
    await plugin.delete(volume)
    await plugin.delete(volume)
    assert not Path(made.path).exists()


@pytest.mark.parametrize("volume_id", ["", ".", "..", "../up", "a/b"])
async def test_mkdir_never_leaves_its_directory(tmp_path: Path, volume_id: str) -> None:
    with pytest.raises(LepaError, match="cannot be the id of a volume"):
        await Mkdir(tmp_path / "volumes").delete(HostVolume(id=volume_id))


async def test_mkdir_explains_its_parameters(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="parameter mode of plugin mkdir must be an octal number"):
        await Mkdir(tmp_path).create(HostVolume(id="v1", parameters={"mode": "rwx"}))


async def test_a_program_is_told_everything_of_the_volume(tmp_path: Path) -> None:
    plugin = external(
        tmp_path, 'env | grep DHV_ > $DHV_VOLUMES_DIR/env.$1; echo noise >&2; echo \'{"path": "/x", "bytes": 7}\''
    )
    assert await plugin.create(VOLUME) == ("/x", 7)
    told = dict(line.split("=", 1) for line in (tmp_path / "volumes/env.create").read_text().splitlines())
    assert json.loads(told.pop("DHV_PARAMETERS")) == {"key": "val"}
    assert told == {
        "DHV_OPERATION": "create",
        "DHV_VOLUMES_DIR": str(tmp_path / "volumes"),
        "DHV_PLUGIN_DIR": str(tmp_path / "plugins"),
        "DHV_NAMESPACE": "ns",
        "DHV_VOLUME_NAME": "data",
        "DHV_VOLUME_ID": "11111111-2222",
        "DHV_NODE_ID": "the-node",
        "DHV_NODE_POOL": "the-pool",
        "DHV_CAPACITY_MIN_BYTES": "5",
        "DHV_CAPACITY_MAX_BYTES": "10",
    }
    await plugin.delete(VOLUME)
    assert "DHV_CREATED_PATH=/made/before" in (tmp_path / "volumes/env.delete").read_text()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo the disk is full >&2; exit 3", r"failed to create \(exit 3\): the disk is full"),
        ("echo nonsense", "answered no JSON to create: nonsense"),
        ("echo '{}'", "must answer create with a path"),
        ("""echo '{"path": "relative"}'""", "must answer create with a path"),
    ],
)
async def test_what_a_program_gets_wrong_is_told(tmp_path: Path, script: str, told: str) -> None:
    with pytest.raises(LepaError, match=told):
        await external(tmp_path, script).create(VOLUME)


async def test_programs_are_found_and_tell_their_version(tmp_path: Path) -> None:
    program(tmp_path / "plugins", """echo '{"version": "0.0.2"}'""")
    program(tmp_path / "plugins", "echo '{}'", "silent")
    (tmp_path / "plugins" / "README").write_text("not a program")
    found = find_plugins(tmp_path / "plugins", tmp_path / "volumes", "n", "p")
    assert sorted(found) == ["mkdir", "own", "silent"]
    assert await found["own"].version() == "0.0.2"
    with pytest.raises(LepaError, match='"silent" tells no version'):
        await found["silent"].version()
    assert os.access(tmp_path / "plugins" / "own", os.X_OK)
