"""Pure: whether networks, ports, services and their checks of a group make sense."""

import re
from collections.abc import Iterator

from lepa.kit.durations import SECOND, format_duration
from lepa.model.job import TaskGroup
from lepa.model.resources import NetworkResource, Port
from lepa.model.service import Service, ServiceCheck

PORT_MAX = 65_535
_CHECK_TIME_MIN = SECOND
_CHECK_TYPES = {"nomad": ("http", "tcp"), "consul": ("grpc", "http", "script", "tcp")}
_ADDRESS_MODES = ("auto", "host", "alloc", "driver", "alloc_ipv6")
_CHECK_ADDRESS_MODES = ("", "host", "driver", "alloc", "alloc_ipv6")
_NOTES_MAX = 255
_ON_UPDATE = ("require_healthy", "ignore_warnings", "ignore")
_INITIAL_STATUS = ("", "passing", "warning", "critical")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def network_problems(group: TaskGroup) -> Iterator[str]:
    """Labels are unique in the group and in each task; static ports are, on one host network.

    Two tasks may use one label: a label of a task's own (deprecated) network is known to that task only.
    """
    labels: dict[str, dict[str, str]] = {"": {}}
    static: dict[tuple[str, int], str] = {}
    for task, network in _networks(group):
        known = labels.setdefault(task, dict(labels[""]))
        owner = f"task network:{task}" if task else f"taskgroup network:{group.name}"
        host_mode = network.mode in ("", "host")
        yield from _host_name(network, host_mode)
        for port in (*network.reserved_ports, *network.dynamic_ports):
            if port.label in known:
                yield f"Port label {port.label} already in use by {known[port.label]}"
            known[port.label] = f"{owner}:{port.label}"
            yield from _port(port, host_mode)
            if port.value and not port.ignore_collision:
                place = (port.host_network, port.value)
                if place in static:
                    yield f"Static port {port.value} already reserved by {static[place]}"
                static[place] = f"{owner}:{port.label}"


def _networks(group: TaskGroup) -> Iterator[tuple[str, NetworkResource]]:
    """Networks with the name of their task, "" for the group's, which come first."""
    yield from (("", network) for network in group.networks)
    for task in group.tasks:
        yield from ((task.name, network) for network in task.resources.networks)


def _host_name(network: NetworkResource, host_mode: bool) -> Iterator[str]:
    if network.hostname and host_mode:
        yield "Hostname cannot be set in host network mode"
    elif network.hostname and not _HOST_NAME.fullmatch(_REFERENCE.sub("x", network.hostname)):
        yield "Hostname is not a valid DNS name"


def _port(port: Port, host_mode: bool) -> Iterator[str]:
    if not port.label:
        yield "Port is missing a label"
    for number in (port.value, port.to):
        if number > PORT_MAX:
            yield f"Port {port.label} ({number}) cannot be greater than {PORT_MAX}"
    if port.value < 0:
        yield f"Port {port.label} ({port.value}) cannot be negative"
    if port.to < -1:
        yield f'Port "{port.label}" cannot be mapped to negative value {port.to}'
    if port.ignore_collision and not host_mode:
        yield f"Port {port.label} may only set ignore_collision in host network mode"


def service_problems(group: TaskGroup) -> Iterator[str]:
    """Services of the group and its tasks, together: one provider, no double, known ports."""
    owned = list(_services(group))
    if len({service.provider for _, service in owned}) > 1:
        yield "Multiple service providers used: task group services must use the same provider"
    labels = {port.label for _, net in _networks(group) for port in (*net.reserved_ports, *net.dynamic_ports)}
    tasks = {task.name for task in group.tasks}
    seen: set[str] = set()
    for owner, service in owned:
        key = f"{owner or 'group'}->{service.name}:{service.port_label}"
        if key in seen:
            yield f"Services are not unique: {key}"
        seen.add(key)
        prefix = f"Task {owner} validation failed: " if owner else ""
        problems = (*_service(service, in_task=bool(owner)), *_references(service, labels, tasks))
        yield from (f'{prefix}Service "{service.name}" validation failed: {problem}' for problem in problems)


def _services(group: TaskGroup) -> Iterator[tuple[str, Service]]:
    yield from (("", service) for service in group.services)
    for task in group.tasks:
        yield from ((task.name, service) for service in task.services)


def _service(service: Service, in_task: bool) -> Iterator[str]:
    if not _LABEL.fullmatch(_REFERENCE.sub("x", service.name)):
        yield (
            "Service name must be valid per RFC 1123 and can contain only alphanumeric characters or dashes and must "
            f'be no longer than 63 characters: "{service.name}"'
        )
    if service.provider not in _CHECK_TYPES:
        yield f'Service provider must be "consul", or "nomad"; not "{service.provider}"'
    if service.address_mode not in _ADDRESS_MODES:
        yield f'Service address_mode must be "auto", "host", "alloc" or "driver"; not "{service.address_mode}"'
    elif service.address_mode == "driver" and not in_task:
        yield 'Service address_mode "driver" can only be used in a task'
    if service.on_update not in _ON_UPDATE:
        yield f'Service on_update must be "require_healthy", "ignore_warnings" or "ignore"; not "{service.on_update}"'
    if service.connect is not None and service.provider != "consul":
        yield 'Service with provider "nomad" cannot include Connect blocks'
    if service.weights is not None and min(service.weights.passing, service.weights.warning) < 0:
        yield "Service weights must not be negative"
    for check in service.checks:
        yield from (f"Check {check.name} invalid: {problem}" for problem in _check(check, service))


def _check(check: ServiceCheck, service: Service) -> Iterator[str]:
    types = _CHECK_TYPES.get(service.provider, _CHECK_TYPES["consul"])
    if check.type not in types:
        yield f'invalid check type ("{check.type}"), must be one of {", ".join(types)}'
    for name, value in (("interval", check.interval), ("timeout", check.timeout)):
        if value < _CHECK_TIME_MIN:
            yield f"{name} ({format_duration(value)}) cannot be lower than {format_duration(_CHECK_TIME_MIN)}"
    if check.type == "http" and not check.path:
        yield "http type must have http path"
    elif check.type == "http" and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|//", check.path):
        yield f'relative http path required: "{check.path}"'
    if check.type == "script" and not check.command:
        yield "script type must have a valid script path"
    if check.type in ("http", "tcp", "grpc") and not (check.port_label or service.port_label or check.expose):
        yield f'check requires a port but neither check nor service "{service.name}" have a port'
    if check.initial_status not in _INITIAL_STATUS:
        yield f'invalid initial check state "{check.initial_status}", must be one of passing, warning, critical'
    if check.on_update not in _ON_UPDATE:
        yield f'on_update must be "require_healthy", "ignore_warnings" or "ignore"; not "{check.on_update}"'
    if service.provider == "nomad" and (check.success_before_passing or check.failures_before_critical):
        yield 'success_before_passing and failures_before_critical may only be used with provider "consul"'
    if check.check_restart is not None and check.on_update == "ignore":
        yield 'on_update value "ignore" not supported with check_restart'
    if check.address_mode not in _CHECK_ADDRESS_MODES:
        yield f'invalid address_mode "{check.address_mode}", must be one of host, driver, alloc, alloc_ipv6'
    if len(check.notes) > _NOTES_MAX:
        yield f"notes must not be longer than {_NOTES_MAX} characters"
    if check.check_restart is not None and check.check_restart.limit < 0:
        yield "limit must be greater than or equal to 0"
    if check.check_restart is not None and check.check_restart.grace < 0:
        yield "grace must be greater than or equal to 0"


def _references(service: Service, labels: set[str], tasks: set[str]) -> Iterator[str]:
    """Names that must be found elsewhere in the group: port labels and tasks."""
    if not service.connect:
        wanted = {service.port_label, *(check.port_label for check in service.checks)} - {""}
        for label in sorted(wanted - labels):
            if not label.isdigit() and "${" not in label:
                yield f'port label "{label}" does not exist in the group\'s networks'
    for task in sorted({service.task_name, *(check.task_name for check in service.checks)} - tasks - {""}):
        yield f'refers to task "{task}", which is not in the group'
