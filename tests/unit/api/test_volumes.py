"""Volumes and the plugins of storage: lepa.api.volumes."""

import pytest

from lepa.model.volume import CSISnapshot, CSIVolume, HostVolume
from lepa.rpc.volume_requests import CSIExternalVolumes, CSISnapshots, CSIVolumesWritten, HostVolumeWritten

VOLUME = "v"
CSI_BODY = {"Volumes": [{"ID": "v", "Namespace": "n", "PluginID": "p"}]}


async def test_host_volumes_are_made_in_the_namespace_of_their_body(http, parts) -> None:
    made = HostVolumeWritten(volume=HostVolume(id="i", name="data"), index=9)
    parts.caller.answers |= {"HostVolume.Create": made, "HostVolume.Register": made}
    for path in ("/v1/volume/host/create", "/v1/volume/host/register"):
        answer = await http.put(f"{path}?namespace=other", json={"Volume": {"Name": "data", "Namespace": "n"}})
        assert (await answer.json())["Volume"]["ID"] == "i"
        assert (parts.caller.last().namespace, parts.caller.last().volume.name) == ("n", "data")
    missing = await http.put("/v1/volume/host/create", json={})
    assert (missing.status, await missing.text()) == (400, "missing volume definition")


async def test_host_volumes_are_deleted_and_claims_given_back(http, parts) -> None:
    assert await (await http.delete("/v1/volume/host/i?force=true")).json() == {"Index": 5}
    assert (parts.caller.last().id, parts.caller.last().force) == ("i", True)
    assert (await http.delete("/v1/volume/host/i?force=perhaps")).status == 400
    assert (await http.delete(f"/v1/volumes/claim/{VOLUME}")).status == 200
    assert parts.caller.requests[-1][0] == "TaskGroupHostVolumeClaim.Delete"
    assert (await http.get("/v1/volume/host/i")).status == 404


@pytest.mark.parametrize(
    ("verb", "path", "method"),
    [
        ("PUT", "/v1/volume/csi/v", "CSIVolume.Register"),
        ("POST", "/v1/volumes", "CSIVolume.Register"),
        ("PUT", "/v1/volume/csi/v/create", "CSIVolume.Create"),
    ],
)
async def test_csi_volumes_are_written_one_by_one(http, parts, verb: str, path: str, method: str) -> None:
    parts.caller.answers[method] = CSIVolumesWritten(volumes=(CSIVolume(id="v"),))
    answer = await http.request(verb, path, json=CSI_BODY)
    assert ("Volumes" in await answer.json()) == path.endswith("create")
    name, request = parts.caller.requests[-1]
    assert (name, request.namespace, request.volumes[0].plugin_id) == (method, "n", "p")
    assert (await http.request(verb, path, json={"Volumes": []})).status == 400


async def test_the_id_in_the_path_is_that_of_the_volume(http) -> None:
    answer = await http.put("/v1/volume/csi/other", json=CSI_BODY)
    assert (answer.status, await answer.text()) == (400, "Volume ID does not match request path")


async def test_csi_volumes_are_forgotten_removed_and_taken_off(http, parts) -> None:
    for path, method in (
        (f"/v1/volume/csi/{VOLUME}", "CSIVolume.Deregister"),
        ("/v1/volume/csi/v/delete", "CSIVolume.Delete"),
        ("/v1/volume/csi/v/detach?node=n1", "CSIVolume.Detach"),
    ):
        answer = await http.delete(path, headers={"X-Nomad-CSI-Secrets": "a=1,b=x=y"})
        assert await answer.json() is None
        assert parts.caller.requests[-1][0] == method
        assert (parts.caller.last().id, parts.caller.last().secrets) == ("v", {"a": "1", "b": "x=y"})
    missing = await http.delete("/v1/volume/csi/v/detach")
    assert (missing.status, await missing.text()) == (400, "detach requires node ID")


async def test_what_storage_has_is_asked_of_its_plugin(http, parts) -> None:
    parts.caller.answers |= {
        "CSIVolume.ListExternal": CSIExternalVolumes(next_token="t"),
        "CSIVolume.ListSnapshots": CSISnapshots(snapshots=(CSISnapshot(id="s"),)),
        "CSIVolume.CreateSnapshot": CSISnapshots(snapshots=(CSISnapshot(id="s"),)),
    }
    assert (await (await http.get("/v1/volumes/external?plugin_id=p&per_page=3")).json())["NextToken"] == "t"
    assert (parts.caller.last().plugin_id, parts.caller.last().per_page) == ("p", 3)
    assert (await (await http.get("/v1/volumes/snapshot?plugin_id=p")).json())["Snapshots"][0]["ID"] == "s"
    made = await http.put("/v1/volumes/snapshot", json={"Snapshots": [{"SourceVolumeID": "v", "PluginID": "p"}]})
    assert (await made.json())["Snapshots"][0]["ID"] == "s"
    assert parts.caller.last().snapshots[0].source_volume_id == "v"
    assert (await http.delete("/v1/volumes/snapshot?plugin_id=p&snapshot_id=s")).status == 200
    assert parts.caller.last().snapshot_id == "s"
    assert [(await http.get(f"/v1/volumes/{each}")).status for each in ("external", "snapshot")] == [400, 400]
    assert (await http.delete("/v1/volumes/snapshot")).status == 400


async def test_lists_have_a_type_or_nothing(http, parts) -> None:
    parts.caller.answers |= {
        "HostVolume.List": (),
        "CSIVolume.List": (),
        "CSIPlugin.List": (),
        "TaskGroupHostVolumeClaim.List": (),
    }
    for path in ("volumes", "volumes?type=csi", "volumes?type=host", "plugins", "plugins?type=csi", "volumes/claims"):
        assert await (await http.get(f"/v1/{path}")).json() == []
    assert [(await http.get(f"/v1/{each}?type=x")).status for each in ("volumes", "plugins")] == [404, 404]
    assert [(await http.get(f"/v1/{each}/csi/x")).status for each in ("volume", "plugin")] == [404, 404]
