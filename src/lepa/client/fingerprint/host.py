"""CPU, memory, disk, network, kernel, operating system, host name: what the machine says of itself.

Attribute names are Nomad's (`cpu.arch`, `kernel.name`, `unique.network.ip-address`), because constraints in job files
name them.
"""

import ipaddress
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil
from msgspec.structs import replace

from lepa.client.fingerprint.facts import Facts
from lepa.client.settings import ClientSettings
from lepa.model.node import (
    LegacyNodeCpuResources,
    NodeDiskResources,
    NodeMemoryResources,
    NodeNetworkAddress,
    NodeNetworkResource,
    NodeResources,
)
from lepa.model.resources import NetworkResource

MIB = 1024 * 1024
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
MHZ_UNKNOWN = 1000
SPEED_UNKNOWN_MBITS = 1000
CNI_S = 2.0
CNI_PLUGINS_MAX = 50
CGROUP = "lepa.slice"
NOMAD_VERSION = "1.9.5"
CONSUL_VERSION = "1.20.0"
"""Whose job files and whose names this node serves: constraints of job files ask for versions."""


def cpu(settings: ClientSettings) -> Facts:
    """Architecture, cores, frequency, model and the sum of all cores in MHz."""
    cores, mhz = core_count(), core_mhz()
    total = settings.cpu_mhz or cores * mhz
    return Facts(
        {
            "cpu.arch": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "cpu.numcores": str(cores),
            "cpu.reservablecores": str(cores),
            "cpu.frequency": str(mhz),
            "cpu.modelname": _model_name(),
            "cpu.totalcompute": str(total),
            "cpu.usablecompute": str(max(0, total - settings.reserved.cpu)),
            **_numa(),
        }
    )


def _numa() -> dict[str, str]:
    """How many NUMA nodes there are, and which processors belong to each, such as "0-3,8"."""
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    if not nodes:
        return {"numa.node.count": "1", "numa.node0.cores": f"0-{(os.cpu_count() or 1) - 1}"}
    cores = {f"numa.{path.name}.cores": _read(str(path / "cpulist")).strip() for path in nodes}
    return {"numa.node.count": str(len(nodes)), **cores}


def core_count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def core_mhz() -> int:
    """The greatest frequency of a core as the kernel reports it."""
    frequency = psutil.cpu_freq()
    if frequency is None:
        return MHZ_UNKNOWN
    return int(frequency.max or frequency.current or MHZ_UNKNOWN)


def _model_name() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def memory(settings: ClientSettings) -> Facts:
    """Total memory in bytes."""
    total = settings.memory_mb * MIB or psutil.virtual_memory().total
    return Facts({"memory.totalbytes": str(total)})


def storage(settings: ClientSettings) -> Facts:
    """The file system of the allocations."""
    directory = settings.alloc_dir or settings.directory
    directory.mkdir(parents=True, exist_ok=True)
    usage = shutil.disk_usage(directory)
    return Facts(
        {
            "unique.storage.volume": _mount_of(directory),
            "unique.storage.bytestotal": str(usage.total),
            "unique.storage.bytesfree": str(usage.free),
        }
    )


def _mount_of(directory: Path) -> str:
    real = directory.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if real.is_relative_to(part.mountpoint)]
    best = max(mounts, key=lambda part: len(part.mountpoint), default=None)
    return best.device if best else ""


def kernel(settings: ClientSettings) -> Facts:
    """Name and version of kernel and operating system, and the signals it knows."""
    release = _os_release()
    names = sorted(name.name for name in signal.valid_signals() if isinstance(name, signal.Signals))
    return Facts(
        {
            "kernel.name": platform.system().lower(),
            "kernel.version": platform.release(),
            "kernel.arch": platform.machine(),
            "os.name": release.get("ID", platform.system().lower()),
            "os.version": release.get("VERSION_ID", ""),
            "os.signals": ",".join(names),
            "os.cgroups.version": _cgroup_version(),
            "unique.cgroup.version": _cgroup_version(),
            "unique.cgroup.mountpoint": "/sys/fs/cgroup",
            "unique.hostname": socket.gethostname(),
            "unique.host_id": _read("/etc/machine-id").strip(),
        }
    )


def _os_release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _cgroup_version() -> str:
    return "2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "1"


def lepa(settings: ClientSettings) -> Facts:
    """The agent itself. `nomad.*` names are what job files ask for."""
    return Facts(
        {
            "nomad.version": NOMAD_VERSION,
            "nomad.service_discovery": "true",
            "nomad.advertise.address": settings.http_address,
            "nomad.bridge.hairpin_mode": str(settings.bridge_hairpin).lower(),
            "consul.version": CONSUL_VERSION,
            "consul.datacenter": settings.datacenter,
            "lepa.version": settings.version,
        }
    )


def cni_plugins(settings: ClientSettings) -> Facts:
    """Plugins for networks of allocations, each with the version that it tells of itself."""
    attributes = {}
    for folder in filter(None, settings.cni_path.split(":")):
        for program in sorted(Path(folder).glob("*"))[:CNI_PLUGINS_MAX]:
            if (version := _cni_version(program)) and f"plugins.cni.version.{program.name}" not in attributes:
                attributes[f"plugins.cni.version.{program.name}"] = version
    return Facts(attributes)


def _cni_version(program: Path) -> str:
    """ "CNI loopback plugin v1.4.0" -> "1.4.0"; "" for what is no plugin.

    Debian's say "version unknown"; then it is the newest version of the protocol that they speak.
    """
    if not program.is_file() or not os.access(program, os.X_OK):
        return ""
    try:
        run = subprocess.run([program], env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=CNI_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    told = run.stdout + run.stderr
    match = re.search(rb"CNI .*plugin v?(\d[\w.+-]*)", told) or re.search(rb"versions supported:.*?([\d.]+)\s*$", told)
    return match[1].decode() if match else ""


def network(settings: ClientSettings) -> Facts:
    """The address that ports are bound to unless a job says otherwise."""
    return Facts({"unique.network.ip-address": host_address(settings)})


def host_address(settings: ClientSettings) -> str:
    """First IPv4 (else IPv6) address of the chosen interface; loopback when there is no other."""
    addresses = _addresses(chosen_interface(settings))
    return addresses[0].address if addresses else "127.0.0.1"


def chosen_interface(settings: ClientSettings) -> str:
    """The interface that the settings name, else the one with the default route, else loopback."""
    if settings.network_interface:
        return settings.network_interface
    for line in _read("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[1] == "00000000":
            return fields[0]
    return "lo"


def _addresses(interface: str) -> list[NodeNetworkAddress]:
    families = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
    found = [
        NodeNetworkAddress(family=families[address.family], alias="default", address=address.address.partition("%")[0])
        for address in psutil.net_if_addrs().get(interface, [])
        if address.family in families and not address.address.startswith("fe80")
    ]
    return sorted(found, key=lambda address: address.family)


def resources(settings: ClientSettings) -> NodeResources:
    """What jobs may use of the machine, before reservations."""
    total_mhz = settings.cpu_mhz or core_count() * core_mhz()
    interface = chosen_interface(settings)
    addresses = _addresses(interface) or [NodeNetworkAddress(family="ipv4", alias="default", address="127.0.0.1")]
    stats = psutil.net_if_stats().get(interface)
    speed = settings.network_speed_mbits or (stats.speed if stats and stats.speed > 0 else SPEED_UNKNOWN_MBITS)
    hardware = next((a.address for a in psutil.net_if_addrs().get(interface, []) if a.family == psutil.AF_LINK), "")
    named = NodeNetworkResource(
        mode="host", device=interface, mac_address=hardware, speed=speed, addresses=tuple(addresses)
    )
    extra = tuple(_host_network(settings, name) for name in {network.name for network in settings.host_networks})
    directory = settings.alloc_dir or settings.directory
    directory.mkdir(parents=True, exist_ok=True)
    return NodeResources(
        cpu=LegacyNodeCpuResources(
            cpu_shares=total_mhz,
            total_cpu_cores=core_count(),
            reservable_cpu_cores=tuple(sorted(os.sched_getaffinity(0))),
        ),
        memory=NodeMemoryResources(memory_mb=settings.memory_mb or psutil.virtual_memory().total // MIB),
        disk=NodeDiskResources(disk_mb=settings.disk_mb or shutil.disk_usage(directory).free // MIB),
        networks=tuple(
            NetworkResource(mode="host", device=interface, ip=address.address, cidr=_cidr(address.address), mbits=speed)
            for address in addresses
        ),
        node_networks=(named, *(network for network in extra if network.addresses)),
        min_dynamic_port=settings.min_dynamic_port,
        max_dynamic_port=settings.max_dynamic_port,
    )


def _cidr(address: str) -> str:
    return f"{address}/128" if ":" in address else f"{address}/32"


def _host_network(settings: ClientSettings, name: str) -> NodeNetworkResource:
    """A network of the host that the settings name: by interface, or by the addresses inside a CIDR block."""
    spec = next(network for network in settings.host_networks if network.name == name)
    block = ipaddress.ip_network(spec.cidr, strict=False) if spec.cidr else None
    interfaces = [spec.interface] if spec.interface else list(psutil.net_if_addrs())
    found = [
        replace(address, alias=name, reserved_ports=spec.reserved_ports)
        for interface in interfaces
        for address in _addresses(interface)
        if block is None or ipaddress.ip_address(address.address) in block
    ]
    return NodeNetworkResource(mode="host", device=spec.interface, addresses=tuple(found))
