"""One CSI plugin, asked over its socket. Calls wait in threads, so a plugin that is slow harms nobody else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lepa.client.csi import messages as csi
from lepa.client.csi.messages import (
    ACCESSIBILITY,
    CONTROLLER_SERVICE,
    message,
)
from lepa.model.errors import Code, LepaError
from lepa.model.volume import CSIControllerInfo, CSIInfo, CSINodeInfo, CSITopology

QUICK_S: Final = 10.0
OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
CALL_S: Final = 100.0
CODES: Final[dict[str, Code]] = {
    "NOT_FOUND": "not_found",
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "timeout",
    "INVALID_ARGUMENT": "invalid",
    "FAILED_PRECONDITION": "invalid",
}
ANSWERS: Final = {
    "Identity/GetPluginInfo": "GetPluginInfoResponse",
    "Identity/GetPluginCapabilities": "GetPluginCapabilitiesResponse",
    "Identity/Probe": "ProbeResponse",
    "Controller/CreateVolume": "CreateVolumeResponse",
    "Controller/DeleteVolume": "Empty",
    "Controller/ControllerExpandVolume": "ControllerExpandVolumeResponse",
    "Controller/ControllerPublishVolume": "ControllerPublishVolumeResponse",
    "Controller/ControllerUnpublishVolume": "Empty",
    "Controller/ValidateVolumeCapabilities": "ValidateVolumeCapabilitiesResponse",
    "Controller/ListVolumes": "ListVolumesResponse",
    "Controller/ControllerGetCapabilities": "GetCapabilitiesResponse",
    "Controller/CreateSnapshot": "CreateSnapshotResponse",
    "Controller/DeleteSnapshot": "Empty",
    "Controller/ListSnapshots": "ListSnapshotsResponse",
    "Node/NodeStageVolume": "Empty",
    "Node/NodeUnstageVolume": "Empty",
    "Node/NodePublishVolume": "Empty",
    "Node/NodeUnpublishVolume": "Empty",
    "Node/NodeExpandVolume": "NodeExpandVolumeResponse",
    "Node/NodeGetCapabilities": "GetCapabilitiesResponse",
    "Node/NodeGetInfo": "NodeGetInfoResponse",
}
"""Methods that we call, and what they answer."""


class PluginClient:
    """Calls to the plugin that listens at a socket. Made without connecting; `close` lets go."""

    def __init__(self, socket: Path) -> None:
        try:
            import grpc
        except ImportError as error:
            text = "CSI plugins need grpcio, which is not installed: pip install lepa[grpc]"
            raise LepaError("unsupported", text) from error
        self._grpc = grpc
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=OPTIONS)

    async def call(self, method: str, request: Any = None, timeout_s: float = CALL_S) -> Any:
        """The answer to `Controller/CreateVolume` and the like. Raises LepaError with what the plugin says."""
        answer = message(ANSWERS[method])
        stub: Callable[..., Any] = self._channel.unary_unary(
            f"/csi.v1.{method}",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        given = request if request is not None else message("Empty")()
        try:
            return await asyncio.to_thread(stub, given, timeout=timeout_s, wait_for_ready=False)
        except self._grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
            raise LepaError(CODES.get(code, "internal"), f"CSI plugin: {method}: {code}: {details}"[:500]) from error

    async def fingerprint(self, plugin_id: str, alloc_id: str, *, controller: bool, node: bool) -> CSIInfo:
        """What the plugin says of itself. Raises LepaError."""
        probe = await self.call("Identity/Probe", timeout_s=QUICK_S)
        ready = probe.ready.value if probe.HasField("ready") else True
        told = await self.call("Identity/GetPluginInfo", timeout_s=QUICK_S)
        able = await self.call("Identity/GetPluginCapabilities", timeout_s=QUICK_S)
        services = {each.service.type for each in able.capabilities}
        return CSIInfo(
            plugin_id=plugin_id,
            alloc_id=alloc_id,
            healthy=ready,
            health_description="healthy" if ready else "the plugin says that it is not ready",
            provider=told.name,
            provider_version=told.vendor_version,
            requires_controller_plugin=CONTROLLER_SERVICE in services,
            requires_topologies=ACCESSIBILITY in services,
            controller_info=await self._controller() if controller else None,
            node_info=await self._node() if node else None,
        )

    async def _controller(self) -> CSIControllerInfo:
        told = await self.call("Controller/ControllerGetCapabilities", timeout_s=QUICK_S)
        able = {each.rpc.type for each in told.capabilities}
        return CSIControllerInfo(
            supports_create_delete=csi.CREATE_DELETE in able,
            supports_attach_detach=csi.PUBLISH in able,
            supports_list_volumes=csi.LIST in able,
            supports_get_capacity=csi.CAPACITY in able,
            supports_create_delete_snapshot=csi.SNAPSHOT in able,
            supports_list_snapshots=csi.LIST_SNAPSHOTS in able,
            supports_clone=csi.CLONE in able,
            supports_read_only_attach=csi.READ_ONLY in able,
            supports_expand=csi.EXPAND in able,
            supports_list_volumes_attached_nodes=csi.LIST_NODES in able,
            supports_condition=csi.CONDITION in able,
            supports_get=csi.GET in able,
        )

    async def _node(self) -> CSINodeInfo:
        told = await self.call("Node/NodeGetCapabilities", timeout_s=QUICK_S)
        able = {each.rpc.type for each in told.capabilities}
        info = await self.call("Node/NodeGetInfo", timeout_s=QUICK_S)
        segments = dict(info.accessible_topology.segments)
        return CSINodeInfo(
            id=info.node_id,
            max_volumes=info.max_volumes_per_node,
            accessible_topology=CSITopology(segments=segments) if segments else None,
            requires_node_stage_volume=csi.STAGE in able,
            supports_stats=csi.STATS in able,
            supports_expand=csi.NODE_EXPAND in able,
            supports_condition=csi.NODE_CONDITION in able,
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()
