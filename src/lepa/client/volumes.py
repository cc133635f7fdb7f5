"""Pure: volumes of the host that a task mounts -> mounts for its driver."""

from lepa.client.task_env import Place
from lepa.drivers.protocol import Mount
from lepa.model.errors import LepaError


def mounts(place: Place) -> tuple[Mount, ...]:
    """The mounts of a task, in the order of its `volume_mount` blocks. Raises LepaError(invalid) for what is not there.

    A group's volume of type "host" names a volume of the node; with per_alloc, the one that ends in `[<index>]`.
    """
    found = []
    for wanted in place.task.volume_mounts:
        request = place.group.volumes.get(wanted.volume)
        if request is None:
            raise LepaError("invalid", f'task "{place.task.name}" mounts an unknown volume "{wanted.volume}"')
        if request.type != "host":
            raise LepaError("unsupported", f'this node cannot mount volumes of type "{request.type}"')
        source = request.source + (_index(place.alloc.name) if request.per_alloc else "")
        volume = place.node.host_volumes.get(source)
        if volume is None:
            raise LepaError("invalid", f'this node has no volume "{source}"')
        read_only = wanted.read_only or request.read_only or volume.read_only
        found.append(
            Mount(
                host_path=volume.path,
                task_path=wanted.destination,
                read_only=read_only,
                propagation=wanted.propagation_mode or "private",
            )
        )
    return tuple(found)


def _index(name: str) -> str:
    """`[2]` of an allocation's name."""
    return name[name.rfind("[") :]
