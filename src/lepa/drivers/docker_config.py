"""Pure: from a task and its `config` block to the body of Docker's "create container".

Paths of the host are resolved by the caller (`resolve`), because that needs the disk.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lepa.drivers import options
from lepa.drivers.docker_rules import DEFAULT_CAPABILITIES, Rules, bare_capability, mounts_of
from lepa.drivers.memory_limits import memory_limits
from lepa.drivers.protocol import DeviceNode, DriverError, TaskConfig
from lepa.model.resources import AllocatedPortMapping

ALLOC_ID_LABEL = "com.hashicorp.nomad.alloc_id"
TASK_ID_LABEL = "lepa.task_id"
MIB = 1024 * 1024
CPU_SHARES_MIN = 2
"""Docker refuses less; a small task on a large host asks for less."""
CPU_PERIOD_US = 100_000


def container_name(task: TaskConfig) -> str:
    """`<task>-<alloc id>`, as people look for it in `docker ps`."""
    return f"{task.task_name or 'task'}-{task.alloc_id}"


def container_body(
    task: TaskConfig, rules: Rules, resolve: Callable[[str], str], *, joined: str = ""
) -> dict[str, Any]:
    """The body of POST /containers/create. Raises DriverError.

    resolve: a job's path on the host, checked. joined: the network mode that leads into the group's network, whose
    ports, names and name servers are not the container's business.
    """
    config = task.config
    command = options.text(config, "command")
    words = ([command] if command else []) + list(options.texts(config, "args"))
    tty = options.flag(config, "tty")
    exposed, bindings = ({}, {}) if joined else _ports(task)
    body: dict[str, Any] = {
        "Image": options.text(config, "image"),
        "Env": [f"{name}={value}" for name, value in task.env.items()],
        "Labels": {**_labels(task, rules), **options.mapping(config, "labels")},
        "Hostname": options.text(config, "hostname") or task.hostname,
        "User": task.user,
        "WorkingDir": options.text(config, "work_dir"),
        "Tty": tty,
        "OpenStdin": options.flag(config, "interactive"),
        "StopSignal": task.kill_signal,
        "MacAddress": options.text(config, "mac_address"),
        "ExposedPorts": exposed,
        "HostConfig": _host_config(task, rules, resolve) | {"PortBindings": bindings},
    }
    if joined:
        body |= {"Hostname": "", "MacAddress": ""}
        for name in ("Dns", "DnsSearch", "DnsOptions", "ExtraHosts"):
            body["HostConfig"].pop(name, None)
        body["HostConfig"]["NetworkMode"] = joined
    if words:
        body["Cmd"] = words
    if config.get("entrypoint"):
        body["Entrypoint"] = list(options.texts(config, "entrypoint"))
    if options.flag(options.block(config, "healthchecks"), "disable"):
        body["Healthcheck"] = {"Test": ["NONE"]}
    network = network_mode(task)
    if joined:
        return {key: value for key, value in body.items() if value not in ("", None)}
    aliases = options.texts(config, "network_aliases")
    addresses = {
        key: options.text(config, option)
        for key, option in (("IPv4Address", "ipv4_address"), ("IPv6Address", "ipv6_address"))
        if config.get(option)
    }
    if aliases or addresses:
        endpoint = {"Aliases": list(aliases), "IPAMConfig": addresses or None}
        body["NetworkingConfig"] = {"EndpointsConfig": {network: endpoint}}
    return {key: value for key, value in body.items() if value not in ("", None)}


def network_mode(task: TaskConfig) -> str:
    """The Docker network of a task: as its config says, else Docker's own bridge."""
    return options.text(task.config, "network_mode") or "bridge"


def published_ports(task: TaskConfig) -> dict[str, int]:
    """Port label -> port inside the container, for the labels that the task publishes."""
    inside: dict[str, int] = {}
    old_map = options.mapping(task.config, "port_map")
    for label in (*options.texts(task.config, "ports"), *old_map):
        mapping = mapping_of(task, label)
        inside[label] = int(old_map[label]) if label in old_map else (mapping.to if mapping.to > 0 else mapping.value)
    return inside


def _ports(task: TaskConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Docker's ExposedPorts and PortBindings: both protocols for each label. None on the host's own network."""
    exposed: dict[str, Any] = {}
    bindings: dict[str, Any] = {}
    if network_mode(task) == "host" or network_mode(task).startswith("container:"):
        return exposed, bindings
    for label, inside in published_ports(task).items():
        mapping = mapping_of(task, label)
        for protocol in ("tcp", "udp"):
            port = f"{inside}/{protocol}"
            exposed[port] = {}
            bindings.setdefault(port, []).append({"HostIp": mapping.host_ip, "HostPort": str(mapping.value)})
    return exposed, bindings


def mapping_of(task: TaskConfig, label: str) -> AllocatedPortMapping:
    """The port of a label: the group's, or the task's own as in older job files. Raises DriverError."""
    for mapping in task.ports:
        if mapping.label == label:
            return mapping
    for network in task.resources.networks:
        for port in (*network.reserved_ports, *network.dynamic_ports):
            if port.label == label:
                return AllocatedPortMapping(label=label, value=port.value, to=port.to, host_ip=network.ip)
    known = sorted(mapping.label for mapping in task.ports)
    raise DriverError(f"port {label!r} is not a port of the group (its ports: {', '.join(known) or 'none'})")


def _labels(task: TaskConfig, rules: Rules) -> dict[str, str]:
    extra = {
        "job_name": task.job_name,
        "job_id": task.job_id,
        "task_group_name": task.group_name,
        "task_name": task.task_name,
        "namespace": task.namespace,
    }
    labels = {ALLOC_ID_LABEL: task.alloc_id, TASK_ID_LABEL: task.id}
    for name, value in extra.items():
        if any(_matches(name, pattern) for pattern in rules.extra_labels):
            labels[f"com.hashicorp.nomad.{name}"] = value
    return labels


def _host_config(task: TaskConfig, rules: Rules, resolve: Callable[[str], str]) -> dict[str, Any]:
    config = task.config
    host: dict[str, Any] = {
        **_limits(task, rules),
        "Binds": _binds(task, rules, resolve),
        "Mounts": [_mount(mount, rules, resolve) for mount in mounts_of(config)],
        "NetworkMode": network_mode(task),
        "LogConfig": _logging(config, rules),
        "Privileged": options.flag(config, "privileged"),
        "ReadonlyRootfs": options.flag(config, "readonly_rootfs"),
        "CapDrop": _dropped(config, rules),
        "CapAdd": list(options.texts(config, "cap_add")),
        "Devices": [
            *(_device(each) for each in options.blocks(config, "devices")),
            *(_given_device(each) for each in task.devices),
        ],
        "Dns": list(options.texts(config, "dns_servers")) or list(task.dns.servers if task.dns else ()),
        "DnsSearch": list(options.texts(config, "dns_search_domains")) or list(task.dns.searches if task.dns else ()),
        "DnsOptions": list(options.texts(config, "dns_options")) or list(task.dns.options if task.dns else ()),
        "ExtraHosts": list(options.texts(config, "extra_hosts")),
        "GroupAdd": list(options.texts(config, "group_add")),
        "SecurityOpt": list(options.texts(config, "security_opt")),
        "StorageOpt": options.mapping(config, "storage_opt"),
        "Sysctls": options.mapping(config, "sysctl"),
        "Ulimits": [_ulimit(name, value) for name, value in options.mapping(config, "ulimit").items()],
        "Runtime": options.text(config, "runtime"),
        "IpcMode": options.text(config, "ipc_mode"),
        "PidMode": options.text(config, "pid_mode"),
        "UsernsMode": options.text(config, "userns_mode"),
        "UTSMode": options.text(config, "uts_mode"),
        "CgroupnsMode": options.text(config, "cgroupns"),
        "VolumeDriver": options.text(config, "volume_driver"),
        "ShmSize": options.number(config, "shm_size"),
        "OomScoreAdj": options.number(config, "oom_score_adj", rules.oom_score_adj),
        "Init": options.flag(config, "init") or None,
    }
    return {key: value for key, value in host.items() if value not in ("", None, [], {}, 0, False)}


def _limits(task: TaskConfig, rules: Rules) -> dict[str, Any]:
    memory = memory_limits(task, options.number(task.config, "memory_hard_limit"))
    mhz = task.resources.cpu.cpu_shares or task.cpu_shares
    limits: dict[str, Any] = {
        "Memory": memory.hard_mb * MIB,
        "MemorySwap": memory.hard_mb * MIB,
        "MemoryReservation": memory.reserved_mb * MIB,
        "CpuShares": max(mhz, CPU_SHARES_MIN) if mhz else 0,
        "PidsLimit": options.number(task.config, "pids_limit") or rules.pids_limit,
    }
    if options.flag(task.config, "cpu_hard_limit") and mhz:
        period = options.number(task.config, "cpu_cfs_period", CPU_PERIOD_US)
        limits |= {"CpuPeriod": period, "CpuQuota": max(1000, int(mhz / rules.core_mhz * period))}
    return limits


def _binds(task: TaskConfig, rules: Rules, resolve: Callable[[str], str]) -> list[str]:
    label = f",{rules.volumes.selinuxlabel}" if rules.volumes.selinuxlabel else ""
    own = [
        f"{source}:{target}:rw{label}"
        for source, target in ((task.alloc_dir, "/alloc"), (task.local_dir, "/local"), (task.secrets_dir, "/secrets"))
        if source
    ]
    for volume in options.texts(task.config, "volumes"):
        source, target, *mode = volume.split(":")
        named = "/" not in source and options.text(task.config, "volume_driver")
        _allow_source(source, rules, is_name=bool(named))
        own.append(":".join([source if named else resolve(source), target, *mode]))
    for mount in task.mounts:
        own.append(f"{mount.host_path}:{mount.task_path}:{'ro' if mount.read_only else 'rw'},{mount.propagation}")
    return own


def _mount(mount: Mapping[str, Any], rules: Rules, resolve: Callable[[str], str]) -> dict[str, Any]:
    kind = options.text(mount, "type", "volume")
    source = options.text(mount, "source")
    made: dict[str, Any] = {
        "Type": kind,
        "Target": options.text(mount, "target"),
        "ReadOnly": options.flag(mount, "readonly"),
    }
    if kind == "bind":
        _allow_source(source, rules, is_name=False)
        propagation = options.text(options.block(mount, "bind_options"), "propagation")
        made |= {"Source": resolve(source), "BindOptions": {"Propagation": propagation} if propagation else None}
    elif kind == "volume":
        volume = options.block(mount, "volume_options")
        driver = options.block(volume, "driver_config")
        _allow_source(options.text(driver, "name"), rules, is_name=bool(driver))
        made |= {
            "Source": source,
            "VolumeOptions": {
                "NoCopy": options.flag(volume, "no_copy"),
                "Labels": options.mapping(volume, "labels"),
                "DriverConfig": {"Name": driver["name"], "Options": options.mapping(driver, "options")}
                if driver
                else None,
            },
        }
    else:
        tmpfs = options.block(mount, "tmpfs_options")
        made["TmpfsOptions"] = {"SizeBytes": options.number(tmpfs, "size"), "Mode": options.number(tmpfs, "mode")}
    return {key: value for key, value in made.items() if value is not None}


def _allow_source(source: str, rules: Rules, *, is_name: bool) -> None:
    """Paths within the task's directory are always allowed, others and volume drivers where the operator says so."""
    if (is_name or source.startswith("/")) and not rules.volumes.enabled:
        raise DriverError(f"volume {source!r} is not allowed on this node: volumes are disabled in the plugin block")


def _device(device: Mapping[str, Any]) -> dict[str, str]:
    host_path = options.text(device, "host_path")
    return {
        "PathOnHost": host_path,
        "PathInContainer": options.text(device, "container_path") or host_path,
        "CgroupPermissions": options.text(device, "cgroup_permissions") or "rwm",
    }


def _given_device(device: DeviceNode) -> dict[str, str]:
    return {
        "PathOnHost": device.host_path,
        "PathInContainer": device.task_path or device.host_path,
        "CgroupPermissions": device.permissions,
    }


def _logging(config: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    wanted = options.block(config, "logging")
    kind = options.text(wanted, "type") or options.text(wanted, "driver")
    if not kind:
        return {"Type": rules.logging.type, "Config": rules.logging.config}
    return {"Type": kind, "Config": options.mapping(wanted, "config")}


def _dropped(config: Mapping[str, Any], rules: Rules) -> list[str]:
    """What a container does not get of Docker's defaults: what the job drops, and what is not allowed here."""
    allowed = {bare_capability(name) for name in rules.allow_caps}
    docker_defaults = (*DEFAULT_CAPABILITIES, "net_raw")
    added = {bare_capability(name) for name in options.texts(config, "cap_add")}
    forbidden = [] if "all" in allowed else [name for name in docker_defaults if name not in allowed | added]
    return list(dict.fromkeys([*options.texts(config, "cap_drop"), *forbidden]))


def _ulimit(name: str, value: str) -> dict[str, Any]:
    soft, _, hard = value.partition(":")
    return {"Name": name, "Soft": int(soft), "Hard": int(hard or soft)}


def _matches(name: str, pattern: str) -> bool:
    """A pattern with at most one "*" at its end, as in "job*"."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
