"""Pure: what a task asks for, and what an allocation was given. CPU is MHz, memory and disk are MiB."""

from msgspec import field

from lepa.model.constraint import Affinity, Constraint
from lepa.model.policies import TaskLifecycle
from lepa.model.wire import OmitEmpty, Wire


class DNSConfig(Wire, frozen=True):
    """Name resolution inside the allocation's network."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class CNIConfig(Wire, frozen=True):
    """Arguments handed to CNI plugins."""

    args: dict[str, str] = {}


class Port(OmitEmpty, frozen=True, omit_defaults=True):
    """A labelled port. value 0 asks for a dynamic one; to is the port inside the network namespace (-1: the same)."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_network: str = ""
    ignore_collision: bool = False


class NetworkResource(OmitEmpty, frozen=True, omit_defaults=True):
    """A network a group asks for or was given; static ports in reserved_ports, others in dynamic_ports."""

    mode: str = ""
    device: str = ""
    cidr: str = ""
    ip: str = ""
    dns: DNSConfig | None = None
    reserved_ports: tuple[Port, ...] = ()
    dynamic_ports: tuple[Port, ...] = ()
    hostname: str = ""
    mbits: int = field(default=0, name="MBits")
    cni: CNIConfig | None = None


class RequestedDevice(Wire, frozen=True):
    """A device a task asks for: type, vendor/type or vendor/type/model."""

    name: str = ""
    count: int = 1
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()


class NUMAResource(Wire, frozen=True):
    """How a task's cores relate to NUMA nodes."""

    affinity: str = ""
    devices: tuple[str, ...] = ()


class Resources(Wire, frozen=True):
    """What one task asks for: MHz, whole cores, MiB, networks, devices."""

    cpu: int = 100
    cores: int = 0
    memory_mb: int = 300
    memory_max_mb: int = 0
    disk_mb: int = 0
    networks: tuple[NetworkResource, ...] = ()
    devices: tuple[RequestedDevice, ...] = ()
    numa: NUMAResource | None = None
    secrets_mb: int = 0
    iops: int = 0


class AllocatedCpuResources(Wire, frozen=True):
    """CPU given to a task: shares in MHz and the ids of reserved cores."""

    cpu_shares: int = field(default=0, name="CpuShares")
    reserved_cores: tuple[int, ...] = ()


class AllocatedMemoryResources(Wire, frozen=True):
    """Memory given to a task in MiB; memory_max_mb 0 means no separate ceiling."""

    memory_mb: int = 0
    memory_max_mb: int = 0


class AllocatedDeviceResource(Wire, frozen=True):
    """Device instances given to a task."""

    vendor: str = ""
    type: str = ""
    name: str = ""
    device_ids: tuple[str, ...] = ()


class AllocatedTaskResources(Wire, frozen=True):
    """Everything given to one task."""

    cpu: AllocatedCpuResources = field(default=AllocatedCpuResources(), name="Cpu")
    memory: AllocatedMemoryResources = AllocatedMemoryResources()
    networks: tuple[NetworkResource, ...] = ()
    devices: tuple[AllocatedDeviceResource, ...] = ()


class AllocatedPortMapping(OmitEmpty, frozen=True, omit_defaults=True):
    """A host port given to the group, with the address it is bound to."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_ip: str = ""
    ignore_collision: bool = False


class AllocatedSharedResources(Wire, frozen=True):
    """What the group's tasks share: networks, disk in MiB, ports."""

    networks: tuple[NetworkResource, ...] = ()
    disk_mb: int = 0
    ports: tuple[AllocatedPortMapping, ...] = ()


class AllocatedResources(Wire, frozen=True):
    """Everything given to an allocation: by task, and shared."""

    tasks: dict[str, AllocatedTaskResources] = {}
    task_lifecycles: dict[str, TaskLifecycle | None] = {}
    shared: AllocatedSharedResources = AllocatedSharedResources()
