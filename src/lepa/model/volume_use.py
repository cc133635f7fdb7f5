"""Pure: which volumes an allocation uses, and whether two may use one at a time."""

from collections.abc import Iterator
from typing import NamedTuple

from lepa.model.job import TaskGroup, VolumeRequest
from lepa.model.volume import READERS, CSIVolume

SINGLE_WRITER = frozenset({"single-node-writer", "single-node-single-writer", "multi-node-single-writer"})
SINGLE_NODE = "single-node-"


class Use(NamedTuple):
    """One volume that an allocation uses. label: of the group's block; source: the volume's name or id."""

    label: str
    source: str
    request: VolumeRequest

    @property
    def writes(self) -> bool:
        """Whether the allocation may write to it."""
        return not self.request.read_only and self.request.access_mode not in READERS


def uses(group: TaskGroup, alloc_name: str, kind: str) -> Iterator[Use]:
    """The volumes of type `kind` ("host" or "csi") of an allocation called `job.group[2]`."""
    for label, request in group.volumes.items():
        if request.type == kind:
            yield Use(label, source_of(request, alloc_name), request)


def source_of(request: VolumeRequest, alloc_name: str) -> str:
    """The name of the volume; with per_alloc it ends in the allocation's index, such as `data[2]`."""
    return (request.source or request.name) + (index_text(alloc_name) if request.per_alloc else "")


def index_text(alloc_name: str) -> str:
    """`[2]` of `job.group[2]`."""
    return alloc_name[alloc_name.rfind("[") :] if alloc_name.endswith("]") else ""


def excludes(access_mode: str) -> bool:
    """Whether of all that use a host volume with this mode only one may write."""
    return access_mode == "single-node-single-writer"


def claim_refusal(volume: CSIVolume, use: Use, holders: "list[Holder]", node_id: str) -> str:
    """Why an allocation cannot have a CSI volume beside those that hold it, or "". node_id "": anywhere."""
    wanted = (use.request.access_mode, use.request.attachment_mode)
    offered = {(each.access_mode, each.attachment_mode) for each in volume.requested_capabilities}
    if offered and wanted not in offered:
        return f"CSI volume {volume.id} does not offer access mode {wanted[0]} with attachment mode {wanted[1]}"
    modes = {holder.access_mode for holder in holders if holder.access_mode}
    if modes and wanted[0] not in modes:
        return f"CSI volume {volume.id} is in use with access mode {', '.join(sorted(modes))}"
    if use.writes and wanted[0] in SINGLE_WRITER and any(holder.writes for holder in holders):
        return f"CSI volume {volume.id} has exhausted its available writer claims"
    if node_id and wanted[0].startswith(SINGLE_NODE) and any(holder.node_id != node_id for holder in holders):
        return f"CSI volume {volume.id} is in use on another node"
    return ""


class Holder(NamedTuple):
    """Who holds a CSI volume."""

    alloc_id: str
    node_id: str
    writes: bool
    access_mode: str
