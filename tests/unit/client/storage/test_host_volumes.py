"""Volumes that a node has made, over restarts of its agent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lepa.client.local_state import LocalState
from lepa.client.storage.host_plugins import Made, Mkdir
from lepa.client.storage.host_volumes import HostVolumes
from lepa.model.errors import LepaError
from lepa.model.volume import HostVolume, HostVolumeCapability
from lepa.model.wire import to_builtins


@pytest.fixture
def state(tmp_path: Path) -> Iterator[LocalState]:
    found = LocalState(tmp_path / "state.db")
    yield found
    found.close()


def volume(**fields: Any) -> dict[str, Any]:
    capability = HostVolumeCapability("file-system", "single-node-writer")
    given = {"id": "v1", "name": "data", "plugin_id": "mkdir", "requested_capabilities": (capability,)}
    return dict(to_builtins(HostVolume(**(given | fields))))


async def test_a_made_volume_is_offered_and_remembered(tmp_path: Path, state: LocalState) -> None:
    changes: list[int] = []
    plugins = {"mkdir": Mkdir(tmp_path / "volumes")}
    volumes = HostVolumes(state, plugins, lambda: changes.append(1))
    answer = await volumes.create(volume())
    offered = volumes.offered()["data"]
    assert (offered.id, offered.path, offered.access_modes) == ("v1", answer["path"], ("single-node-writer",))
    assert changes == [1]
    again = HostVolumes(state, plugins, lambda: None)
    assert again.offered()["data"] == offered
    await again.delete(volume())
    assert (again.offered(), Path(answer["path"]).exists()) == ({}, False)
    assert HostVolumes(state, plugins, lambda: None).offered() == {}


async def test_a_restart_of_the_host_may_move_a_volume(tmp_path: Path, state: LocalState) -> None:
    class Moving(Mkdir):
        async def create(self, volume: HostVolume) -> Made:
            return Made("/elsewhere" if volume.host_path else "/first")

    volumes = HostVolumes(state, {"mkdir": Moving(tmp_path)}, lambda: None)
    await volumes.create(volume())
    await volumes.restore()
    assert volumes.offered()["data"].path == "/elsewhere"


async def test_a_registered_directory_must_be_there_and_is_never_removed(tmp_path: Path, state: LocalState) -> None:
    volumes = HostVolumes(state, {}, lambda: None)
    with pytest.raises(LepaError, match="is no directory of this node"):
        await volumes.register(volume(plugin_id="", host_path=str(tmp_path / "nothing")))
    own = tmp_path / "own"
    own.mkdir()
    await volumes.register(volume(plugin_id="", host_path=str(own)))
    await volumes.delete(volume(plugin_id="", host_path=str(own)))
    assert own.is_dir()
    assert volumes.offered() == {}


async def test_a_plugin_that_is_missing_is_told(tmp_path: Path, state: LocalState) -> None:
    volumes = HostVolumes(state, {"mkdir": Mkdir(tmp_path)}, lambda: None)
    with pytest.raises(LepaError, match='no host volume plugin "nfs"; known: mkdir'):
        await volumes.create(volume(plugin_id="nfs"))
