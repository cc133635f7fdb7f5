"""Pure: storage that outlives allocations: volumes that nodes offer, and volumes of CSI plugins.

Sizes are bytes, times Unix nanoseconds. Names of access and attachment modes are Nomad's.
"""

from msgspec import field

from lepa.kit.durations import ZERO_TIME
from lepa.model.allocation import AllocListStub
from lepa.model.constraint import Constraint
from lepa.model.job import CSIMountOptions
from lepa.model.wire import Wire

READERS = frozenset({"single-node-reader-only", "multi-node-reader-only"})
"""Access modes that nobody writes with."""


class HostVolumeCapability(Wire, frozen=True):
    """How a volume may be used."""

    attachment_mode: str = ""
    access_mode: str = ""


class HostVolume(Wire, frozen=True):
    """A directory of one node, made by a plugin of it (or registered as it is).

    state: "pending" until the node has it, then "ready"; "unavailable" while its node is down; "deleted" while the node
    removes it.
    """

    namespace: str = ""
    id: str = ""
    name: str = ""
    plugin_id: str = ""
    node_pool: str = ""
    node_id: str = ""
    constraints: tuple[Constraint, ...] = ()
    requested_capacity_min_bytes: int = 0
    requested_capacity_max_bytes: int = 0
    capacity_bytes: int = 0
    requested_capabilities: tuple[HostVolumeCapability, ...] = ()
    parameters: dict[str, str] = {}
    host_path: str = ""
    state: str = ""
    create_index: int = 0
    create_time: int = 0
    modify_index: int = 0
    modify_time: int = 0
    allocations: tuple[AllocListStub, ...] = ()


class HostVolumeStub(Wire, frozen=True):
    """A host volume in a list."""

    namespace: str = ""
    id: str = ""
    name: str = ""
    plugin_id: str = ""
    node_pool: str = ""
    node_id: str = ""
    capacity_bytes: int = 0
    state: str = ""
    create_index: int = 0
    create_time: int = 0
    modify_index: int = 0
    modify_time: int = 0


class TaskGroupHostVolumeClaim(Wire, frozen=True):
    """One instance of a group and the volume that it keeps: for `volume { sticky = true }`."""

    id: str = ""
    namespace: str = ""
    job_id: str = ""
    task_group_name: str = ""
    alloc_id: str = ""
    volume_id: str = ""
    volume_name: str = ""
    create_index: int = 0
    modify_index: int = 0


# CSI


class CSITopology(Wire, frozen=True):
    """Where something is, by segments such as {"zone": "a"}."""

    segments: dict[str, str] = {}


class CSITopologyRequest(Wire, frozen=True):
    """Where a volume has to be, and where it should be."""

    required: tuple[CSITopology, ...] = ()
    preferred: tuple[CSITopology, ...] = ()


class CSIControllerInfo(Wire, frozen=True):
    """What a controller plugin can do."""

    supports_create_delete: bool = False
    supports_attach_detach: bool = False
    supports_list_volumes: bool = False
    supports_get_capacity: bool = False
    supports_create_delete_snapshot: bool = False
    supports_list_snapshots: bool = False
    supports_clone: bool = False
    supports_read_only_attach: bool = False
    supports_expand: bool = False
    supports_list_volumes_attached_nodes: bool = False
    supports_condition: bool = False
    supports_get: bool = False


class CSINodeInfo(Wire, frozen=True):
    """What a node plugin can do, and how its storage calls the node. max_volumes 0: as many as one likes."""

    id: str = field(default="", name="ID")
    max_volumes: int = 0
    accessible_topology: CSITopology | None = None
    requires_node_stage_volume: bool = False
    supports_stats: bool = False
    supports_expand: bool = False
    supports_condition: bool = False


class CSIInfo(Wire, frozen=True):
    """A CSI plugin on one node."""

    plugin_id: str = ""
    alloc_id: str = ""
    healthy: bool = False
    health_description: str = ""
    update_time: str = ZERO_TIME
    provider: str = ""
    provider_version: str = ""
    requires_controller_plugin: bool = False
    requires_topologies: bool = False
    controller_info: CSIControllerInfo | None = None
    node_info: CSINodeInfo | None = None


class CSIVolumeCapability(Wire, frozen=True):
    """How a volume may be used."""

    attachment_mode: str = ""
    access_mode: str = ""


class CSIVolume(Wire, frozen=True):
    """A volume of a CSI plugin. external_id: what the plugin calls it. Figures of plugins are filled in when read.

    access_mode, attachment_mode: how it is used now, "" while nobody does.
    """

    id: str = ""
    name: str = ""
    external_id: str = field(default="", name="ExternalID")
    namespace: str = ""
    requested_topologies: CSITopologyRequest | None = None
    topologies: tuple[CSITopology, ...] = ()
    access_mode: str = ""
    attachment_mode: str = ""
    mount_options: CSIMountOptions | None = None
    secrets: dict[str, str] = {}
    parameters: dict[str, str] = {}
    context: dict[str, str] = {}
    capacity: int = 0
    requested_capacity_min: int = 0
    requested_capacity_max: int = 0
    requested_capabilities: tuple[CSIVolumeCapability, ...] = ()
    clone_id: str = field(default="", name="CloneID")
    snapshot_id: str = field(default="", name="SnapshotID")
    read_allocs: dict[str, None] = {}
    write_allocs: dict[str, None] = {}
    allocations: tuple[AllocListStub, ...] = ()
    schedulable: bool = False
    plugin_id: str = ""
    provider: str = ""
    provider_version: str = ""
    controller_required: bool = False
    controllers_healthy: int = 0
    controllers_expected: int = 0
    nodes_healthy: int = 0
    nodes_expected: int = 0
    resource_exhausted: str = ZERO_TIME
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0


class CSIVolListStub(Wire, frozen=True):
    """A CSI volume in a list."""

    id: str = ""
    namespace: str = ""
    name: str = ""
    external_id: str = field(default="", name="ExternalID")
    topologies: tuple[CSITopology, ...] = ()
    access_mode: str = ""
    attachment_mode: str = ""
    current_readers: int = 0
    current_writers: int = 0
    schedulable: bool = False
    plugin_id: str = ""
    provider: str = ""
    controller_required: bool = False
    controllers_healthy: int = 0
    controllers_expected: int = 0
    nodes_healthy: int = 0
    nodes_expected: int = 0
    resource_exhausted: str = ZERO_TIME
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0


class CSIClaim(Wire, frozen=True):
    """An allocation's hold on a CSI volume: from before it is attached until the storage has let go of it.

    mode: "read" or "write". external_node: what the plugin calls the node, once the controller has attached the volume
    there. context: what the controller said for the node.
    """

    namespace: str = ""
    volume_id: str = ""
    alloc_id: str = ""
    node_id: str = ""
    mode: str = "read"
    access_mode: str = ""
    attachment_mode: str = ""
    external_node: str = ""
    context: dict[str, str] = {}
    create_index: int = 0
    modify_index: int = 0


class CSIPlugin(Wire, frozen=True):
    """A CSI plugin, as the nodes that run it tell of it."""

    id: str = ""
    provider: str = ""
    version: str = ""
    controller_required: bool = False
    controllers: dict[str, CSIInfo] = {}
    nodes: dict[str, CSIInfo] = {}
    allocations: tuple[AllocListStub, ...] = ()
    controllers_healthy: int = 0
    controllers_expected: int = 0
    nodes_healthy: int = 0
    nodes_expected: int = 0
    create_index: int = 0
    modify_index: int = 0


class CSIPluginListStub(Wire, frozen=True):
    """A CSI plugin in a list."""

    id: str = ""
    provider: str = ""
    controller_required: bool = False
    controllers_healthy: int = 0
    controllers_expected: int = 0
    nodes_healthy: int = 0
    nodes_expected: int = 0
    create_index: int = 0
    modify_index: int = 0


class CSISnapshot(Wire, frozen=True):
    """A snapshot of a CSI volume."""

    id: str = ""
    external_source_volume_id: str = field(default="", name="ExternalSourceVolumeID")
    size_bytes: int = 0
    create_time: int = 0
    is_ready: bool = False
    source_volume_id: str = field(default="", name="SourceVolumeID")
    plugin_id: str = ""
    name: str = ""
    secrets: dict[str, str] = {}
    parameters: dict[str, str] = {}


class CSIVolumeExternalStub(Wire, frozen=True):
    """A volume as its storage knows it."""

    external_id: str = field(default="", name="ExternalID")
    capacity_bytes: int = 0
    volume_context: dict[str, str] = {}
    clone_id: str = field(default="", name="CloneID")
    snapshot_id: str = field(default="", name="SnapshotID")
    published_external_node_ids: tuple[str, ...] = field(default=(), name="PublishedExternalNodeIDs")
    is_abnormal: bool = False
    status: str = ""
