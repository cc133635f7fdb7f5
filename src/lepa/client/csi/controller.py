"""What servers ask of a CSI controller plugin that runs on this node."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from lepa.client.csi import messages as csi
from lepa.client.csi.messages import message
from lepa.client.csi.plugins import CsiPlugins
from lepa.model.errors import LepaError
from lepa.model.job import CSIMountOptions
from lepa.model.volume import CSISnapshot, CSIVolume, CSIVolumeExternalStub
from lepa.model.wire import from_builtins, to_builtins

Body = Mapping[str, Any]
ENTRIES_MAX: Final = 1_000
"""Volumes or snapshots of one page."""


class CsiController:
    """Answers requests by asking the plugin that they name."""

    def __init__(self, plugins: CsiPlugins) -> None:
        self._plugins = plugins

    def handlers(self) -> dict[str, Callable[[Body], Awaitable[dict[str, Any]]]]:
        """By kind of request."""
        return {
            "csi.create": self.create,
            "csi.validate": self.validate,
            "csi.expand": self.expand,
            "csi.delete": self.delete,
            "csi.attach": self.attach,
            "csi.detach": self.detach,
            "csi.list": self.list_volumes,
            "csi.snapshot-create": self.create_snapshot,
            "csi.snapshot-delete": self.delete_snapshot,
            "csi.snapshot-list": self.list_snapshots,
        }

    async def _call(self, body: Body, method: str, request: Any) -> Any:
        running, _ = await self._plugins.find(body["PluginID"])
        return await running.client.call(f"Controller/{method}", request)

    async def create(self, body: Body) -> dict[str, Any]:
        """Make a volume, of a snapshot or of another volume where that is asked."""
        volume = from_builtins(dict(body), CSIVolume)
        request = message("CreateVolumeRequest")(
            name=volume.name,
            volume_capabilities=_capabilities(volume),
            parameters=volume.parameters,
            secrets=volume.secrets,
        )
        request.capacity_range.required_bytes = volume.requested_capacity_min
        request.capacity_range.limit_bytes = volume.requested_capacity_max
        if volume.snapshot_id:
            request.volume_content_source.snapshot.snapshot_id = volume.snapshot_id
        if volume.clone_id:
            request.volume_content_source.volume.volume_id = volume.clone_id
        wanted = volume.requested_topologies
        if wanted is not None:
            for places, given in (("requisite", wanted.required), ("preferred", wanted.preferred)):
                for place in given:
                    getattr(request.accessibility_requirements, places).add(segments=place.segments)
        made = (await self._call(body, "CreateVolume", request)).volume
        return {
            "ExternalID": made.volume_id,
            "Capacity": made.capacity_bytes,
            "Context": dict(made.volume_context),
            "Topologies": [{"Segments": dict(place.segments)} for place in made.accessible_topology],
        }

    async def validate(self, body: Body) -> dict[str, Any]:
        """Whether the storage has the volume, and it can be used as is wanted. Raises LepaError when not."""
        volume = from_builtins(dict(body), CSIVolume)
        request = message("ValidateVolumeCapabilitiesRequest")(
            volume_id=volume.external_id,
            volume_context=volume.context,
            volume_capabilities=_capabilities(volume),
            parameters=volume.parameters,
            secrets=volume.secrets,
        )
        answer = await self._call(body, "ValidateVolumeCapabilities", request)
        if not answer.HasField("confirmed"):
            raise LepaError("invalid", f"the storage does not offer volume {volume.external_id} so: {answer.message}")
        return {}

    async def expand(self, body: Body) -> dict[str, Any]:
        """Give a volume more room; whether its nodes have something to do then is told."""
        volume = from_builtins(dict(body), CSIVolume)
        request = message("ControllerExpandVolumeRequest")(volume_id=volume.external_id, secrets=volume.secrets)
        request.capacity_range.required_bytes = volume.requested_capacity_min
        request.capacity_range.limit_bytes = volume.requested_capacity_max
        if volume.access_mode:
            request.volume_capability.CopyFrom(_capability(volume, volume.access_mode, volume.attachment_mode))
        answer = await self._call(body, "ControllerExpandVolume", request)
        return {"Capacity": answer.capacity_bytes, "NodeExpansionRequired": answer.node_expansion_required}

    async def delete(self, body: Body) -> dict[str, Any]:
        """Remove a volume with what is in it."""
        request = message("DeleteVolumeRequest")(volume_id=body["ExternalID"], secrets=body["Secrets"])
        await self._call(body, "DeleteVolume", request)
        return {}

    async def attach(self, body: Body) -> dict[str, Any]:
        """Attach a volume to a node."""
        options = body.get("MountOptions") or {}
        request = message("ControllerPublishVolumeRequest")(
            volume_id=body["ExternalID"],
            node_id=body["ExternalNode"],
            volume_capability=csi.capability(
                body["AccessMode"],
                body["AttachmentMode"],
                options.get("FSType", ""),
                tuple(options.get("MountFlags") or ()),
            ),
            readonly=body["ReadOnly"],
            secrets=body["Secrets"],
            volume_context=body["Context"],
        )
        answer = await self._call(body, "ControllerPublishVolume", request)
        return {"Context": dict(answer.publish_context)}

    async def detach(self, body: Body) -> dict[str, Any]:
        """Detach a volume from a node; one that is not attached is fine."""
        request = message("ControllerUnpublishVolumeRequest")(
            volume_id=body["ExternalID"], node_id=body["ExternalNode"], secrets=body["Secrets"]
        )
        try:
            await self._call(body, "ControllerUnpublishVolume", request)
        except LepaError as error:
            if error.code != "not_found":
                raise
        return {}

    async def list_volumes(self, body: Body) -> dict[str, Any]:
        """Volumes as the storage knows them."""
        request = message("ListVolumesRequest")(max_entries=_page(body), starting_token=body["NextToken"])
        answer = await self._call(body, "ListVolumes", request)
        found = [
            CSIVolumeExternalStub(
                external_id=entry.volume.volume_id,
                capacity_bytes=entry.volume.capacity_bytes,
                volume_context=dict(entry.volume.volume_context),
                clone_id=entry.volume.content_source.volume.volume_id,
                snapshot_id=entry.volume.content_source.snapshot.snapshot_id,
                published_external_node_ids=tuple(entry.status.published_node_ids),
                is_abnormal=entry.status.volume_condition.abnormal,
                status=entry.status.volume_condition.message,
            )
            for entry in answer.entries
        ]
        return {"Volumes": [to_builtins(each) for each in found], "NextToken": answer.next_token}

    async def create_snapshot(self, body: Body) -> dict[str, Any]:
        """Make a snapshot."""
        request = message("CreateSnapshotRequest")(
            source_volume_id=body["ExternalID"],
            name=body["Name"],
            secrets=body["Secrets"],
            parameters=body["Parameters"],
        )
        answer = await self._call(body, "CreateSnapshot", request)
        return {"Snapshot": to_builtins(_snapshot(answer.snapshot))}

    async def delete_snapshot(self, body: Body) -> dict[str, Any]:
        """Remove a snapshot."""
        request = message("DeleteSnapshotRequest")(snapshot_id=body["SnapshotID"], secrets=body["Secrets"])
        await self._call(body, "DeleteSnapshot", request)
        return {}

    async def list_snapshots(self, body: Body) -> dict[str, Any]:
        """Snapshots as the storage knows them."""
        request = message("ListSnapshotsRequest")(
            max_entries=_page(body), starting_token=body["NextToken"], secrets=body["Secrets"]
        )
        answer = await self._call(body, "ListSnapshots", request)
        found = [to_builtins(_snapshot(entry.snapshot)) for entry in answer.entries]
        return {"Snapshots": found, "NextToken": answer.next_token}


def _capabilities(volume: CSIVolume) -> list[Any]:
    return [_capability(volume, each.access_mode, each.attachment_mode) for each in volume.requested_capabilities]


def _capability(volume: CSIVolume, access_mode: str, attachment_mode: str) -> Any:
    options = volume.mount_options or CSIMountOptions()
    return csi.capability(access_mode, attachment_mode, options.fs_type, options.mount_flags)


def _page(body: Body) -> int:
    return min(int(body.get("PerPage") or ENTRIES_MAX), ENTRIES_MAX)


def _snapshot(told: Any) -> CSISnapshot:
    return CSISnapshot(
        id=told.snapshot_id,
        external_source_volume_id=told.source_volume_id,
        size_bytes=told.size_bytes,
        create_time=told.creation_time.seconds,
        is_ready=told.ready_to_use,
    )
