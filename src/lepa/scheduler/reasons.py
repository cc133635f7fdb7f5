"""Pure: why a node fails a check, in a person's words, with what was found on the node."""

from lepa.model.node import Node
from lepa.scheduler.feasible import (
    Check,
    DevicesColumn,
    DriverColumn,
    FieldColumn,
    HostNetworkColumn,
    HostVolumeColumn,
    NetworkModeColumn,
    TargetColumn,
    TargetPairColumn,
)

VALUE_MAX = 80
"""Characters of a node's value that are shown."""


def failed_check_words(check: Check, node: Node) -> str:
    """A sentence about a check that a node fails; what is not known here by more is told by its reason."""
    column = check.column
    if isinstance(column, TargetColumn):
        return f"constraint {check.reason} does not hold: {_found(column.read(node))}"
    if isinstance(column, TargetPairColumn):
        left, right = column.read(node)
        return f"constraint {check.reason} does not hold: left {_found(left)}, right {_found(right)}"
    if isinstance(column, DriverColumn):
        return _driver(column.driver, node)
    if isinstance(column, HostVolumeColumn):
        offered = column.read(node)
        lacks = "offers it read-only" if offered else "does not offer it"
        return f'host volume "{column.source}" is asked for, and the node {lacks}'
    if isinstance(column, NetworkModeColumn):
        return f'it offers no network of mode "{column.mode}"'
    if isinstance(column, HostNetworkColumn):
        return f'it has no host network "{column.host_network}"'
    if isinstance(column, DevicesColumn):
        wanted = ", ".join(f"{request.count} of {request.name}" for request in column.requests)
        return f"it lacks healthy devices: {wanted}"
    if isinstance(column, FieldColumn) and check.reason.startswith("missing CSI"):
        return f"{check.reason}: no storage plugin runs here"
    return check.reason


def _found(value: str | None) -> str:
    if value is None:
        return "the node has no such value"
    return f'the node has "{value if len(value) <= VALUE_MAX else value[:VALUE_MAX] + "…"}"'


def _driver(name: str, node: Node) -> str:
    info = node.drivers.get(name)
    if info is None or not info.detected:
        return f'driver "{name}" was not found on it'
    told = f": {info.health_description}" if info.health_description else ""
    return f'driver "{name}" is not healthy on it{told}'
