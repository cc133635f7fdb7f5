"""Pure: what of a CSI volume may change once it is registered, and when the storage has to give it more room."""

from collections.abc import Collection

from msgspec.structs import replace

from lepa.model.errors import LepaError
from lepa.model.job import CSIMountOptions
from lepa.model.volume import CSIClaim, CSIVolume, CSIVolumeCapability

FIXED = {
    "name": "name",
    "external_id": "external ID",
    "plugin_id": "plugin ID",
    "clone_id": "clone ID",
    "snapshot_id": "snapshot ID",
    "parameters": "parameters",
}
"""Fields that stay as they are, with their names: what the storage made the volume with."""


def changed(present: CSIVolume, wanted: CSIVolume, claims: Collection[CSIClaim]) -> CSIVolume:
    """The volume as it shall be; what `wanted` leaves empty stays. claims: of those who hold it now.

    Capabilities, secrets, context, mount options (while nobody holds it) and the wanted capacity may change. Nomad's
    rules: the file of `volume create` also serves to change the volume. Raises LepaError with all that is wrong.
    """
    found = [*_fixed(present, wanted), *_held(present, wanted, claims), *_capacity(present, wanted)]
    if found:
        raise LepaError("conflict", f"unable to update volume: {'; '.join(found)}", http_status=500)
    low, high = wanted.requested_capacity_min, wanted.requested_capacity_max
    given = bool(low or high)
    return replace(
        present,
        requested_capabilities=wanted.requested_capabilities,
        mount_options=wanted.mount_options if not claims else present.mount_options,
        secrets=wanted.secrets,
        context=wanted.context or present.context,
        requested_capacity_min=low if given else present.requested_capacity_min,
        requested_capacity_max=high if given else present.requested_capacity_max,
    )


def must_expand(present: CSIVolume, volume: CSIVolume) -> bool:
    """Whether `changed` asks for another capacity, and for more than the storage gave."""
    before = (present.requested_capacity_min, present.requested_capacity_max)
    return (
        before != (volume.requested_capacity_min, volume.requested_capacity_max)
        and volume.requested_capacity_min > volume.capacity
    )


def _fixed(present: CSIVolume, wanted: CSIVolume) -> list[str]:
    found = [
        f"volume {name} cannot be updated"
        for field, name in FIXED.items()
        if getattr(wanted, field) and getattr(wanted, field) != getattr(present, field)
    ]
    topology = wanted.requested_topologies
    if present.topologies and topology is not None and topology != present.requested_topologies:
        found.append("volume topology request update was not compatible with existing topology")
    return found


def _held(present: CSIVolume, wanted: CSIVolume, claims: Collection[CSIClaim]) -> list[str]:
    found = []
    modes = {CSIVolumeCapability(claim.attachment_mode, claim.access_mode) for claim in claims}
    if not modes <= set(wanted.requested_capabilities):
        found.append("volume requested capabilities update was not compatible with existing capability in use")
    nothing = CSIMountOptions()
    if claims and (wanted.mount_options or nothing) != (present.mount_options or nothing):
        found.append("can not update mount options while volume is in use")
    return found


def _capacity(present: CSIVolume, wanted: CSIVolume) -> list[str]:
    if 0 < wanted.requested_capacity_max < present.capacity:
        return [
            f"max requested capacity ({wanted.requested_capacity_max} bytes) is less than what it has "
            f"({present.capacity} bytes): volumes do not shrink"
        ]
    return []
