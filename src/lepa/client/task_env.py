"""Pure: a task's environment variables, and `${…}` in its texts.

Names are Nomad's, because job files in the world read them: NOMAD_ALLOC_ID, NOMAD_PORT_http, NOMAD_META_owner, … Later
sources win over earlier ones: the host's environment (drivers without an image), built-in names, meta, the task's
`env`, variables that hooks add. A `${name}` that nothing defines stays as it is.
"""

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lepa.model.allocation import Allocation
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.resources import AllocatedPortMapping
from lepa.model.task import Task

REFERENCE = re.compile(r"\$\{([^${}]+)\}")
_ODD = re.compile(r"[^A-Za-z0-9_]")
_NODE_FIELDS = {
    "unique.id": "id",
    "datacenter": "datacenter",
    "unique.name": "name",
    "class": "node_class",
    "pool": "node_pool",
}

HOST_DENIED = frozenset(
    """
    CONSUL_TOKEN CONSUL_HTTP_TOKEN CONSUL_HTTP_TOKEN_FILE NOMAD_TOKEN LEPA_TOKEN VAULT_TOKEN
    CONSUL_LICENSE NOMAD_LICENSE VAULT_LICENSE CONSUL_LICENSE_PATH NOMAD_LICENSE_PATH VAULT_LICENSE_PATH
    AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_METADATA_URL
    GOOGLE_APPLICATION_CREDENTIALS GOOGLE_OAUTH_ACCESS_TOKEN
    """.split()  # noqa: SIM905
)
"""Variables of the agent that no task sees."""


OF_ONE_TASK = frozenset(
    {
        "NOMAD_TASK_NAME",
        "NOMAD_TASK_DIR",
        "NOMAD_SECRETS_DIR",
        "NOMAD_MEMORY_LIMIT",
        "NOMAD_MEMORY_MAX_LIMIT",
        "NOMAD_CPU_LIMIT",
        "NOMAD_CPU_CORES",
    }
)


class Directories(NamedTuple):
    """The task's directories as the task sees them."""

    alloc: str
    local: str
    secrets: str


class Place(NamedTuple):
    """Everything a task's environment is made of. namespace, hosts: of the group's network, "" for the host's.

    csi_volumes: host paths of the group's CSI volumes by the label of their block.
    """

    node: Node
    region: str
    job: Job
    group: TaskGroup
    task: Task
    alloc: Allocation
    directories: Directories
    namespace: str = ""
    hosts: str = ""
    csi_volumes: Mapping[str, str] = {}


def built_in(place: Place) -> dict[str, str]:
    """The NOMAD_* variables."""
    alloc, job, task = place.alloc, place.job, place.task
    resources = alloc.allocated_resources.tasks.get(task.name)
    env = {
        "NOMAD_ALLOC_DIR": place.directories.alloc,
        "NOMAD_TASK_DIR": place.directories.local,
        "NOMAD_SECRETS_DIR": place.directories.secrets,
        "NOMAD_ALLOC_ID": alloc.id,
        "NOMAD_SHORT_ALLOC_ID": alloc.id[:8],
        "NOMAD_ALLOC_NAME": alloc.name,
        "NOMAD_ALLOC_INDEX": alloc.name[alloc.name.rfind("[") + 1 : -1],
        "NOMAD_TASK_NAME": task.name,
        "NOMAD_GROUP_NAME": place.group.name,
        "NOMAD_JOB_ID": job.id,
        "NOMAD_JOB_NAME": job.name,
        "NOMAD_JOB_PARENT_ID": job.parent_id,
        "NOMAD_DC": place.node.datacenter,
        "NOMAD_REGION": place.region,
        "NOMAD_NAMESPACE": alloc.namespace,
        "NOMAD_PARENT_CGROUP": place.node.cgroup_parent,
    }
    if resources is not None:
        env["NOMAD_MEMORY_LIMIT"] = str(resources.memory.memory_mb)
        env["NOMAD_CPU_LIMIT"] = str(resources.cpu.cpu_shares)
        if resources.memory.memory_max_mb > 0:
            env["NOMAD_MEMORY_MAX_LIMIT"] = str(resources.memory.memory_max_mb)
        if resources.cpu.reserved_cores:
            env["NOMAD_CPU_CORES"] = ",".join(map(str, resources.cpu.reserved_cores))
    given = _ports(alloc.allocated_resources.shared.ports, alloc) | _task_ports(alloc, task.name)
    return {name: value for name, value in env.items() if value} | given


def ports(alloc: Allocation, task: str) -> dict[str, AllocatedPortMapping]:
    """Ports by label that a task has: the group's, and those of its own networks, which win. task "": the group."""
    resources = alloc.allocated_resources
    found = {port.label: port for port in resources.shared.ports}
    for network in resources.tasks[task].networks if task in resources.tasks else ():
        for port in (*network.reserved_ports, *network.dynamic_ports):
            found[port.label] = AllocatedPortMapping(label=port.label, value=port.value, to=port.to, host_ip=network.ip)
    return found


def _ports(ports: Iterable[AllocatedPortMapping], alloc: Allocation) -> dict[str, str]:
    env: dict[str, str] = {}
    own = alloc.network_status.address if alloc.network_status else ""
    for port in ports:
        label = _ODD.sub("_", port.label)
        inside = port.to if port.to > 0 else port.value
        env |= {
            f"NOMAD_IP_{label}": port.host_ip,
            f"NOMAD_PORT_{label}": str(inside),
            f"NOMAD_ADDR_{label}": f"{port.host_ip}:{port.value}",
            f"NOMAD_HOST_IP_{label}": port.host_ip,
            f"NOMAD_HOST_PORT_{label}": str(port.value),
            f"NOMAD_HOST_ADDR_{label}": f"{port.host_ip}:{port.value}",
            f"NOMAD_ALLOC_PORT_{label}": str(inside),
        }
        if own:
            env |= {f"NOMAD_ALLOC_IP_{label}": own, f"NOMAD_ALLOC_ADDR_{label}": f"{own}:{inside}"}
            env[f"NOMAD_ALLOC_INTERFACE_{label}"] = alloc.network_status.interface_name if alloc.network_status else ""
    return env


def _task_ports(alloc: Allocation, own: str) -> dict[str, str]:
    """Ports of networks that single tasks asked for, as older job files do: the task's own, and its siblings'."""
    env: dict[str, str] = {}
    for task, resources in alloc.allocated_resources.tasks.items():
        for network in resources.networks:
            for port in (*network.reserved_ports, *network.dynamic_ports):
                label = _ODD.sub("_", port.label if task == own else f"{task}_{port.label}")
                address = f"{network.ip}:{port.value}"
                inside = port.to if port.to > 0 else port.value
                env |= {f"NOMAD_IP_{label}": network.ip, f"NOMAD_PORT_{label}": str(inside)}
                env |= {f"NOMAD_ADDR_{label}": address, f"NOMAD_HOST_PORT_{label}": str(port.value)}
    return env


def meta(place: Place) -> dict[str, str]:
    """Job, group and task meta, the inner winning, as NOMAD_META_key and NOMAD_META_KEY."""
    merged = {**place.job.meta, **place.group.meta, **place.task.meta}
    env: dict[str, str] = {}
    for key, value in merged.items():
        clean = _ODD.sub("_", key)
        env[f"NOMAD_META_{clean.upper()}"] = value
        env[f"NOMAD_META_{clean}"] = value
    return env


def build(place: Place, host: Mapping[str, str]) -> dict[str, str]:
    """The environment that a task declares. host: the agent's own, {} for drivers with an image."""
    env = {name: value for name, value in host.items() if name not in HOST_DENIED}
    env |= built_in(place)
    own: dict[str, str] = {}
    targets = ChainMap(own, env, node_targets(place.node))
    env |= {name: interpolate(value, targets) for name, value in meta(place).items()}
    for name, value in place.task.env.items():
        own[interpolate(name, targets)] = interpolate(value, targets)
    return env | own


def group_environment(place: Place) -> dict[str, str]:
    """What services of the whole group may name: nothing that belongs to a single task."""
    env = {name: value for name, value in built_in(place).items() if name not in OF_ONE_TASK}
    targets = ChainMap(env, node_targets(place.node))
    shared = place._replace(task=Task())
    return env | {name: interpolate(value, targets) for name, value in meta(shared).items()}


def node_targets(node: Node) -> dict[str, str]:
    """`node.…`, `attr.…` and `meta.…` of a node."""
    targets = {f"node.{name}": getattr(node, field) for name, field in _NODE_FIELDS.items()}
    targets |= {f"attr.{name}": value for name, value in node.attributes.items()}
    return targets | {f"meta.{name}": value for name, value in node.meta.items()}


def references(place: Place, env: Mapping[str, str]) -> dict[str, str]:
    """Everything that `${…}` may name in this task's texts: the node's targets and the environment."""
    named = {f"env.{name}": value for name, value in env.items()}
    return node_targets(place.node) | named | dict(env)


def interpolate(text: str, targets: Mapping[str, str]) -> str:
    """`text` with every known `${name}` replaced, once: what a value brings in is not looked at again."""
    if "${" not in text:
        return text
    return REFERENCE.sub(lambda match: targets.get(match[1].strip(), match[0]), text)


def interpolate_all(value: Any, targets: Mapping[str, str]) -> Any:
    """The same for every text in nested lists and dicts, keys included."""
    if isinstance(value, str):
        return interpolate(value, targets)
    if isinstance(value, Mapping):
        return {interpolate_all(key, targets): interpolate_all(item, targets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [interpolate_all(item, targets) for item in value]
    return value
