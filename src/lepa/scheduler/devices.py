"""Pure: which device instances a task gets on a node."""

import re
from collections.abc import Iterable
from typing import Any

from lepa.model.allocation import Allocation
from lepa.model.constraint import Affinity, Constraint
from lepa.model.node import Node, NodeDevice, NodeDeviceResource
from lepa.model.resources import AllocatedDeviceResource, RequestedDevice
from lepa.scheduler.operators import satisfies

DeviceKey = tuple[str, str, str, str]
"""Vendor, type, name and instance id."""

NO_DEVICES = "no devices match request"


def devices_suffice(node: Node, requests: Iterable[RequestedDevice]) -> bool:
    """Whether an idle node could serve all requests."""
    return not isinstance(assign_devices(node, frozenset(), requests), str)


def devices_in_use(allocs: Iterable[Allocation]) -> set[DeviceKey]:
    """The instances that allocations were given."""
    return {
        (device.vendor, device.type, device.name, device_id)
        for alloc in allocs
        for task in alloc.allocated_resources.tasks.values()
        for device in task.devices
        for device_id in device.device_ids
    }


def assign_devices(
    node: Node, taken: Iterable[DeviceKey], requests: Iterable[RequestedDevice]
) -> tuple[AllocatedDeviceResource, ...] | str:
    """Instances for each request in order, or why there are none; a request is served from one group of devices."""
    in_use = set(taken)
    given = []
    for request in requests:
        choice = _best_offer(node, in_use, request)
        if choice is None:
            return NO_DEVICES
        group, instances = choice
        ids = tuple(instance.id for instance in instances)
        in_use.update((group.vendor, group.type, group.name, device_id) for device_id in ids)
        given.append(AllocatedDeviceResource(vendor=group.vendor, type=group.type, name=group.name, device_ids=ids))
    return tuple(given)


def _best_offer(
    node: Node, in_use: set[DeviceKey], request: RequestedDevice
) -> tuple[NodeDeviceResource, list[NodeDevice]] | None:
    best: tuple[NodeDeviceResource, list[NodeDevice]] | None = None
    best_score = 0.0
    for group in node.node_resources.devices:
        free = _matching_instances(group, in_use, request)
        score = _affinity_score(group, request.affinities)
        if len(free) >= request.count and (best is None or score > best_score):
            best, best_score = (group, free[: request.count]), score
    return best


def _matching_instances(
    group: NodeDeviceResource, in_use: set[DeviceKey], request: RequestedDevice
) -> list[NodeDevice]:
    """Free and healthy instances of a group that satisfy the request, preferred ones first."""
    if not _name_matches(group, request.name):
        return []
    by_group = [c for c in request.constraints if c.ltarget != "${device.ids}"]
    if not all(_group_satisfies(group, constraint) for constraint in by_group):
        return []
    by_id = [c for c in request.constraints if c.ltarget == "${device.ids}"]
    return [
        instance
        for instance in group.instances
        if instance.healthy
        and (group.vendor, group.type, group.name, instance.id) not in in_use
        and all(_id_satisfies(instance.id, group, constraint) for constraint in by_id)
    ]


def _name_matches(group: NodeDeviceResource, name: str) -> bool:
    """A request names a type, a vendor and type, or vendor, type and model."""
    parts = name.split("/", 2)
    if len(parts) == 1:
        return parts == [group.type]
    return parts == [group.vendor, group.type, group.name][: len(parts)]


def _id_satisfies(device_id: str, group: NodeDeviceResource, constraint: Constraint) -> bool:
    """A constraint on ids narrows the choice to the ids it names; `set_contains` wants all of them to be there."""
    named = {part.strip() for part in constraint.rtarget.split(",")}
    if constraint.operand in ("set_contains", "set_contains_all"):
        return named <= {instance.id for instance in group.instances} and device_id in named
    if constraint.operand == "set_contains_any":
        return device_id in named
    return satisfies(device_id, constraint.operand, constraint.rtarget)


def _affinity_score(group: NodeDeviceResource, affinities: tuple[Affinity, ...]) -> float:
    return sum(affinity.weight for affinity in affinities if _group_satisfies(group, affinity))


def _group_satisfies(group: NodeDeviceResource, constraint: Constraint | Affinity) -> bool:
    left = _device_target(group, constraint.ltarget)
    right = _device_target(group, constraint.rtarget)
    a, b = _quantity(left), _quantity(right)
    if a is not None and b is not None and a[1] == b[1]:
        return satisfies(repr(a[0]), constraint.operand, repr(b[0]))
    return satisfies(left, constraint.operand, right)


def _device_target(group: NodeDeviceResource, target: str) -> str | None:
    if not target.startswith("${"):
        return target
    name = target[2:-1]
    if name in ("device.vendor", "device.type", "device.model"):
        return {"vendor": group.vendor, "type": group.type, "model": group.name}[name.removeprefix("device.")]
    if name == "device.ids":
        return ",".join(instance.id for instance in group.instances)
    value = group.attributes.get(name.removeprefix("device.attr."))
    return None if value is None else _attribute_text(value)


def _attribute_text(value: Any) -> str:
    """An attribute is plain, or Nomad's object with one of Float, Int, String, Bool and a Unit."""
    if not isinstance(value, dict):
        return str(value).lower() if isinstance(value, bool) else str(value)
    for kind in ("Float", "Int", "String", "Bool"):
        if value.get(kind) is not None:
            return f"{_attribute_text(value[kind])} {value.get('Unit', '')}".strip()
    return ""


_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)\s*([kKMGTPE]i?)?(B/s|B|Hz|W|mW)?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def _quantity(text: str | None) -> tuple[float, str] | None:
    """A number with its unit, prefixes multiplied out: "4 GiB" is (4294967296.0, "B")."""
    match = _QUANTITY.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    prefix = match[2] or ""
    base = 1024 if prefix.endswith("i") else 1000
    scale = base ** _POWERS[prefix.removesuffix("i")]
    unit, milli = (match[3] or "").removeprefix("m"), (match[3] or "").startswith("m")
    return float(match[1]) * scale / (1000 if milli else 1), unit
