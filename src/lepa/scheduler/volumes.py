"""Pure: which volumes one allocation gets: what its group's `volume` blocks mean for it, and what keeps it from them.

`bind` turns the blocks of a group into those of one allocation: `per_alloc` becomes the name with its index, `sticky`
the very volume that this instance of the group had before, a CSI source the volume itself with what plugins must offer.
Groups without such volumes stay as they are, so that all their allocations share one ranking.

`collision` looks at what depends on the other allocations: writers of a volume that allows one, and how many CSI
volumes a node takes.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lepa.model.allocation import Allocation
from lepa.model.job import Job, TaskGroup, VolumeRequest
from lepa.model.node import Node
from lepa.model.usage import has_ended, is_stopped, occupies
from lepa.model.volume import CSITopology, TaskGroupHostVolumeClaim
from lepa.model.volume_use import Holder, Use, claim_refusal, excludes, index_text, source_of, uses
from lepa.scheduler.view import View

EXCLUDED = "volume {name} has a writer already"


class BoundRequest(VolumeRequest, frozen=True):
    """A volume block of one allocation.

    volume_id: the host volume it must be, "" for any. plugin_id, topologies: of its CSI volume.
    refusal: why it cannot be had anywhere now.
    """

    volume_id: str = ""
    plugin_id: str = ""
    topologies: tuple[CSITopology, ...] = ()
    refusal: str = ""


def is_particular(group: TaskGroup) -> bool:
    """Whether the allocations of a group need different volumes."""
    return any(request.per_alloc or request.sticky for request in group.volumes.values())


def bind(
    view: View, job: Job, group: TaskGroup, alloc_name: str, previous: str = "", taken: Sequence[str] = ()
) -> TaskGroup:
    """The group with its volume blocks as one allocation needs them.

    previous: the allocation that it follows. taken: volumes that this plan has given to other instances.
    """
    if not group.volumes:
        return group
    bound = {
        label: _bound(view, job, group, request, alloc_name, previous, taken)
        for label, request in group.volumes.items()
    }
    return replace(group, volumes=bound)


def _bound(
    view: View,
    job: Job,
    group: TaskGroup,
    request: VolumeRequest,
    alloc_name: str,
    previous: str,
    taken: Sequence[str],
) -> BoundRequest:
    given = {name: getattr(request, name) for name in VolumeRequest.__struct_fields__}
    source = source_of(request, alloc_name)
    plain = BoundRequest(**(given | {"source": source, "per_alloc": False}))
    if request.type == "host":
        claims = view.volume_claims(job.namespace, job.id, group.name) if request.sticky else ()
        return replace(plain, volume_id=_kept_volume(view, claims, source, previous, taken))
    if request.type == "csi":
        return _bound_csi(view, job, plain)
    return plain


def _kept_volume(
    view: View, claims: Iterable[TaskGroupHostVolumeClaim], name: str, previous: str, taken: Sequence[str]
) -> str:
    """The volume of the allocation before; else one that an instance which has ended had."""
    mine = [claim for claim in claims if claim.volume_name == name and claim.volume_id not in taken]
    for claim in mine:
        if previous and claim.alloc_id == previous:
            return claim.volume_id
    for claim in mine:
        alloc = view.allocation(claim.alloc_id)
        if alloc is None or not occupies(alloc):
            return claim.volume_id
    return ""


def _bound_csi(view: View, job: Job, request: BoundRequest) -> BoundRequest:
    volume = view.csi_volume(job.namespace, request.source)
    if volume is None:
        return replace(request, refusal=f"missing CSI volume(s) {request.source}")
    use = Use(request.name, request.source, request)
    refusal = claim_refusal(volume, use, _holders(view, job, request.source), "")
    return replace(request, plugin_id=volume.plugin_id, topologies=volume.topologies, refusal=refusal)


def _holders(view: View, job: Job, volume_id: str) -> list[Holder]:
    """Who holds a CSI volume and goes on doing so: what was told to stop will let go of it."""
    found = []
    for claim in view.csi_claims(job.namespace, volume_id):
        alloc = view.allocation(claim.alloc_id)
        if alloc is not None and not has_ended(alloc) and not is_stopped(alloc):
            found.append(Holder(claim.alloc_id, claim.node_id, claim.mode == "write", claim.access_mode))
    return found


# What depends on other allocations


def collision(
    view: View, node: Node, group: TaskGroup, here: Iterable[Allocation], placed: Iterable[Allocation], job: Job
) -> str:
    """Why an allocation of a bound group cannot have its volumes on a node, or "".

    here: the node's allocations as the plan leaves them. placed: allocations of the job that run on or that the plan
    makes, wherever they are.
    """
    if not group.volumes:
        return ""
    others = [alloc for alloc in here if occupies(alloc)]
    for use in uses(group, "", "host"):
        volume = node.host_volumes.get(use.source)
        if volume is None or not volume.id or not use.writes or not excludes(_mode(use, volume.access_modes)):
            continue
        users = [each for alloc in others for each in _uses_of(view, alloc, "host") if each.source == use.source]
        if any(each.writes for each in users):
            return EXCLUDED.format(name=use.source)
    for use in uses(group, "", "csi"):
        if refusal := _csi_collision(view, node, use, others, placed, job):
            return refusal
    return ""


def _mode(use: Use, offered: Sequence[str]) -> str:
    return use.request.access_mode or (offered[0] if len(offered) == 1 else "")


def _csi_collision(
    view: View, node: Node, use: Use, here: Iterable[Allocation], placed: Iterable[Allocation], job: Job
) -> str:
    volume = view.csi_volume(job.namespace, use.source)
    if volume is None:
        return f"missing CSI volume(s) {use.source}"
    holders = {holder.alloc_id: holder for holder in _holders(view, job, use.source)}
    for alloc in placed:
        for each in _uses_of(view, alloc, "csi"):
            if each.source == use.source and occupies(alloc):
                holders[alloc.id] = Holder(alloc.id, alloc.node_id, each.writes, each.request.access_mode)
    if refusal := claim_refusal(volume, use, list(holders.values()), node.id):
        return refusal
    info = node.csi_node_plugins.get(volume.plugin_id)
    limit = info.node_info.max_volumes if info is not None and info.node_info is not None else 0
    if limit <= 0:
        return ""
    used = {(alloc.namespace, each.source) for alloc in here for each in _uses_of(view, alloc, "csi")}
    plugins = [view.csi_volume(namespace, source) for namespace, source in used - {(job.namespace, use.source)}]
    if sum(each is not None and each.plugin_id == volume.plugin_id for each in plugins) >= limit:
        return f"CSI plugin {volume.plugin_id} has the maximum number of volumes on client {node.id}"
    return ""


def _uses_of(view: View, alloc: Allocation, kind: str) -> list[Use]:
    """The volumes of a placed allocation."""
    job = alloc.job or view.job_version(alloc.namespace, alloc.job_id, alloc.job_version)
    group = next((g for g in job.task_groups if g.name == alloc.task_group), None) if job else None
    return list(uses(group, alloc.name, kind)) if group is not None and group.volumes else []


def collisions(view: View, node: Node, after: Sequence[Allocation], updates: Iterable[Allocation]) -> bool:
    """Whether of a node's allocations two that a plan brings together write to a host volume that allows one writer."""
    if not any(volume.id for volume in node.host_volumes.values()):
        return False
    changed = {alloc.id for alloc in updates if occupies(alloc)}
    writers: dict[str, str] = {}
    for alloc in after:
        if not occupies(alloc):
            continue
        for use in _uses_of(view, alloc, "host"):
            volume = node.host_volumes.get(use.source)
            if volume is None or not volume.id or not use.writes or not excludes(_mode(use, volume.access_modes)):
                continue
            first = writers.setdefault(use.source, alloc.id)
            if first != alloc.id and (first in changed or alloc.id in changed):
                return True
    return False


def own_key(group: TaskGroup, alloc_name: str, previous: str) -> str:
    """Tells apart the allocations of a group that may not share a ranking, because their volumes differ."""
    return f"{index_text(alloc_name)}{previous}" if is_particular(group) else ""


def given_volumes(group: TaskGroup, alloc_name: str, node: Node | None) -> list[str]:
    """Ids of the volumes that a placed allocation keeps (`sticky`)."""
    kept = [use.source for use in uses(group, alloc_name, "host") if use.request.sticky]
    found = [node.host_volumes.get(source) for source in kept] if node is not None else []
    return [volume.id for volume in found if volume is not None and volume.id]
