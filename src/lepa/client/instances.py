"""Pure: instances of services that an allocation offers: address, port, tags and checks, interpolated.

Address and port come from the port's label and the address mode: `auto` and `host` use the node's address and the host
port, `alloc` (`alloc_ipv6`) the allocation's own address and the port inside, `driver` what the driver gave the task.
In an overlay, whose addresses every node reaches, `auto` is `alloc`.
A label is one of the group's ports, or of those that older job files give to single tasks.
Services of both providers are registered in the same catalog.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from lepa.client import task_env
from lepa.drivers.protocol import TaskNetwork
from lepa.model.allocation import Allocation
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.service import Service, ServiceCheck, ServiceRegistration
from lepa.model.task import Task

NODE_ADDRESS = "unique.network.ip-address"


class Check(NamedTuple):
    """One check with everything resolved. id is stable over restarts of the agent.

    native: whether its service is of Nomad's own provider, for which answers over HTTP are judged more mildly.
    """

    id: str
    service_id: str
    service: str
    task: str
    group: str
    spec: ServiceCheck
    address: str
    port: int
    native: bool = False


class Instance(NamedTuple):
    """One instance and its checks."""

    registration: ServiceRegistration
    checks: tuple[Check, ...]


class Source(NamedTuple):
    """What instances are made of. env: variables that texts may name. network: the driver's, for task services."""

    node: Node
    job: Job
    group: TaskGroup
    alloc: Allocation
    env: Mapping[str, str]
    network: TaskNetwork | None = None


def of_group(source: Source) -> list[Instance]:
    """Instances of the group's services that belong to no single task."""
    return [_instance(source, service, "") for service in source.group.services]


def of_task(source: Source, task: Task) -> list[Instance]:
    """Instances of one task's services."""
    return [_instance(source, service, task.name) for service in task.services]


def unknown_ports(source: Source, task: Task) -> list[str]:
    """What is wrong with the port labels of the group's and of a task's services, once their variables have values.

    Ports that a driver gives are not known before the task runs, and those of a mesh are no ports of the allocation.
    """
    found = []
    for owner, services in (("", source.group.services), (task.name, task.services)):
        known = task_env.ports(source.alloc, owner)
        for service in services:
            if service.address_mode == "driver" or service.connect is not None:
                continue
            labels = [service.port_label, *(check.port_label for check in service.checks)]
            for label in filter(None, labels):
                told = _text(source, label)
                if told not in known and not told.isdigit():
                    found.append(f'service "{service.name}": port "{label}" is "{told}" here, which is no port')
    return found


def _text(source: Source, value: str) -> str:
    if "${" not in value:
        return value
    return task_env.interpolate(value, task_env.node_targets(source.node) | dict(source.env))


def _instance(source: Source, service: Service, task: str) -> Instance:
    targets = task_env.node_targets(source.node) | dict(source.env)

    def text(value: str) -> str:
        return task_env.interpolate(value, targets)

    canary = source.alloc.deployment_status is not None and source.alloc.deployment_status.canary
    tags = service.canary_tags if canary and service.canary_tags else service.tags
    meta = service.canary_meta if canary and service.canary_meta else service.meta
    label = text(service.port_label)
    address, port = resolve(source, label, _mode(source, service.address_mode or "auto"), task)
    owner = task or f"group-{source.group.name}"
    name = text(service.name)
    registration = ServiceRegistration(
        id=f"_nomad-task-{source.alloc.id}-{owner}-{name}-{label}",
        service_name=name,
        namespace=source.alloc.namespace,
        node_id=source.node.id,
        datacenter=source.node.datacenter,
        job_id=source.job.id,
        alloc_id=source.alloc.id,
        tags=tuple(text(tag) for tag in tags),
        address=text(service.address) or address,
        port=port,
        weight=service.weights.passing if service.weights else 1,
        warning_weight=service.weights.warning if service.weights else 1,
        meta={text(key): text(value) for key, value in meta.items()},
    )
    checks = tuple(_check(source, service, task, registration, number) for number in range(len(service.checks)))
    initial = worst(check.spec.initial_status or "critical" for check in checks)
    return Instance(replace(registration, status=initial), checks)


def _check(source: Source, service: Service, task: str, registration: ServiceRegistration, number: int) -> Check:
    spec = _interpolated(source, service.checks[number])
    label = spec.port_label or _text(source, service.port_label)
    usual = _mode(source, "auto" if service.address_mode in ("", "auto") else "host")
    mode = spec.address_mode or ("driver" if service.address_mode == "driver" and not spec.port_label else usual)
    address, port = resolve(source, label, mode, task)
    if service.address and not spec.address_mode:
        address = registration.address
    return Check(
        id=f"{registration.id}-{number}",
        service_id=registration.id,
        service=registration.service_name,
        task=spec.task_name or task or service.task_name,
        group=source.group.name,
        spec=spec,
        address=address,
        port=port,
        native=service.provider == "nomad",
    )


def _interpolated(source: Source, spec: ServiceCheck) -> ServiceCheck:
    targets = task_env.node_targets(source.node) | dict(source.env)

    def text(value: str) -> str:
        return task_env.interpolate(value, targets)

    return replace(
        spec,
        name=text(spec.name),
        path=text(spec.path),
        protocol=text(spec.protocol),
        port_label=text(spec.port_label),
        method=text(spec.method),
        body=text(spec.body),
        command=text(spec.command),
        args=tuple(text(arg) for arg in spec.args),
        header={text(name): tuple(text(value) for value in values) for name, values in spec.header.items()},
        tls_server_name=text(spec.tls_server_name),
    )


def _mode(source: Source, mode: str) -> str:
    """The address mode, where `auto` depends on the group's network."""
    shared = any(network.mode.startswith("overlay/") for network in source.group.networks)
    return "alloc" if mode == "auto" and shared else mode


def resolve(source: Source, label: str, mode: str, task: str = "") -> tuple[str, int]:
    """Address and port of a label. A number stands for itself; an empty label has port 0. task: whose service it is."""
    own = source.node.attributes.get(NODE_ADDRESS, "")
    mapping = task_env.ports(source.alloc, task).get(label)
    if mode == "driver" and source.network is not None and source.network.ip:
        inside = source.network.port_map.get(label, mapping.to if mapping and mapping.to > 0 else 0)
        return source.network.ip, inside or (int(label) if label.isdigit() else 0)
    status = source.alloc.network_status
    inner = {"alloc": status.address, "alloc_ipv6": status.address_ipv6}.get(mode, "") if status is not None else ""
    if inner:
        if mapping is not None:
            return inner, mapping.to if mapping.to > 0 else mapping.value
        return inner, int(label) if label.isdigit() else 0
    if mapping is not None:
        return mapping.host_ip or own, mapping.value
    return own, int(label) if label.isdigit() else 0


def worst(statuses: Iterable[str]) -> str:
    """The worst of some check statuses; "passing" for none."""
    order = ("passing", "warning", "critical")
    return max(statuses, key=order.index, default="passing")
