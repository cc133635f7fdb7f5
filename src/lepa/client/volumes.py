"""Pure: volumes that a task mounts -> mounts for its driver."""

from lepa.client.task_env import Place
from lepa.drivers.protocol import Mount
from lepa.model.errors import LepaError
from lepa.model.job import VolumeRequest
from lepa.model.volume import READERS
from lepa.model.volume_use import source_of

PROPAGATION = {"private": "private", "host-to-task": "rslave", "bidirectional": "rshared"}
"""The job file's words in those of mount(8)."""


def mounts(place: Place) -> tuple[Mount, ...]:
    """The mounts of a task, in the order of its `volume_mount` blocks. Raises LepaError(invalid) for what is not there.

    A group's volume of type "host" names a volume of the node; with per_alloc, the one that ends in `[<index>]`.
    """
    found = []
    for wanted in place.task.volume_mounts:
        request = place.group.volumes.get(wanted.volume)
        if request is None:
            raise LepaError("invalid", f'task "{place.task.name}" mounts an unknown volume "{wanted.volume}"')
        path, read_only = _host_path(place, wanted.volume, request)
        found.append(
            Mount(
                host_path=path,
                task_path=wanted.destination,
                read_only=wanted.read_only or read_only,
                propagation=PROPAGATION.get(wanted.propagation_mode, wanted.propagation_mode) or "private",
            )
        )
    return tuple(found)


def _host_path(place: Place, label: str, request: VolumeRequest) -> tuple[str, bool]:
    """Where a volume is on the host, and whether it is only to be read. Raises LepaError(invalid)."""
    reads = request.read_only or request.access_mode in READERS
    source = source_of(request, place.alloc.name)
    if request.type == "csi":
        if label not in place.csi_volumes:
            raise LepaError("invalid", f'CSI volume "{source}" is not mounted on this node')
        return place.csi_volumes[label], reads
    volume = place.node.host_volumes.get(source)
    if volume is None:
        raise LepaError("invalid", f'this node has no volume "{source}"')
    return volume.path, reads or volume.read_only
