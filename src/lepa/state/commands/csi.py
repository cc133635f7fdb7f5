"""Pure: CSI volumes and who holds them."""

from typing import Final

from msgspec.structs import replace

from lepa.model.errors import LepaError, conflict, invalid, not_found
from lepa.model.volume import CSIClaim, CSIVolume
from lepa.model.volume_use import Holder, claim_refusal, uses
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.volumes import evaluate_waiting, group_of_alloc

ACCESS_MODES: Final = (
    "single-node-reader-only",
    "single-node-writer",
    "multi-node-reader-only",
    "multi-node-single-writer",
    "multi-node-multi-writer",
)
ATTACHMENT_MODES: Final = ("file-system", "block-device")
VOLUME_NOT_FOUND: Final = "volume not found"
_READ: Final = dict[str, object](
    read_allocs={}, write_allocs={}, allocations=(), schedulable=False, access_mode="", attachment_mode=""
)
"""Fields that are filled in when a volume is read."""


def csi_problems(volume: CSIVolume, *, create: bool, known: bool = False) -> list[str]:
    """What is wrong with a volume that somebody submits. known: it is registered, and shall change."""
    found = []
    if not volume.id:
        found.append("missing volume ID")
    if not volume.plugin_id:
        found.append("missing plugin ID")
    if not create and not known and not volume.external_id:
        found.append("to register a volume takes its external_id, what the storage calls it")
    if create and not known and not volume.name:
        found.append("to create a volume takes a name")
    if not volume.requested_capabilities:
        found.append("must include at least one capability block")
    for capability in volume.requested_capabilities:
        if capability.access_mode not in ACCESS_MODES:
            found.append(f'invalid access mode: "{capability.access_mode}"; wanted one of {", ".join(ACCESS_MODES)}')
        if capability.attachment_mode not in ATTACHMENT_MODES:
            found.append(f'invalid attachment mode: "{capability.attachment_mode}"')
    low, high = volume.requested_capacity_min, volume.requested_capacity_max
    if low < 0 or high < 0 or 0 < high < low:
        found.append(f"capacity_max ({high} bytes) must not be less than capacity_min ({low} bytes)")
    if volume.clone_id and volume.snapshot_id:
        found.append("a volume is made of a clone or of a snapshot, not of both")
    return found


def store_csi_volume(draft: Draft, volume: CSIVolume) -> CSIVolume:
    """Register a volume, or change one. What it is stored as may not change while it is used."""
    if draft.snapshot.namespace(volume.namespace) is None:
        raise invalid(f'volume "{volume.id}" is in nonexistent namespace "{volume.namespace}"')
    present = draft.snapshot.csi_volume(volume.namespace, volume.id)
    if present is not None:
        same = (present.external_id, present.plugin_id) == (volume.external_id, volume.plugin_id)
        if not same and draft.snapshot.csi_claims(volume.namespace, volume.id):
            raise conflict(f"volume {volume.id} is in use: its external ID and plugin cannot change now")
    stored = replace(
        volume,
        create_time=present.create_time if present is not None else draft.now_ns,
        modify_time=draft.now_ns,
        **_READ,
    )
    draft.put(keys.csi_volume_key(volume.namespace, volume.id), stored, present)
    evaluate_waiting(draft, volume.namespace, volume.id, "csi")
    return stored


def existing_csi_volume(draft: Draft, namespace: str, volume_id: str) -> CSIVolume:
    """The volume, or LepaError(not_found)."""
    volume = draft.snapshot.csi_volume(namespace, volume_id)
    if volume is None:
        raise not_found(VOLUME_NOT_FOUND)
    return volume


def forget_csi_volume(draft: Draft, namespace: str, volume_id: str, *, force: bool = False) -> None:
    """Forget a volume that nobody holds; force: whoever holds it."""
    volume = existing_csi_volume(draft, namespace, volume_id)
    claims = draft.snapshot.csi_claims(namespace, volume_id)
    if claims and not force:
        raise LepaError("conflict", f"volume in use: {volume_id}", http_status=500)
    for claim in claims:
        draft.erase(keys.csi_claim_key(namespace, volume_id, claim.alloc_id))
    draft.delete(keys.csi_volume_key(namespace, volume_id), volume)


def claim_volume(draft: Draft, wanted: CSIClaim) -> CSIClaim:
    """Let an allocation hold a volume. Raises LepaError(conflict) with the reason when it cannot have it now."""
    volume = existing_csi_volume(draft, wanted.namespace, wanted.volume_id)
    alloc = draft.snapshot.allocation(wanted.alloc_id)
    if alloc is None or alloc.node_id != wanted.node_id or alloc.namespace != wanted.namespace:
        raise LepaError("denied", f"allocation {wanted.alloc_id} is not on this node")
    present = next((c for c in draft.snapshot.csi_claims_of_allocation(alloc.id) if _same(c, wanted)), None)
    if present is not None:
        return present
    group = group_of_alloc(draft.snapshot, alloc)
    use = next((u for u in uses(group, alloc.name, "csi") if u.source == volume.id), None) if group else None
    if use is None:
        raise LepaError("denied", f"allocation {alloc.id} does not use volume {volume.id}")
    holders = [
        Holder(claim.alloc_id, claim.node_id, claim.mode == "write", claim.access_mode)
        for claim in draft.snapshot.csi_claims(wanted.namespace, volume.id)
    ]
    if refusal := claim_refusal(volume, use, holders, wanted.node_id):
        raise conflict(refusal)
    claim = replace(
        wanted,
        mode="write" if use.writes else "read",
        access_mode=use.request.access_mode,
        attachment_mode=use.request.attachment_mode,
    )
    draft.put(keys.csi_claim_key(claim.namespace, claim.volume_id, claim.alloc_id), claim, None)
    draft.put(keys.csi_volume_key(volume.namespace, volume.id), replace(volume, modify_time=draft.now_ns), volume)
    return claim


def _same(claim: CSIClaim, wanted: CSIClaim) -> bool:
    return (claim.namespace, claim.volume_id) == (wanted.namespace, wanted.volume_id)


def attached(draft: Draft, claim: CSIClaim, external_node: str, context: dict[str, str]) -> CSIClaim:
    """The controller has attached the volume to the claim's node."""
    key = keys.csi_claim_key(claim.namespace, claim.volume_id, claim.alloc_id)
    present = next((c for c in draft.snapshot.csi_claims_of_allocation(claim.alloc_id) if _same(c, claim)), None)
    if present is None:
        raise conflict(f"volume {claim.volume_id} was released while it was attached")
    written = replace(present, external_node=external_node, context=context)
    draft.put(key, written, present)
    return written


def free_claim(draft: Draft, claim: CSIClaim) -> None:
    """The storage has let go; jobs that waited for the volume are looked at again."""
    draft.erase(keys.csi_claim_key(claim.namespace, claim.volume_id, claim.alloc_id))
    evaluate_waiting(draft, claim.namespace, claim.volume_id, "csi")
