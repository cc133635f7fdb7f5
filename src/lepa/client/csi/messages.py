"""The messages of the Container Storage Interface, version 1, that we speak, as protobuf classes made from one table.

Fields and numbers are those of the public `csi.proto` (container-storage-interface/spec, 1.0 and later); fields that
are not used here are skipped when they come. The classes are made at the first use, so no generated code has to be kept
in step with the version of protobuf. Enums are declared as int32, which is the same on the wire; their values stand
below.
"""

from functools import cache
from typing import Any, Final

CONTROLLER_SERVICE, ACCESSIBILITY = 1, 2
"""PluginCapability.Service.Type"""
CREATE_DELETE, PUBLISH, LIST, CAPACITY, SNAPSHOT, LIST_SNAPSHOTS = 1, 2, 3, 4, 5, 6
CLONE, READ_ONLY, EXPAND, LIST_NODES, CONDITION, GET = 7, 8, 9, 10, 11, 12
"""ControllerServiceCapability.RPC.Type"""
STAGE, STATS, NODE_EXPAND, NODE_CONDITION = 1, 2, 3, 4
"""NodeServiceCapability.RPC.Type"""
ACCESS_MODES: Final = {
    "single-node-writer": 1,
    "single-node-reader-only": 2,
    "multi-node-reader-only": 3,
    "multi-node-single-writer": 4,
    "multi-node-multi-writer": 5,
}
"""VolumeCapability.AccessMode.Mode"""

PACKAGE: Final = "lepa.csi"
TEXTS: Final = "map"
"""As a type: map<string, string>."""

_FIELDS: Final[dict[str, str]] = {
    "Empty": "",
    "BoolValue": "value:bool=1",
    "Timestamp": "seconds:int64=1 nanos:int32=2",
    "GetPluginInfoResponse": "name:string=1 vendor_version:string=2",
    "Service": "type:int32=1",
    "PluginCapability": "service:Service=1",
    "GetPluginCapabilitiesResponse": "capabilities:PluginCapability*=1",
    "ProbeResponse": "ready:BoolValue=1",
    "Topology": "segments:map=1",
    "TopologyRequirement": "requisite:Topology*=1 preferred:Topology*=2",
    "CapacityRange": "required_bytes:int64=1 limit_bytes:int64=2",
    "BlockVolume": "",
    "MountVolume": "fs_type:string=1 mount_flags:string*=2",
    "AccessMode": "mode:int32=1",
    "VolumeCapability": "block:BlockVolume=1 mount:MountVolume=2 access_mode:AccessMode=3",
    "SnapshotSource": "snapshot_id:string=1",
    "VolumeSource": "volume_id:string=1",
    "VolumeContentSource": "snapshot:SnapshotSource=1 volume:VolumeSource=2",
    "Volume": (
        "capacity_bytes:int64=1 volume_id:string=2 volume_context:map=3 content_source:VolumeContentSource=4 "
        "accessible_topology:Topology*=5"
    ),
    "CreateVolumeRequest": (
        "name:string=1 capacity_range:CapacityRange=2 volume_capabilities:VolumeCapability*=3 parameters:map=4 "
        "secrets:map=5 volume_content_source:VolumeContentSource=6 accessibility_requirements:TopologyRequirement=7"
    ),
    "CreateVolumeResponse": "volume:Volume=1",
    "DeleteVolumeRequest": "volume_id:string=1 secrets:map=2",
    "ControllerExpandVolumeRequest": (
        "volume_id:string=1 capacity_range:CapacityRange=2 secrets:map=3 volume_capability:VolumeCapability=4"
    ),
    "ControllerExpandVolumeResponse": "capacity_bytes:int64=1 node_expansion_required:bool=2",
    "ControllerPublishVolumeRequest": (
        "volume_id:string=1 node_id:string=2 volume_capability:VolumeCapability=3 readonly:bool=4 secrets:map=5 "
        "volume_context:map=6"
    ),
    "ControllerPublishVolumeResponse": "publish_context:map=1",
    "ControllerUnpublishVolumeRequest": "volume_id:string=1 node_id:string=2 secrets:map=3",
    "ValidateVolumeCapabilitiesRequest": (
        "volume_id:string=1 volume_context:map=2 volume_capabilities:VolumeCapability*=3 parameters:map=4 secrets:map=5"
    ),
    "Confirmed": "volume_context:map=1 volume_capabilities:VolumeCapability*=2 parameters:map=3",
    "ValidateVolumeCapabilitiesResponse": "confirmed:Confirmed=1 message:string=2",
    "ListVolumesRequest": "max_entries:int32=1 starting_token:string=2",
    "VolumeCondition": "abnormal:bool=1 message:string=2",
    "VolumeStatus": "published_node_ids:string*=1 volume_condition:VolumeCondition=2",
    "VolumeEntry": "volume:Volume=1 status:VolumeStatus=2",
    "ListVolumesResponse": "entries:VolumeEntry*=1 next_token:string=2",
    "Rpc": "type:int32=1",
    "ServiceCapability": "rpc:Rpc=1",
    "GetCapabilitiesResponse": "capabilities:ServiceCapability*=1",
    "CreateSnapshotRequest": "source_volume_id:string=1 name:string=2 secrets:map=3 parameters:map=4",
    "Snapshot": (
        "size_bytes:int64=1 snapshot_id:string=2 source_volume_id:string=3 creation_time:Timestamp=4 "
        "ready_to_use:bool=5"
    ),
    "CreateSnapshotResponse": "snapshot:Snapshot=1",
    "DeleteSnapshotRequest": "snapshot_id:string=1 secrets:map=2",
    "ListSnapshotsRequest": (
        "max_entries:int32=1 starting_token:string=2 source_volume_id:string=3 snapshot_id:string=4 secrets:map=5"
    ),
    "SnapshotEntry": "snapshot:Snapshot=1",
    "ListSnapshotsResponse": "entries:SnapshotEntry*=1 next_token:string=2",
    "NodeStageVolumeRequest": (
        "volume_id:string=1 publish_context:map=2 staging_target_path:string=3 volume_capability:VolumeCapability=4 "
        "secrets:map=5 volume_context:map=6"
    ),
    "NodeUnstageVolumeRequest": "volume_id:string=1 staging_target_path:string=2",
    "NodePublishVolumeRequest": (
        "volume_id:string=1 publish_context:map=2 staging_target_path:string=3 target_path:string=4 "
        "volume_capability:VolumeCapability=5 readonly:bool=6 secrets:map=7 volume_context:map=8"
    ),
    "NodeUnpublishVolumeRequest": "volume_id:string=1 target_path:string=2",
    "NodeExpandVolumeRequest": (
        "volume_id:string=1 volume_path:string=2 capacity_range:CapacityRange=3 staging_target_path:string=4 "
        "volume_capability:VolumeCapability=5"
    ),
    "NodeExpandVolumeResponse": "capacity_bytes:int64=1",
    "NodeGetInfoResponse": "node_id:string=1 max_volumes_per_node:int64=2 accessible_topology:Topology=3",
}
"""Message -> fields as `name:type=number`; `*` repeats, `map` is of texts to texts."""


@cache
def message(name: str) -> Any:
    """The class of a message, by its name."""
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="lepa/csi.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        declared = file.message_type.add(name=name)
        for text in fields.split():
            _add_field(declared, name, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


def _add_field(declared: Any, owner: str, text: str) -> None:
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    name, _, rest = text.partition(":")
    kind, _, number = rest.partition("=")
    field = declared.field.add(name=name, number=int(number), label=kinds.LABEL_OPTIONAL)
    if kind.endswith("*"):
        kind, field.label = kind[:-1], kinds.LABEL_REPEATED
    if kind == TEXTS:
        entry = declared.nested_type.add(name="".join(word.capitalize() for word in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for part, place in (("key", 1), ("value", 2)):
            entry.field.add(name=part, number=place, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
        field.label, field.type = kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{owner}.{entry.name}"
    elif kind in _FIELDS:
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")


def capability(access_mode: str, attachment_mode: str, fs_type: str = "", mount_flags: tuple[str, ...] = ()) -> Any:
    """A VolumeCapability."""
    found = message("VolumeCapability")()
    found.access_mode.mode = ACCESS_MODES.get(access_mode, 0)
    if attachment_mode == "block-device":
        found.block.SetInParent()
    else:
        found.mount.SetInParent()
        found.mount.fs_type = fs_type
        found.mount.mount_flags.extend(mount_flags)
    return found
