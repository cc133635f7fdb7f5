"""Pure: volumes of nodes: where one is made, what becomes of it, and which instance of a group keeps which."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.job import TaskGroup
from lepa.model.node import Node
from lepa.model.volume import HostVolume, HostVolumeCapability, TaskGroupHostVolumeClaim
from lepa.model.volume_use import uses
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_jobs
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES
from lepa.state.snapshot import Snapshot

ACCESS_MODES: Final = (
    "single-node-writer",
    "single-node-reader-only",
    "single-node-single-writer",
    "single-node-multi-writer",
)
ATTACHMENT_MODES: Final = ("file-system", "block-device")
NAME_MAX: Final = 128
Choose = Callable[[Snapshot, HostVolume], Node]
"""Chooses the node of a volume, or raises LepaError(invalid)."""
VOLUME_NOT_FOUND: Final = "volume not found"


def place_host_volume(draft: Draft, wanted: HostVolume, choose: Choose, *, register: bool) -> HostVolume:
    """Take in a volume on the node that `choose` says; it is pending until that has it. Raises LepaError."""
    namespace = wanted.namespace or "default"
    present = draft.snapshot.host_volume(namespace, wanted.id) if wanted.id else None
    if wanted.id and present is None:
        raise not_found(f'no volume with ID "{wanted.id}"; leave the ID out to make a new one')
    if problems := host_volume_problems(wanted, register=register):
        raise invalid("; ".join(problems))
    if draft.snapshot.namespace(namespace) is None:
        raise invalid(f'volume "{wanted.name}" is in nonexistent namespace "{namespace}"')
    on = present.node_id if present is not None else wanted.node_id
    node = choose(draft.snapshot, replace(wanted, namespace=namespace, node_id=on))
    volume = replace(
        wanted,
        id=present.id if present is not None else draft.new_id(),
        namespace=namespace,
        node_id=node.id,
        node_pool=node.node_pool,
        state="pending",
        capacity_bytes=present.capacity_bytes if present is not None else wanted.capacity_bytes,
        host_path=wanted.host_path if register else present.host_path if present is not None else "",
        requested_capabilities=wanted.requested_capabilities or (HostVolumeCapability("file-system", ACCESS_MODES[0]),),
        create_time=present.create_time if present is not None else draft.now_ns,
        modify_time=draft.now_ns,
        allocations=(),
    )
    draft.put(keys.host_volume_key(namespace, volume.id), volume, present)
    return volume


def host_volume_problems(volume: HostVolume, *, register: bool) -> list[str]:
    """What is wrong with a volume that somebody submits."""
    found = []
    if not volume.name or len(volume.name) > NAME_MAX:
        found.append(f"a volume needs a name of 1 to {NAME_MAX} characters")
    if "/" in volume.name or "\0" in volume.name:
        found.append(f'the name of a volume holds no "/", found "{volume.name}"')
    low, high = volume.requested_capacity_min_bytes, volume.requested_capacity_max_bytes
    if low < 0 or high < 0 or 0 < high < low:
        found.append(f"capacity_max ({high} bytes) must not be less than capacity_min ({low} bytes)")
    for capability in volume.requested_capabilities:
        if capability.access_mode not in ACCESS_MODES:
            found.append(f'invalid access mode: "{capability.access_mode}"; wanted one of {", ".join(ACCESS_MODES)}')
        if capability.attachment_mode not in ATTACHMENT_MODES:
            found.append(f'invalid attachment mode: "{capability.attachment_mode}"')
    if register and not volume.host_path.startswith("/"):
        found.append(f'to register a volume takes an absolute host_path, found "{volume.host_path}"')
    if register and not volume.node_id:
        found.append("to register a volume takes the node_id of the node that has it")
    if not register and not volume.plugin_id:
        found.append("to create a volume takes a plugin_id, such as mkdir")
    if not register and volume.host_path:
        found.append("host_path is for volumes that are registered; the plugin chooses it for those that are created")
    return found


def set_host_volume(draft: Draft, volume: HostVolume, *, state: str, path: str = "", capacity: int = -1) -> HostVolume:
    """Note what became of a volume on its node. Jobs that waited for it are looked at again."""
    present = existing_host_volume(draft, volume.namespace, volume.id)
    written = replace(
        present,
        state=state,
        host_path=path or present.host_path,
        capacity_bytes=capacity if capacity >= 0 else present.capacity_bytes,
        modify_time=draft.now_ns,
    )
    draft.put(keys.host_volume_key(present.namespace, present.id), written, present)
    if state == "ready":
        evaluate_waiting(draft, present.namespace, present.name, "host")
    return written


def begin_deletion(draft: Draft, namespace: str, volume_id: str) -> HostVolume:
    """From now on nobody gets the volume. Raises LepaError(conflict) while somebody has it."""
    volume = existing_host_volume(draft, namespace, volume_id)
    if users := [alloc.id for alloc in users_of(draft.snapshot, volume)]:
        raise LepaError(
            "conflict",
            f"volume {volume_id} in use by allocations: {', '.join(users[:10])}; stop them first",
            http_status=500,
        )
    return set_host_volume(draft, volume, state="deleted")


def forget_host_volume(draft: Draft, namespace: str, volume_id: str) -> None:
    """The volume is gone, and so is what instances of groups kept of it."""
    draft.erase(keys.host_volume_key(namespace, volume_id))
    for claim in draft.snapshot.all_volume_claims():
        if claim.volume_id == volume_id:
            draft.erase(keys.volume_claim_key(claim.id))


def existing_host_volume(draft: Draft, namespace: str, volume_id: str) -> HostVolume:
    """The volume, or LepaError(not_found)."""
    volume = draft.snapshot.host_volume(namespace, volume_id)
    if volume is None:
        raise not_found(VOLUME_NOT_FOUND)
    return volume


def users_of(snapshot: Snapshot, volume: HostVolume) -> list[Allocation]:
    """Allocations that have not ended and mount it."""
    found = []
    for alloc in snapshot.node_allocations(volume.node_id):
        if alloc.client_status in TERMINAL_CLIENT_STATUSES or alloc.namespace != volume.namespace:
            continue
        group = group_of_alloc(snapshot, alloc)
        if group is not None and any(use.source == volume.name for use in uses(group, alloc.name, "host")):
            found.append(alloc)
    return found


def group_of_alloc(snapshot: Snapshot, alloc: Allocation) -> TaskGroup | None:
    """The group of an allocation in the version of its job that it runs."""
    job = snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version)
    return next((g for g in job.task_groups if g.name == alloc.task_group), None) if job is not None else None


def evaluate_waiting(draft: Draft, namespace: str, source: str, kind: str) -> None:
    """Look again at jobs that wait for room, and that name a volume that has changed."""
    jobs = []
    for job in draft.snapshot.jobs_in(namespace):
        requests = [request for group in job.task_groups for request in group.volumes.values()]
        named = any(r.type == kind and source.startswith(r.source or r.name) for r in requests)
        blocked = any(e.status == "blocked" for e in draft.snapshot.job_evaluations(namespace, job.id))
        if named and blocked:
            jobs.append((namespace, job.id))
    evaluate_jobs(draft, jobs, "queued-allocs")


# What instances of groups keep


def keep_sticky_volumes(draft: Draft, alloc: Allocation, group: TaskGroup | None) -> None:
    """A new allocation keeps the volumes of its node that its group calls sticky, with older claims to them."""
    node = draft.node(alloc.node_id)
    if group is None or node is None:
        return
    claims = draft.snapshot.volume_claims(alloc.namespace, alloc.job_id, group.name)
    for use in uses(group, alloc.name, "host"):
        volume = node.host_volumes.get(use.source)
        if not use.request.sticky or volume is None or not volume.id:
            continue
        present = next((claim for claim in claims if claim.volume_id == volume.id), None)
        claim = TaskGroupHostVolumeClaim(
            id=present.id if present is not None else draft.new_id(),
            namespace=alloc.namespace,
            job_id=alloc.job_id,
            task_group_name=group.name,
            alloc_id=alloc.id,
            volume_id=volume.id,
            volume_name=use.source,
        )
        draft.put(keys.volume_claim_key(claim.id), claim, present)


def delete_claim(draft: Draft, claim_id: str) -> None:
    """The next instance may have any volume of the name."""
    if draft.snapshot.volume_claim(claim_id) is None:
        raise not_found("volume claim not found")
    draft.erase(keys.volume_claim_key(claim_id))
