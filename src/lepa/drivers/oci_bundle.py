"""Pure: the OCI runtime configuration (config.json, runtime-spec 1.0) of an isolated task.

The task's own directory is its root; the host's programs and libraries are mounted into it read-only.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.drivers.memory_limits import memory_limits
from lepa.drivers.protocol import TaskConfig

HOST_FOLDERS = (
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/run/resolvconf",
    "/sbin",
    "/usr",
    "/run/systemd/resolve",
)
"""What of the host a task sees, where it exists."""

DEFAULT_CAPABILITIES = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
"""What root inside a task may do, and the most that a job may ask for unless the operator allows more."""

UNPRIVILEGED_CAPABILITIES = ("CAP_NET_BIND_SERVICE",)
"""What any other user gets without asking: binding ports below 1024."""

MIB = 1024 * 1024
CPU_SHARES_MIN = 2
CPU_SHARES_MAX = 262_144
CPU_PERIOD_US, CPU_QUOTA_MIN_US = 100_000, 1000
PIDS_MAX = 8192
"""Processes and threads of one task; a fork bomb ends here."""

_BIND = ("rbind", "nosuid", "nodev")

_DENIED_CALLS = (
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
    "vm86",
    "vm86old",
)
_CLONE_NEWUSER = 0x10000000
_EPERM, _ENOSYS = 1, 38


class Bind(msgspec.Struct, frozen=True):
    """A host path inside the task."""

    source: str
    target: str
    read_only: bool = False
    propagation: str = "private"


class Device(msgspec.Struct, frozen=True):
    """A device to make inside the task. kind: "c" or "b"; access: of "rwm"."""

    path: str
    kind: str
    major: int
    minor: int
    access: str = "rwm"
    uid: int = 0
    gid: int = 0


class Limits(msgspec.Struct, frozen=True):
    """memory_bytes: the hard limit, 0 for none; memory_low_bytes: the reservation below it; cpus: a list of
    cores. cpu_quota_us: CPU time in each CPU_PERIOD_US, 0 for as much as there is.
    """

    memory_bytes: int = 0
    memory_low_bytes: int = 0
    cpu_shares: int = 0
    cpus: str = ""
    pids: int = PIDS_MAX
    cpu_quota_us: int = 0


class Isolation(msgspec.Struct, frozen=True):
    """What is shared with the host and what a task may do.

    network: path of a namespace, "" for the host's. cgroup_view: whether the task sees its own limits.
    """

    pid_host: bool = False
    ipc_host: bool = False
    network: str = ""
    hostname: str = ""
    capabilities: tuple[str, ...] = ()
    seccomp: bool = True
    cgroup_view: bool = False


class Process(msgspec.Struct, frozen=True):
    """What runs inside."""

    args: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    terminal: bool = False


def process_config(process: Process, capabilities: Sequence[str]) -> dict[str, Any]:
    """The `process` part of the configuration; alone it describes a command run inside a container."""
    held = list(capabilities)
    return {
        "terminal": process.terminal,
        "user": {"uid": process.uid, "gid": process.gid, "additionalGids": list(process.groups)},
        "args": list(process.args),
        "env": [f"{name}={value}" for name, value in process.env.items()],
        "cwd": process.cwd,
        "noNewPrivileges": True,
        "capabilities": dict.fromkeys(("bounding", "effective", "inheritable", "permitted", "ambient"), held),
    }


def bundle_config(
    process: Process,
    root: str,
    binds: Sequence[Bind],
    isolation: Isolation,
    limits: Limits,
    cgroup: str,
    devices: Sequence[Device] = (),
) -> dict[str, Any]:
    """The whole config.json. binds: in the order of mounting. cgroup: its path in every hierarchy, "/lepa/ID"."""
    config: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": process_config(process, isolation.capabilities),
        "root": {"path": root, "readonly": False},
        "mounts": [*_system_mounts(isolation), *(_bind_mount(bind) for bind in binds)],
        "linux": {
            "namespaces": _namespaces(isolation),
            "cgroupsPath": cgroup,
            "resources": _resources(limits, devices),
            "devices": [_device_node(device) for device in devices],
            "maskedPaths": [
                "/proc/acpi",
                "/proc/kcore",
                "/proc/keys",
                "/proc/latency_stats",
                "/proc/sched_debug",
                "/proc/scsi",
                "/proc/timer_list",
                "/proc/timer_stats",
                "/sys/firmware",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    }
    if isolation.hostname:
        config["hostname"] = isolation.hostname
    if isolation.seccomp:
        config["linux"]["seccomp"] = seccomp_profile()
    return config


def capabilities_for(uid: int, add: Sequence[str], drop: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """The capabilities a task holds; what it adds must be allowed (see `capability_problems`)."""
    start: tuple[str, ...] = DEFAULT_CAPABILITIES if uid == 0 else UNPRIVILEGED_CAPABILITIES
    dropped = {capability_name(name) for name in drop}
    if "CAP_ALL" in dropped:
        start, dropped = (), set()
    added = [capability_name(name) for name in add]
    if "CAP_ALL" in added:
        added = [capability_name(name) for name in allowed]
    permitted = {capability_name(name) for name in allowed}
    wanted = dict.fromkeys([*(name for name in start if name in permitted), *added])
    return tuple(name for name in wanted if name not in dropped)


def capability_problems(add: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Which capabilities a job asks for that the operator does not allow."""
    permitted = {capability_name(name) for name in allowed} | {"CAP_ALL"}
    return [
        f"cap_add: {name} is not among the capabilities allowed on this node (allow_caps)"
        for name in add
        if capability_name(name) not in permitted
    ]


def capability_name(name: str) -> str:
    """ "net_raw", "NET_RAW" and "CAP_NET_RAW" are the same."""
    upper = name.upper()
    return upper if upper.startswith("CAP_") else "CAP_" + upper


def task_limits(task: TaskConfig, pids_max: int, core_mhz: float, cores: str = "") -> Limits:
    """What a task may use. pids_max: the most it may ask for; cores: those it may run on, "" for all.

    With `memory_max` the kernel leaves `memory` to the task when memory is short, and ends it above the maximum.
    """
    memory = memory_limits(task)
    mhz = task.resources.cpu.cpu_shares or task.cpu_shares
    hard = options.flag(task.config, "cpu_hard_limit") and mhz
    return Limits(
        memory_bytes=memory.hard_mb * MIB,
        memory_low_bytes=memory.reserved_mb * MIB,
        cpu_shares=mhz,
        cpu_quota_us=cpu_quota_us(mhz, core_mhz) if hard else 0,
        cpus=cores,
        pids=min(options.number(task.config, "pids_limit", pids_max), pids_max),
    )


def cpu_shares(mhz: int) -> int:
    """The cgroup v1 weight for a number of MHz: the same number, within what the kernel takes."""
    return min(max(mhz, CPU_SHARES_MIN), CPU_SHARES_MAX)


def cpu_quota_us(mhz: int, core_mhz: float) -> int:
    """The CPU time in each period that is a number of MHz of cores with `core_mhz` each."""
    return max(CPU_QUOTA_MIN_US, int(mhz / core_mhz * CPU_PERIOD_US))


def seccomp_profile() -> dict[str, Any]:
    """Refuses calls that reach beyond the task: mounts, modules, clocks, keys, tracing, new namespaces.

    clone3 hides its flags from filters, so it is "not implemented": C libraries then fall back to clone, of which only
    calls that make a user namespace are refused (one bit is all a masked comparison can ask for).
    """
    user_namespace = {"index": 0, "value": _CLONE_NEWUSER, "valueTwo": _CLONE_NEWUSER, "op": "SCMP_CMP_MASKED_EQ"}
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": list(_DENIED_CALLS), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
            {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM, "args": [user_namespace]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        ],
    }


def _namespaces(isolation: Isolation) -> list[dict[str, str]]:
    namespaces = [{"type": "mount"}, {"type": "uts"}]
    if not isolation.pid_host:
        namespaces.append({"type": "pid"})
    if not isolation.ipc_host:
        namespaces.append({"type": "ipc"})
    if isolation.network:
        namespaces.append({"type": "network", "path": isolation.network})
    return namespaces


def _system_mounts(isolation: Isolation) -> list[dict[str, Any]]:
    def mount(target: str, kind: str, *options: str) -> dict[str, Any]:
        return {"destination": target, "type": kind, "source": kind, "options": list(options)}

    mounts = [
        mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
        mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
        mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
    ]
    if not isolation.ipc_host:
        mounts.append(mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"))
    if isolation.cgroup_view:
        mounts.append(mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro"))
    return mounts


def _bind_mount(bind: Bind) -> dict[str, Any]:
    options = [*_BIND, "ro" if bind.read_only else "rw"]
    if bind.propagation:
        options.append("r" + bind.propagation.removeprefix("r"))
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _device_node(device: Device) -> dict[str, Any]:
    return {
        "path": device.path,
        "type": device.kind,
        "major": device.major,
        "minor": device.minor,
        "fileMode": 0o660,
        "uid": device.uid,
        "gid": device.gid,
    }


def _resources(limits: Limits, devices: Sequence[Device]) -> dict[str, Any]:
    resources: dict[str, Any] = {"pids": {"limit": limits.pids}, "devices": _devices(devices)}
    hard = {"limit": limits.memory_bytes, "swap": limits.memory_bytes} if limits.memory_bytes else {}
    if memory := hard | ({"reservation": limits.memory_low_bytes} if limits.memory_low_bytes else {}):
        resources["memory"] = memory
    cpu: dict[str, Any] = {"shares": cpu_shares(limits.cpu_shares)} if limits.cpu_shares else {}
    if limits.cpu_quota_us:
        cpu |= {"period": CPU_PERIOD_US, "quota": limits.cpu_quota_us}
    if limits.cpus:
        cpu["cpus"] = limits.cpus
    if cpu:
        resources["cpu"] = cpu
    return resources


def _devices(given: Sequence[Device]) -> list[dict[str, Any]]:
    """No devices but the harmless ones (null, zero, full, random, urandom, tty, pseudo terminals) and those given."""
    harmless = ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2))
    allowed = [{"allow": True, "type": "c", "major": a, "minor": b, "access": "rwm"} for a, b in harmless]
    terminals = {"allow": True, "type": "c", "major": 136, "access": "rwm"}
    own = [
        {"allow": True, "type": each.kind, "major": each.major, "minor": each.minor, "access": each.access}
        for each in given
    ]
    return [{"allow": False, "access": "rwm"}, *allowed, terminals, *own]
