"""Settings of a node. Sizes are MiB, CPU is MHz, times are seconds."""

from pathlib import Path
from typing import Any

import msgspec

from lepa.client.hooks.artifact_settings import ArtifactSettings
from lepa.client.hooks.template_settings import TemplateSettings
from lepa.client.shipping.settings import ShipSettings
from lepa.model.node import ClientHostNetworkConfig, ClientHostVolumeConfig


class ReservedSettings(msgspec.Struct, frozen=True):
    """Kept from jobs. ports: such as "22,80,8500-8600"."""

    cpu: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    cores: tuple[int, ...] = ()
    ports: str = ""


class OverlaySettings(msgspec.Struct, frozen=True):
    """An overlay that this node takes part in; all of its nodes need the same settings of it.

    pool: CIDR block of all addresses, of which each node holds a subnet of subnet_prefix bits. vni: of the tunnel, 0
    makes one of the name. port: UDP, of the tunnel.
    """

    name: str
    pool: str
    subnet_prefix: int = 24
    vni: int = 0
    port: int = 4789
    encrypted: bool = False


class ClientSettings(msgspec.Struct, frozen=True):
    """How this node works.

    directory: state, and `alloc` unless alloc_dir is set. http_address: where its API can be reached, `ip:port`.
    node_id: only for tests of identity; otherwise it is made once and kept. cpu_mhz, memory_mb, disk_mb: 0 measures
    them. network_interface: "" takes the one with the default route. gc_allocs_max: allocations on the
    node; above it, or when the disk or its inodes are fuller than the gc_…_percent, the oldest ended ones are removed,
    gc_parallel_destroys at a time. exec_allowed: whether commands may be run inside tasks.
    cni_path: directories of CNI plugins, with colons between them; cni_config_dir: of the operator's own networks.
    bridge_name, bridge_subnet: of the node's own bridge. bind_wildcard: mapped ports of the default network are bound
    on all addresses while there are no host networks. dns_port: of this agent's DNS where namespaces can ask it, else
    0. exit_with_agent: kill all tasks when the agent stops
    (development). version: of lepa.
    """

    directory: Path
    name: str
    region: str = "global"
    datacenter: str = "dc1"
    node_class: str = ""
    node_pool: str = "default"
    node_id: str = ""
    http_address: str = ""
    alloc_dir: Path | None = None
    meta: dict[str, str] = {}
    options: dict[str, str] = {}
    plugins: dict[str, dict[str, Any]] = {}
    reserved: ReservedSettings = ReservedSettings()
    cpu_mhz: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    network_interface: str = ""
    network_speed_mbits: int = 0
    min_dynamic_port: int = 20_000
    max_dynamic_port: int = 32_000
    host_volumes: tuple[ClientHostVolumeConfig, ...] = ()
    host_volumes_path: Path | None = None
    host_volume_plugin_path: Path | None = None
    host_networks: tuple[ClientHostNetworkConfig, ...] = ()
    cloud_metadata_url: str = ""
    max_kill_timeout_s: float = 30.0
    gc_allocs_max: int = 50
    gc_interval_s: float = 60.0
    gc_disk_usage_percent: float = 80.0
    gc_inode_usage_percent: float = 70.0
    gc_parallel_destroys: int = 2
    exec_allowed: bool = True
    templates: TemplateSettings = TemplateSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    ship_logs: tuple[ShipSettings, ...] = ()
    cni_path: str = "/opt/cni/bin:/usr/lib/cni"
    cni_config_dir: str = "/opt/cni/config"
    bridge_name: str = "lepa"
    bridge_subnet: str = "172.26.64.0/20"
    bridge_subnet_ipv6: str = ""
    bridge_hairpin: bool = False
    bind_wildcard: bool = True
    dns_port: int = 0
    overlays: tuple[OverlaySettings, ...] = ()
    allocs_max: int = 0
    exit_with_agent: bool = False
    version: str = ""

    @property
    def host_volumes_dir(self) -> Path:
        """Where plugins make volumes."""
        return self.host_volumes_path or self.directory / "host_volumes"

    @property
    def host_volume_plugin_dir(self) -> Path:
        """Where programs are that make volumes."""
        return self.host_volume_plugin_path or self.directory / "host_volume_plugins"
