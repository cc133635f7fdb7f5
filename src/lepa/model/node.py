"""Pure: a machine that runs allocations: what it has, what it is, and whether it may get work."""

from typing import Any

from msgspec import field

from lepa.kit.durations import ZERO_TIME
from lepa.model.resources import NetworkResource
from lepa.model.volume import CSIInfo
from lepa.model.wire import Wire


class LegacyNodeCpuResources(Wire, frozen=True):
    """Total MHz and cores, in the older form that clients read."""

    cpu_shares: int = field(default=0, name="CpuShares")
    total_cpu_cores: int = field(default=0, name="TotalCpuCores")
    reservable_cpu_cores: tuple[int, ...] = field(default=(), name="ReservableCpuCores")


class NodeProcessorResources(Wire, frozen=True):
    """Processor topology."""

    topology: dict[str, Any] = {}


class NodeMemoryResources(Wire, frozen=True):
    """Total memory in MiB."""

    memory_mb: int = 0


class NodeDiskResources(Wire, frozen=True):
    """Total disk in MiB."""

    disk_mb: int = 0


class NodeDeviceLocality(Wire, frozen=True):
    """Where a device is attached."""

    pci_bus_id: str = ""


class NodeDevice(Wire, frozen=True):
    """One device."""

    id: str = ""
    healthy: bool = False
    health_description: str = ""
    locality: NodeDeviceLocality | None = None


class NodeDeviceResource(Wire, frozen=True):
    """Devices of one kind."""

    vendor: str = ""
    type: str = ""
    name: str = ""
    instances: tuple[NodeDevice, ...] = ()
    attributes: dict[str, Any] = {}


class NodeNetworkAddress(Wire, frozen=True):
    """An address of an interface, with the alias that jobs name it by."""

    family: str = "ipv4"
    alias: str = ""
    address: str = ""
    reserved_ports: str = ""
    gateway: str = ""


class NodeNetworkResource(Wire, frozen=True):
    """An interface and its addresses."""

    mode: str = ""
    device: str = ""
    mac_address: str = ""
    speed: int = 0
    addresses: tuple[NodeNetworkAddress, ...] = ()


class NodeResources(Wire, frozen=True):
    """What the machine has; dynamic ports come from min_dynamic_port..max_dynamic_port."""

    cpu: LegacyNodeCpuResources = field(default=LegacyNodeCpuResources(), name="Cpu")
    processors: NodeProcessorResources = NodeProcessorResources()
    memory: NodeMemoryResources = NodeMemoryResources()
    disk: NodeDiskResources = NodeDiskResources()
    devices: tuple[NodeDeviceResource, ...] = ()
    node_networks: tuple[NodeNetworkResource, ...] = ()
    networks: tuple[NetworkResource, ...] = ()
    min_dynamic_port: int = 20_000
    max_dynamic_port: int = 32_000


class NodeReservedCpuResources(Wire, frozen=True):
    """MHz and cores kept from jobs."""

    cpu_shares: int = field(default=0, name="CpuShares")
    reserved_cpu_cores: tuple[int, ...] = field(default=(), name="ReservedCpuCores")


class NodeReservedMemoryResources(Wire, frozen=True):
    """MiB kept from jobs."""

    memory_mb: int = 0


class NodeReservedDiskResources(Wire, frozen=True):
    """MiB kept from jobs."""

    disk_mb: int = 0


class NodeReservedNetworkResources(Wire, frozen=True):
    """Ports kept from jobs, such as "22,80,8000-8010"."""

    reserved_host_ports: str = ""


class NodeReservedResources(Wire, frozen=True):
    """What is kept from jobs."""

    cpu: NodeReservedCpuResources = field(default=NodeReservedCpuResources(), name="Cpu")
    memory: NodeReservedMemoryResources = NodeReservedMemoryResources()
    disk: NodeReservedDiskResources = NodeReservedDiskResources()
    networks: NodeReservedNetworkResources = NodeReservedNetworkResources()


class DriverInfo(Wire, frozen=True):
    """What a driver found out about itself on this node."""

    attributes: dict[str, str] = {}
    detected: bool = False
    healthy: bool = False
    health_description: str = ""
    update_time: str = ZERO_TIME


class NodeEvent(Wire, frozen=True):
    """Something that happened to a node."""

    message: str = ""
    subsystem: str = ""
    details: dict[str, str] = {}
    timestamp: str = ZERO_TIME
    create_index: int = 0


class DrainSpec(Wire, frozen=True):
    """How to drain: deadline in nanoseconds, 0 for none, negative to force at once."""

    deadline: int = 0
    ignore_system_jobs: bool = False


class DrainStrategy(DrainSpec, frozen=True):
    """A drain under way."""

    force_deadline: str = ZERO_TIME
    started_at: str = ZERO_TIME


class DrainMetadata(Wire, frozen=True):
    """The last drain of a node."""

    started_at: str = ZERO_TIME
    updated_at: str = ZERO_TIME
    status: str = ""
    accessor_id: str = ""
    meta: dict[str, str] = {}


class ClientHostVolumeConfig(Wire, frozen=True):
    """A directory of the host that jobs may mount. id: of a volume that was made while the agent ran.

    Of such a one also: namespace, and the modes in which it may be used (none: in all).
    """

    name: str = ""
    path: str = ""
    read_only: bool = False
    id: str = ""
    namespace: str = ""
    access_modes: tuple[str, ...] = ()
    attachment_modes: tuple[str, ...] = ()


class ClientHostNetworkConfig(Wire, frozen=True):
    """A network of the host that ports may bind to."""

    name: str = ""
    cidr: str = ""
    interface: str = ""
    reserved_ports: str = ""


class Node(Wire, frozen=True):
    """A machine that runs allocations."""

    id: str = ""
    secret_id: str = ""
    datacenter: str = ""
    name: str = ""
    cgroup_parent: str = ""
    http_addr: str = ""
    tls_enabled: bool = False
    attributes: dict[str, str] = {}
    node_resources: NodeResources = NodeResources()
    reserved_resources: NodeReservedResources = NodeReservedResources()
    links: dict[str, str] = {}
    meta: dict[str, str] = {}
    node_class: str = ""
    node_pool: str = "default"
    computed_class: str = ""
    drain_strategy: DrainStrategy | None = None
    scheduling_eligibility: str = "eligible"
    status: str = "initializing"
    status_description: str = ""
    identity_signing_key_id: str = ""
    status_updated_at: int = 0
    events: tuple[NodeEvent, ...] = ()
    drivers: dict[str, DriverInfo] = {}
    csi_controller_plugins: dict[str, CSIInfo] = {}
    csi_node_plugins: dict[str, CSIInfo] = {}
    host_volumes: dict[str, ClientHostVolumeConfig] = {}
    gc_volumes_on_node_gc: bool = field(default=False, name="GCVolumesOnNodeGC")
    host_networks: dict[str, ClientHostNetworkConfig] = {}
    last_drain: DrainMetadata | None = None
    node_max_allocs: int = 0
    last_missed_heartbeat_index: int = 0
    last_alloc_update_index: int = 0
    create_index: int = 0
    modify_index: int = 0


class NodeListStub(Wire, frozen=True):
    """A node in a list."""

    address: str = ""
    id: str = ""
    attributes: dict[str, str] = {}
    datacenter: str = ""
    name: str = ""
    node_pool: str = ""
    node_class: str = ""
    version: str = ""
    drain: bool = False
    scheduling_eligibility: str = ""
    status: str = ""
    status_description: str = ""
    drivers: dict[str, DriverInfo] = {}
    host_volumes: dict[str, ClientHostVolumeConfig] = {}
    node_resources: NodeResources | None = None
    reserved_resources: NodeReservedResources | None = None
    last_drain: DrainMetadata | None = None
    create_index: int = 0
    modify_index: int = 0
