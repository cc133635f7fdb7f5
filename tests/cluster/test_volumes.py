"""Volumes on two machines: directories that nodes make, and volumes of a CSI plugin that runs as a task on each.

Whole paths through lepa.client.csi.messages, lepa.client.csi.plugin_client, lepa.client.csi.plugins,
lepa.client.csi.mounts, lepa.client.csi.controller, lepa.client.node_desk, lepa.server.node_desk,
lepa.server.csi_release, lepa.server.csi_views, lepa.server.volume_placement, lepa.server.endpoints.csi,
lepa.server.endpoints.volumes, lepa.state.commands.csi, lepa.state.commands.volumes, lepa.state.commands.node_work,
lepa.rpc.volume_requests, lepa.model.volume, lepa.model.node_work, lepa.api.volumes and lepa.cli.volume.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cluster.bed import SERVER, Bed, ClusterAgent, node_of, wait_until
from tests.components import allow_crun
from tests.e2e.agents import eventually
from tests.e2e.jobs import SECOND, shell_job, shell_task

PLUGIN = Path(__file__).parents[1] / "csi_plugin.py"
NOTE = "echo $NOMAD_ALLOC_INDEX $(hostname) >> /data/log; cat /data/log; sleep 600"
CSI_SPEC = """
id = "{name}"
name = "{name}"
type = "csi"
plugin_id = "dir"
capacity_min = "{size}"
capability {{
  access_mode = "single-node-writer"
  attachment_mode = "file-system"
}}
capability {{
  access_mode = "multi-node-multi-writer"
  attachment_mode = "file-system"
}}
"""
HOST_SPEC = """
name = "{name}"
type = "host"
plugin_id = "mkdir"
constraint {{
  attribute = "${{node.unique.name}}"
  value = "{node}"
}}
parameters {{
  mode = "0777"
}}
"""


class Place(NamedTuple):
    """A server, two nodes, and the storage that both reach."""

    bed: Bed
    server: ClusterAgent
    one: ClusterAgent
    two: ClusterAgent
    storage: Path

    def calls(self) -> list[str]:
        """What the plugins were asked, in order."""
        return (self.storage / "calls.log").read_text().splitlines()

    def attached(self, name: str) -> list[str]:
        """Nodes that the storage has attached a volume to."""
        found = self.server.get("/v1/volumes/external?plugin_id=dir")["Volumes"]
        return next(list(v["PublishedExternalNodeIDs"]) for v in found if v["ExternalID"] == f"vol-{name}")

    def create(self, name: str, size: str = "1MiB") -> None:
        """A CSI volume; one that is there is changed."""
        spec = CSI_SPEC.format(name=name, size=size)
        assert f"with ID {name}" in self.server.lepa("volume", "create", "-", stdin=spec)

    def users(self, name: str) -> list[str]:
        return [alloc["JobID"] for alloc in self.server.get(f"/v1/volume/csi/{name}")["Allocations"]]

    def output(self, alloc: Any) -> str:
        return self.bed.agents[alloc["NodeName"]].lepa("alloc", "logs", alloc["ID"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    allow_crun()
    folder = tmp_path_factory.mktemp("volumes")
    storage = folder / "storage"
    storage.mkdir()
    with Bed(folder) as bed:
        server = bed.agent("server", SERVER)
        one, two = (bed.agent(name, node_of(server, options={"user.denylist": ""})) for name in ("one", "two"))
        run = {"command": sys.executable, "args": [str(PLUGIN), str(storage), "${node.unique.name}"]}
        task = {"Config": run, "CSIPluginConfig": {"ID": "dir", "Type": "monolith"}}
        server.run(
            {"ID": "plugin", "Type": "system", "TaskGroups": [{"Name": "p", "Tasks": [shell_task("p", "", **task)]}]}
        )
        wait_until(lambda: [p["NodesHealthy"] for p in server.get("/v1/plugins?type=csi")] == [2], 60.0)
        yield Place(bed, server, one, two, storage)
        for job in server.get("/v1/jobs"):
            server.delete(f"/v1/job/{job['ID']}", purge="true")
        wait_until(lambda: all(not mounts(node) for node in (one, two)), 60.0)


def mounts(node: ClusterAgent) -> list[str]:
    """What is mounted below the CSI directory of a node."""
    return [line for line in node.machine.run("cat", "/proc/self/mounts").splitlines() if "/client/csi/volumes" in line]


def volume_job(
    job_id: str, source: str, *, kind: str = "csi", node: str = "", count: int = 1, **request: Any
) -> dict[str, Any]:
    """A job whose tasks have a volume at /data."""
    modes = {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"} if kind == "csi" else {}
    volume = {"Name": "d", "Type": kind, "Source": source, **modes, **request}
    pinned = [{"LTarget": "${node.unique.name}", "RTarget": node, "Operand": "="}] if node else []
    task = {
        "Driver": "exec",
        "User": "root",
        "VolumeMounts": [{"Volume": "d", "Destination": "/data"}],
        "Resources": {"CPU": 50, "MemoryMB": 64},
    }
    return shell_job(job_id, NOTE, count=count, task=task, group={"Volumes": {"d": volume}}, Constraints=pinned)


def running(place: Place, job_id: str, count: int = 1) -> list[Any]:
    """Its allocations once they run; what became of them instead is told."""
    try:
        return place.server.running(job_id, count, 90.0)
    except AssertionError as error:
        told = [
            (alloc["ClientStatus"], [event["DisplayMessage"] for event in state["Events"]])
            for alloc in place.server.allocations(job_id)
            for state in (alloc["TaskStates"] or {}).values()
        ]
        why = [each.get("FailedTGAllocs") for each in place.server.get(f"/v1/job/{job_id}/evaluations")]
        raise AssertionError(f"{job_id} does not run: {told} {why}") from error


def purge(place: Place, *jobs: str) -> None:
    for job in jobs:
        place.server.purge(job)


def test_a_node_makes_a_volume_and_removes_it(place: Place) -> None:
    told = place.server.lepa("volume", "create", "-", stdin=HOST_SPEC.format(name="data", node="two"))
    assert "ready" in told
    (volume,) = place.server.get("/v1/volumes?type=host")
    assert (volume["Name"], volume["State"], volume["PluginID"]) == ("data", "ready", "mkdir")
    place.server.run(volume_job("user", "data", kind="host"))
    (alloc,) = running(place, "user")
    assert alloc["NodeName"] == "two"
    refused = place.server.request("DELETE", f"/v1/volume/host/{volume['ID']}")
    assert refused.status == 500
    assert "in use by allocations" in refused.text
    place.two.kill9()
    place.two.start()
    assert place.server.get(f"/v1/node/{place.two.node_id()}")["HostVolumes"]["data"]["ID"] == volume["ID"]
    purge(place, "user")
    path = Path(place.server.get(f"/v1/volume/host/{volume['ID']}")["HostPath"])
    assert (path / "log").read_text() == "0 two\n"
    assert "Successfully deleted" in place.server.lepa("volume", "delete", "-type", "host", volume["ID"])
    assert not path.exists()
    assert place.server.get("/v1/volumes?type=host") == []


def test_what_cannot_be_made_leaves_nothing(place: Place) -> None:
    body = {"Volume": {"Name": "bad", "PluginID": "mkdir", "Parameters": {"mode": "rwx"}}}
    answer = place.server.request("PUT", "/v1/volume/host/create", body)
    assert (answer.status, "octal number" in answer.text) == (500, True)
    assert place.server.get("/v1/volumes?type=host") == []


def test_an_instance_keeps_its_sticky_volume(place: Place) -> None:
    for node in ("one", "two"):
        place.server.lepa("volume", "create", "-", stdin=HOST_SPEC.format(name="own", node=node))
    place.server.run(volume_job("keeper", "own", kind="host", Sticky=True))
    (first,) = running(place, "keeper")
    (claim,) = place.server.get("/v1/volumes/claims?job_id=keeper")
    assert claim["AllocID"] == first["ID"]
    place.server.put(f"/v1/allocation/{first['ID']}/stop")
    place.server.alloc_until(first["ID"], lambda alloc: alloc["ClientStatus"] == "complete")
    (again,) = running(place, "keeper")
    assert again["NodeName"] == first["NodeName"]
    eventually(lambda: place.output(again).count("0 ") == 2)
    (kept,) = place.server.get("/v1/volumes/claims?job_id=keeper")
    assert (kept["ID"], kept["VolumeID"], kept["AllocID"]) == (claim["ID"], claim["VolumeID"], again["ID"])
    purge(place, "keeper")
    for volume in place.server.get("/v1/volumes?type=host"):
        place.server.delete(f"/v1/volume/host/{volume['ID']}")


def test_a_csi_volume_follows_its_job_over_machines(place: Place) -> None:
    place.create("v")
    place.server.run(volume_job("first", "v", node="one"))
    (first,) = running(place, "first")
    assert place.attached("v") == ["storage-one"]
    evaluation = place.server.evaluation(place.server.run(volume_job("second", "v", node="two")))
    (metric,) = evaluation["FailedTGAllocs"].values()
    assert metric["ConstraintFiltered"]["CSI volume v has exhausted its available writer claims"] == 1
    refused = place.server.request("DELETE", "/v1/volume/csi/v")
    assert (refused.status, refused.text) == (500, "volume in use: v")
    assert "single-node-writer" in place.server.lepa("volume", "status", "v")
    place.create("v", "2MiB")
    assert place.server.get("/v1/volume/csi/v")["Capacity"] == 2 << 20
    asked = [call for call in place.calls() if "expand" in call]
    assert [call.split()[1:] for call in asked[:-1]] == [["expand", "vol-v", "2097152"]]
    assert asked[-1] == "one node-expand vol-v 2097152"
    place.one.kill9()
    place.one.start()
    purge(place, "first")
    (second,) = running(place, "second")
    eventually(lambda: place.output(second) == "0 one\n0 two\n")
    assert place.attached("v") == ["storage-two"]
    assert mounts(place.one) == []
    assert place.server.get(f"/v1/allocation/{first['ID']}")["ClientStatus"] == "complete"
    purge(place, "second")
    wait_until(lambda: place.attached("v") == [], 60.0)
    assert place.calls()[-3:] == ["two unpublish vol-v", "two unstage vol-v", place.calls()[-1]]
    wait_until(lambda: place.users("v") == [], 60.0)
    place.server.lepa("volume", "register", "-", stdin=CSI_SPEC.format(name="v", size="3MiB"))
    assert place.calls()[-1].endswith(" expand vol-v 3145728")
    assert "Successfully deleted" in place.server.lepa("volume", "delete", "v")
    assert not (place.storage / "vol-v").exists()


def test_readers_and_writers_share_what_allows_it_and_detach_takes_it_off(place: Place) -> None:
    place.create("shared")
    shared = {"AccessMode": "multi-node-multi-writer"}
    place.server.run(volume_job("writer", "shared", node="one", **shared))
    running(place, "writer")
    reader = volume_job("reader", "shared", node="two", ReadOnly=True, **shared)
    reader["TaskGroups"][0]["Tasks"][0]["Config"]["args"] = ["-c", "echo x >> /data/log || echo cannot; sleep 600"]
    place.server.run(reader)
    (alloc,) = running(place, "reader")
    eventually(lambda: "cannot" in place.output(alloc))
    assert place.attached("shared") == ["storage-one", "storage-two"]
    volume = place.server.get("/v1/volume/csi/shared")
    assert (len(volume["ReadAllocs"]), len(volume["WriteAllocs"])) == (1, 1)
    place.server.lepa("volume", "detach", "shared", place.two.node_id())
    assert (place.attached("shared"), place.users("shared")) == (["storage-one"], ["writer"])
    purge(place, "writer", "reader")
    wait_until(lambda: place.users("shared") == [], 60.0)


def test_each_allocation_has_its_own_and_snapshots_become_volumes(place: Place) -> None:
    for number in range(2):
        place.create(f"own[{number}]")
    place.server.run(volume_job("each", "own", count=2, PerAlloc=True))
    for alloc in running(place, "each", 2):
        number = alloc["Name"][-2]
        eventually(lambda a=alloc, n=number: place.output(a).startswith(n))
        assert (place.storage / f"vol-own[{number}]" / "log").read_text().startswith(number)
    assert "snap-s1" in place.server.lepa("volume", "snapshot", "create", "own[1]", "s1")
    spec = CSI_SPEC.format(name="copy", size="1MiB") + 'snapshot_id = "snap-s1"\n'
    place.server.lepa("volume", "create", "-", stdin=spec)
    assert (place.storage / "vol-copy" / "log").read_text().startswith("1")
    assert "snap-s1" in place.server.lepa("volume", "snapshot", "list", "-plugin", "dir")
    place.server.lepa("volume", "snapshot", "delete", "dir", "snap-s1")
    purge(place, "each")
    wait_until(lambda: not place.users("own[0]") and not place.users("own[1]"), 60.0)


def test_the_data_of_a_disk_move_to_another_machine(place: Place) -> None:
    """Bug case B207: links too."""
    script = (
        "cd $NOMAD_ALLOC_DIR/data; ls -l; echo $(hostname) >> log; cat log; ln -sf log link; "
        "trap 'exit 0' INT TERM; while :; do sleep 0.1; done"
    )
    disk = {"Sticky": True, "Migrate": True, "SizeMB": 50}
    place.server.run(shell_job("disk", script, group={"EphemeralDisk": disk}))
    (first,) = running(place, "disk")
    eventually(lambda: first["NodeName"] in place.output(first))
    place.server.put(f"/v1/node/{first['NodeID']}/drain", {"DrainSpec": {"Deadline": 60 * SECOND}})
    place.server.alloc_until(first["ID"], lambda alloc: alloc["ClientStatus"] == "complete", 60.0)
    (second,) = running(place, "disk")
    assert second["NodeName"] != first["NodeName"]
    eventually(lambda: place.output(second).endswith(f"{first['NodeName']}\n{second['NodeName']}\n"))
    assert "link -> log" in place.output(second)
    told = [event["DisplayMessage"] for event in second["TaskStates"]["main"]["Events"]]
    assert any("were moved from" in text for text in told)
    purge(place, "disk")
    place.server.put(f"/v1/node/{first['NodeID']}/eligibility", {"Eligibility": "eligible"})


def test_a_volume_is_taken_from_a_machine_that_is_lost(place: Place) -> None:
    place.create("lost")
    place.server.run(
        volume_job(
            "mover",
            "lost",
            Affinities=[{"LTarget": "${node.unique.name}", "RTarget": "two", "Operand": "=", "Weight": 100}],
        )
    )
    (alloc,) = running(place, "mover")
    lost, other = (place.two, place.one) if alloc["NodeName"] == "two" else (place.one, place.two)
    place.bed.power_off(lost)
    wait_until(lambda: [each["NodeName"] for each in place.server.running("mover", 1, 90.0)] == [other.name], 90.0)
    assert place.attached("lost") == [f"storage-{other.name}"]
    purge(place, "mover")
    place.bed.boot(lost)
