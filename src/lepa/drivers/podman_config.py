"""Pure: from a task and its `config` block to the body of Podman's own "create container" (libpod, SpecGenerator).

Options are those of Nomad's podman plugin. Paths of the host are resolved by the caller (`resolve`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.drivers.docker_config import (
    ALLOC_ID_LABEL,
    CPU_PERIOD_US,
    CPU_SHARES_MIN,
    MIB,
    TASK_ID_LABEL,
    published_ports,
)
from lepa.drivers.docker_config import mapping_of as port_mapping_of
from lepa.drivers.docker_rules import DEFAULT_CAPABILITIES, VolumesSettings
from lepa.drivers.memory_limits import memory_limits
from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.drivers.signals import signal_number
from lepa.kit.durations import parse_duration

OPTIONS = options.Options(
    "podman",
    {
        "image": "text",
        "apparmor_profile": "text",
        "args": "texts",
        "auth": "block",
        "auth_soft_fail": "bool",
        "cap_add": "texts",
        "cap_drop": "texts",
        "command": "text",
        "container_exists_attempts": "number",
        "cpu_cfs_period": "number",
        "cpu_hard_limit": "bool",
        "devices": "texts",
        "entrypoint": "texts",
        "extra_hosts": "texts",
        "extra_labels": "texts",
        "force_pull": "bool",
        "hostname": "text",
        "image_pull_timeout": "text",
        "init": "bool",
        "init_path": "text",
        "labels": "map",
        "logging": "block",
        "memory_reservation": "text",
        "memory_swap": "text",
        "memory_swappiness": "number",
        "network_mode": "text",
        "oom_score_adj": "number",
        "pids_limit": "number",
        "port_map": "map",
        "ports": "texts",
        "privileged": "bool",
        "readonly_rootfs": "bool",
        "security_opt": "texts",
        "selinux_opts": "texts",
        "shm_size": "text",
        "socket": "text",
        "sysctl": "map",
        "tmpfs": "texts",
        "tty": "bool",
        "ulimit": "map",
        "userns": "text",
        "volumes": "texts",
        "working_dir": "text",
    },
    required=("image",),
)
DESCRIPTORS_MAX, PROCESSES_MAX = 1_048_576, 1_048_576
"""Podman's own defaults, where the host's limits are not lower."""
LOG_BYTES_MAX = 16 * MIB
"""What Podman keeps of a container's output until it is copied to the task's log files."""
_UNITS = {"": 1, "b": 1, "k": 1024, "m": MIB, "g": 1024 * MIB}
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)b?", re.IGNORECASE)


class PodmanGc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """container: whether ended containers are removed."""

    container: bool = True


class PodmanSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "podman"` block. socket_path: of Podman's service. volumes.enabled is off, unlike in Nomad's
    plugin: jobs mount paths of the host only where the operator says so.
    """

    socket_path: str = "unix:///run/podman/podman.sock"
    volumes: VolumesSettings = VolumesSettings()
    gc: PodmanGc = PodmanGc()
    allow_privileged: bool = False
    allow_caps: tuple[str, ...] = DEFAULT_CAPABILITIES
    extra_labels: tuple[str, ...] = ()
    recover_stopped: bool = False
    disable_log_collection: bool = False
    image_pull_timeout: str = "5m"
    auth: dict[str, str] = {}


class HostLimits(msgspec.Struct, frozen=True):
    """What this host can give. core_mhz: the clock of one core; descriptors, processes: hard limits of a process."""

    core_mhz: float = 1000.0
    descriptors: int = DESCRIPTORS_MAX
    processes: int = PROCESSES_MAX


def config_problems(config: Mapping[str, Any], settings: PodmanSettings) -> list[str]:
    """What is wrong with a `config` block here, one sentence each."""
    found = OPTIONS.problems(config)
    if found:
        return found
    if options.flag(config, "privileged") and not settings.allow_privileged:
        found.append("privileged is not allowed on this node (allow_privileged)")
    allowed = {_bare(name) for name in settings.allow_caps}
    found += [
        f"cap_add: {name} is not among the capabilities allowed on this node (allow_caps)"
        for name in options.texts(config, "cap_add")
        if _bare(name) not in allowed and "all" not in allowed
    ]
    for name in ("memory_reservation", "memory_swap", "shm_size"):
        if config.get(name) and size_bytes(options.text(config, name)) is None:
            found.append(f'{name} must be a size such as "100m", found {config[name]!r}')
    found += [
        f'volumes: {volume!r} must be "host path:container path" or with ":options"'
        for volume in options.texts(config, "volumes")
        if not 2 <= len(volume.split(":")) <= 3
    ]
    try:
        parse_duration(options.text(config, "image_pull_timeout", "5m"))
    except ValueError as error:
        found.append(f"image_pull_timeout: {error}")
    if not settings.allow_privileged:
        found += [
            f"{name} {options.text(config, name)!r} needs allow_privileged on this node"
            for name in ("userns",)
            if options.text(config, name) == "host"
        ]
        found += ["devices needs allow_privileged on this node"] if options.texts(config, "devices") else []
    return found


def container_spec(
    task: TaskConfig,
    name: str,
    image: str,
    settings: PodmanSettings,
    host: HostLimits,
    resolve: Callable[[str], str],
    cores: str = "",
) -> dict[str, Any]:
    """The body of POST /libpod/containers/create. Raises DriverError.

    resolve: a job's path on the host, checked. cores: those it may run on, "" for all.
    """
    config = task.config
    command = options.text(config, "command")
    words = ([command] if command else []) + list(options.texts(config, "args"))
    spec: dict[str, Any] = {
        "name": name,
        "image": image,
        "command": words,
        "entrypoint": list(options.texts(config, "entrypoint")),
        "env": dict(task.env),
        "labels": {**_labels(task, settings), **options.mapping(config, "labels")},
        "user": task.user,
        "work_dir": options.text(config, "working_dir"),
        "terminal": options.flag(config, "tty"),
        "stop_signal": signal_number(task.kill_signal) if task.kill_signal else 0,
        "init": options.flag(config, "init"),
        "init_path": options.text(config, "init_path"),
        "privileged": options.flag(config, "privileged"),
        "read_only_filesystem": options.flag(config, "readonly_rootfs"),
        "cap_add": [_full(each) for each in options.texts(config, "cap_add")],
        "cap_drop": [_full(each) for each in _dropped(config, settings)],
        "selinux_opts": list(options.texts(config, "selinux_opts")),
        "apparmor_profile": options.text(config, "apparmor_profile"),
        "no_new_privileges": "no-new-privileges" in options.texts(config, "security_opt"),
        "sysctl": options.mapping(config, "sysctl"),
        "shm_size": size_bytes(options.text(config, "shm_size")) or 0,
        "oom_score_adj": options.number(config, "oom_score_adj"),
        "devices": _devices(task),
        "mounts": _mounts(task, settings, resolve),
        "resource_limits": resource_limits(task, host, cores),
        "r_limits": _process_limits(config, host),
        "log_configuration": _logging(config),
        **_network(task),
    }
    if userns := options.text(config, "userns"):
        mode, _, value = userns.partition(":")
        spec["userns"] = {"nsmode": mode, "value": value}
    return {key: value for key, value in spec.items() if value not in ("", None, [], {}, 0, False)}


def image_name(image: str) -> str:
    """A name without the transport that Podman assumes anyway: "docker://redis" is "redis"."""
    return image.removeprefix("docker://")


def size_bytes(text: str) -> int | None:
    """ "100m" in bytes; -1 for "-1", which is "no limit"; None for what is no size, "" included."""
    if text == "-1":
        return -1
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


def _labels(task: TaskConfig, settings: PodmanSettings) -> dict[str, str]:
    extra = {
        "job_name": task.job_name,
        "job_id": task.job_id,
        "task_group_name": task.group_name,
        "task_name": task.task_name,
        "namespace": task.namespace,
    }
    patterns = (*settings.extra_labels, *options.texts(task.config, "extra_labels"))
    wanted = {
        f"com.hashicorp.nomad.{name}": value
        for name, value in extra.items()
        if any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in patterns)
    }
    return {ALLOC_ID_LABEL: task.alloc_id, TASK_ID_LABEL: task.id, **wanted}


def _network(task: TaskConfig) -> dict[str, Any]:
    """The network namespace: as the task says, else the group's, else Podman's own bridge; with ports on a bridge."""
    mode, _, value = options.text(task.config, "network_mode").partition(":")
    if not mode and task.network_namespace:
        return {"netns": {"nsmode": "path", "value": task.network_namespace}, "hostname": task.hostname}
    found: dict[str, Any] = {
        "hostname": options.text(task.config, "hostname") or task.hostname,
        "hostadd": list(options.texts(task.config, "extra_hosts")),
    }
    if task.dns is not None:
        found |= {"dns_server": list(task.dns.servers), "dns_search": list(task.dns.searches)}
        found |= {"dns_option": list(task.dns.options)}
    if mode == "task":
        mode, value = "container", f"{value}-{task.alloc_id}"
    if mode in ("", "bridge", "slirp4netns", "private"):
        found["portmappings"] = [
            {
                "host_ip": port.host_ip,
                "host_port": port.value,
                "container_port": inside,
                "protocol": "tcp,udp",
            }
            for label, inside in published_ports(task).items()
            for port in (port_mapping_of(task, label),)
        ]
    known = ("", "bridge", "host", "none", "private", "slirp4netns", "container", "ns")
    if mode not in known:
        raise DriverError(f"network_mode {mode!r} is none of {', '.join(filter(None, known))} and task:NAME")
    mode = {"ns": "path", "": "bridge"}.get(mode, mode)
    return found | {"netns": {"nsmode": mode, "value": value}}


def _mounts(task: TaskConfig, settings: PodmanSettings, resolve: Callable[[str], str]) -> list[dict[str, Any]]:
    label = [settings.volumes.selinuxlabel] if settings.volumes.selinuxlabel else []
    own = ((task.alloc_dir, "/alloc"), (task.local_dir, "/local"), (task.secrets_dir, "/secrets"))
    made = [_bind(source, target, ["rw", *label]) for source, target in own if source]
    for volume in options.texts(task.config, "volumes"):
        source, target, *given = volume.split(":")
        if source.startswith("/") and not settings.volumes.enabled:
            raise DriverError(
                f"volume {source!r} is not allowed on this node: volumes are disabled in the plugin block"
            )
        made.append(_bind(resolve(source), target, [*given[0].split(",")] if given else ["rw"]))
    for mount in task.mounts:
        mode = "ro" if mount.read_only else "rw"
        made.append(_bind(mount.host_path, mount.task_path, [mode, "r" + mount.propagation.removeprefix("r")]))
    for each in options.texts(task.config, "tmpfs"):
        target, _, listed = each.partition(":")
        wanted = listed.split(",") if listed else ["rw", "nosuid", "nodev"]
        made.append({"type": "tmpfs", "source": "tmpfs", "destination": target, "options": wanted})
    return made


def _bind(source: str, target: str, wanted: list[str]) -> dict[str, Any]:
    return {"type": "bind", "source": source, "destination": target, "options": ["rbind", *wanted]}


def _devices(task: TaskConfig) -> list[dict[str, str]]:
    given = [f"{each.host_path}:{each.task_path or each.host_path}:{each.permissions}" for each in task.devices]
    return [{"path": path} for path in (*options.texts(task.config, "devices"), *given)]


def resource_limits(task: TaskConfig, host: HostLimits, cores: str) -> dict[str, Any]:
    """What a container may use, as an OCI runtime is told it. cores: those it may run on, "" for all."""
    config, memory = task.config, memory_limits(task)
    limit = memory.hard_mb * MIB
    low = size_bytes(options.text(config, "memory_reservation")) or memory.reserved_mb * MIB
    swap = limit and (size_bytes(options.text(config, "memory_swap")) or limit)
    found: dict[str, Any] = {}
    if limit or low:
        wanted = {"limit": limit, "swap": swap, "reservation": low}
        found["memory"] = {name: value for name, value in wanted.items() if value}
        if config.get("memory_swappiness") is not None:
            found["memory"]["swappiness"] = options.number(config, "memory_swappiness")
    cpu: dict[str, Any] = {}
    if mhz := task.resources.cpu.cpu_shares or task.cpu_shares:
        cpu["shares"] = max(mhz, CPU_SHARES_MIN)
        if options.flag(config, "cpu_hard_limit"):
            period = options.number(config, "cpu_cfs_period", CPU_PERIOD_US)
            cpu |= {"period": period, "quota": max(1000, int(mhz / host.core_mhz * period))}
    if cores:
        cpu["cpus"] = cores
    if cpu:
        found["cpu"] = cpu
    if pids := options.number(config, "pids_limit"):
        found["pids"] = {"limit": pids}
    return found


def _process_limits(config: Mapping[str, Any], host: HostLimits) -> list[dict[str, Any]]:
    """Limits of every process; Podman's defaults may be more than a host without all rights can give."""
    wanted = {
        "nofile": f"{min(DESCRIPTORS_MAX, host.descriptors)}",
        "nproc": f"{min(PROCESSES_MAX, host.processes)}",
        **options.mapping(config, "ulimit"),
    }
    made = []
    for name, value in wanted.items():
        soft, _, hard = value.partition(":")
        made.append({"type": name, "soft": int(soft), "hard": int(hard or soft)})
    return made


def _logging(config: Mapping[str, Any]) -> dict[str, Any]:
    wanted = options.block(config, "logging")
    driver = options.text(wanted, "driver", "nomad")
    if driver in ("nomad", "lepa", "k8s-file"):
        return {"driver": "k8s-file", "size": LOG_BYTES_MAX}
    given = {**options.mapping(wanted, "options"), **options.mapping(wanted, "config")}
    return {"driver": driver, "options": given}


def _dropped(config: Mapping[str, Any], settings: PodmanSettings) -> list[str]:
    allowed = {_bare(name) for name in settings.allow_caps}
    added = {_bare(name) for name in options.texts(config, "cap_add")}
    usual = (*DEFAULT_CAPABILITIES, "net_raw")
    forbidden = [] if "all" in allowed else [name for name in usual if name not in allowed | added]
    return list(dict.fromkeys([*(_bare(each) for each in options.texts(config, "cap_drop")), *forbidden]))


def _bare(name: str) -> str:
    return name.lower().removeprefix("cap_")


def _full(name: str) -> str:
    return "CAP_" + _bare(name).upper()
