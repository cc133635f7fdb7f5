"""Volumes of the host as mounts."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node, make_task

from lepa.client.task_env import Directories, Place
from lepa.client.volumes import mounts
from lepa.model.errors import LepaError
from lepa.model.job import VolumeRequest
from lepa.model.node import ClientHostVolumeConfig
from lepa.model.task import VolumeMount


def place(request: VolumeRequest | None, mount: VolumeMount) -> Place:
    task = make_task(volume_mounts=(mount,))
    group = make_group(tasks=(task,), volumes={"data": request} if request else {})
    job = make_job(groups=(group,))
    volumes = {name: ClientHostVolumeConfig(name=name, path=f"/srv/{name}") for name in ("shared", "shared[2]")}
    node = replace(make_node(), host_volumes=volumes)
    return Place(node, "global", job, group, task, make_alloc(job=job, index=2), Directories("", "", ""))


def test_a_host_volume_is_mounted() -> None:
    request = VolumeRequest(type="host", source="shared", read_only=True)
    (mount,) = mounts(place(request, VolumeMount(volume="data", destination="/data")))
    assert (mount.host_path, mount.task_path, mount.read_only) == ("/srv/shared", "/data", True)


def test_each_allocation_may_have_its_own() -> None:
    request = VolumeRequest(type="host", source="shared", per_alloc=True)
    (mount,) = mounts(place(request, VolumeMount(volume="data", destination="/data")))
    assert mount.host_path == "/srv/shared[2]"


@pytest.mark.parametrize(
    "request_",
    [None, VolumeRequest(type="csi", source="shared"), VolumeRequest(type="host", source="none")],
)
def test_what_is_not_there_is_named(request_: VolumeRequest | None) -> None:
    with pytest.raises(LepaError, match=r"data|shared|none"):
        mounts(place(request_, VolumeMount(volume="data", destination="/data")))
