"""Pure: the options of a docker task, what the operator allows, and what is wrong with a `config` block here."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.kit.durations import parse_duration
from lepa.model.wire import Wire

OPTIONS = options.Options(
    "docker",
    {
        "image": "text",
        "advertise_ipv6_address": "bool",
        "args": "texts",
        "auth": "block",
        "auth_soft_fail": "bool",
        "cap_add": "texts",
        "cap_drop": "texts",
        "cgroupns": "text",
        "command": "text",
        "container_exists_attempts": "number",
        "cpu_cfs_period": "number",
        "cpu_hard_limit": "bool",
        "cpuset_cpus": "text",
        "devices": "blocks",
        "dns_options": "texts",
        "dns_search_domains": "texts",
        "dns_servers": "texts",
        "entrypoint": "texts",
        "extra_hosts": "texts",
        "force_pull": "bool",
        "group_add": "texts",
        "healthchecks": "block",
        "hostname": "text",
        "image_pull_timeout": "text",
        "init": "bool",
        "interactive": "bool",
        "ipc_mode": "text",
        "ipv4_address": "text",
        "ipv6_address": "text",
        "isolation": "text",
        "labels": "map",
        "load": "text",
        "logging": "block",
        "mac_address": "text",
        "memory_hard_limit": "number",
        "mount": "blocks",
        "mounts": "blocks",
        "network_aliases": "texts",
        "network_mode": "text",
        "oom_score_adj": "number",
        "pid_mode": "text",
        "pids_limit": "number",
        "port_map": "map",
        "ports": "texts",
        "privileged": "bool",
        "readonly_rootfs": "bool",
        "runtime": "text",
        "security_opt": "texts",
        "shm_size": "number",
        "storage_opt": "map",
        "sysctl": "map",
        "tty": "bool",
        "ulimit": "map",
        "userns_mode": "text",
        "uts_mode": "text",
        "volume_driver": "text",
        "volumes": "texts",
        "work_dir": "text",
    },
    required=("image",),
)

DEFAULT_CAPABILITIES = (
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
)
"""Docker's own set without net_raw."""


class LoggingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where Docker itself keeps a container's output until it is copied to the task's log files."""

    type: str = "json-file"
    config: dict[str, str] = msgspec.field(default_factory=lambda: {"max-file": "2", "max-size": "2m"})


class VolumesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """enabled: jobs may mount any path of the host, and named volumes of drivers; else only the task's own files."""

    enabled: bool = False
    selinuxlabel: str = ""


class AllowedModes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What pid_mode, ipc_mode, userns_mode and uts_mode of jobs may be; an empty list: anything but the host's or
    another container's, which only privileged containers may share.
    """

    pid: tuple[str, ...] = ()
    ipc: tuple[str, ...] = ()
    userns: tuple[str, ...] = ()
    uts: tuple[str, ...] = ()


class Rules(Wire, frozen=True):
    """What the operator allows and sets for all containers; core_mhz: the clock of one core."""

    allow_privileged: bool = False
    allow_caps: tuple[str, ...] = DEFAULT_CAPABILITIES
    allow_runtimes: tuple[str, ...] = ("runc", "nvidia")
    allowed_modes: AllowedModes = AllowedModes()
    extra_labels: tuple[str, ...] = ()
    logging: LoggingSettings = LoggingSettings()
    volumes: VolumesSettings = VolumesSettings()
    pids_limit: int = 0
    oom_score_adj: int = 0
    core_mhz: float = 1000.0


def config_problems(config: Mapping[str, Any], rules: Rules) -> list[str]:
    """What is wrong with a `config` block here, one sentence each."""
    found = OPTIONS.problems(config)
    if found:
        return found
    if options.flag(config, "privileged") and not rules.allow_privileged:
        found.append("privileged is not allowed on this node (allow_privileged)")
    runtime = options.text(config, "runtime")
    if runtime and runtime not in rules.allow_runtimes:
        found.append(f"runtime {runtime!r} is not among those allowed on this node (allow_runtimes)")
    allowed = {bare_capability(name) for name in rules.allow_caps}
    for name in options.texts(config, "cap_add"):
        if bare_capability(name) not in allowed and "all" not in allowed:
            found.append(f"cap_add: {name} is not among the capabilities allowed on this node (allow_caps)")
    found += _mode_problems(config, rules)
    found += [
        f'ulimit: {name} must be "soft:hard" or one number, found {value!r}'
        for name, value in options.mapping(config, "ulimit").items()
        if not re.fullmatch(r"-?\d+(:-?\d+)?", value)
    ]
    if options.text(config, "isolation", "default") not in ("default", "process"):
        found.append("isolation is for Windows; on this node it must be unset")
    for volume in options.texts(config, "volumes"):
        if not 2 <= len(volume.split(":")) <= 3:
            found.append(f'volumes: {volume!r} must be "host path:container path" or "host path:container path:ro"')
    try:
        parse_duration(options.text(config, "image_pull_timeout", "5m"))
    except ValueError as error:
        found.append(f"image_pull_timeout: {error}")
    for mount in mounts_of(config):
        if mount.get("type", "volume") not in ("bind", "volume", "tmpfs"):
            found.append(f'mount: type must be "bind", "volume" or "tmpfs", found {mount["type"]!r}')
        if not mount.get("target"):
            found.append("mount: target must be set")
    found += [
        "devices: host_path must be set" for each in options.blocks(config, "devices") if not each.get("host_path")
    ]
    return found


def _mode_problems(config: Mapping[str, Any], rules: Rules) -> list[str]:
    found = []
    for kind in ("pid", "ipc", "userns", "uts"):
        mode, allowed = options.text(config, f"{kind}_mode"), getattr(rules.allowed_modes, kind)
        shared = mode == "host" or mode.startswith("container:")
        if mode and allowed and mode not in allowed and mode.partition(":")[0] not in allowed:
            found.append(f"{kind}_mode {mode!r} is not among those allowed on this node (allowed_modes.{kind})")
        elif shared and not allowed and not rules.allow_privileged:
            found.append(
                f"{kind}_mode {mode!r} needs allow_privileged, or {mode!r} in allowed_modes.{kind}, on this node"
            )
    return found


def mounts_of(config: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The `mount` and `mounts` blocks."""
    return (*options.blocks(config, "mount"), *options.blocks(config, "mounts"))


def bare_capability(name: str) -> str:
    """ "NET_RAW", "CAP_NET_RAW" and "net_raw" are the same."""
    return name.lower().removeprefix("cap_")
