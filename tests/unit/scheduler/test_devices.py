"""Which device instances a task gets."""

from typing import Any

import pytest
from tests.builders import make_node

from lepa.model.constraint import Affinity, Constraint
from lepa.model.node import Node, NodeDevice, NodeDeviceResource, NodeResources
from lepa.model.resources import RequestedDevice
from lepa.scheduler.devices import assign_devices, devices_suffice


def gpus(*ids: str, name: str = "1080ti", **changes: Any) -> NodeDeviceResource:
    instances = tuple(NodeDevice(id=each, healthy=True) for each in ids)
    fields = {"attributes": {"memory": {"Int": 11, "Unit": "GiB"}}} | changes
    return NodeDeviceResource(vendor="nvidia", type="gpu", name=name, instances=instances, **fields)


def with_devices(*groups: NodeDeviceResource) -> Node:
    return make_node(node_resources=NodeResources(devices=groups))


@pytest.mark.parametrize("name", ["gpu", "nvidia/gpu", "nvidia/gpu/1080ti"])
def test_a_request_names_type_vendor_or_model(name: str) -> None:
    assert devices_suffice(with_devices(gpus("a")), [RequestedDevice(name=name)])
    assert not devices_suffice(with_devices(gpus("a")), [RequestedDevice(name=name + "x")])


def test_two_requests_get_different_instances() -> None:
    given = assign_devices(with_devices(gpus("a", "b")), (), [RequestedDevice(name="gpu"), RequestedDevice(name="gpu")])
    assert [each.device_ids for each in given if not isinstance(each, str)] == [("a",), ("b",)]
    assert not devices_suffice(with_devices(gpus("a")), [RequestedDevice(name="gpu"), RequestedDevice(name="gpu")])


def test_taken_and_unhealthy_instances_are_not_given() -> None:
    sick = NodeDeviceResource(vendor="nvidia", type="gpu", name="1080ti", instances=(NodeDevice(id="c"),))
    assert not devices_suffice(with_devices(sick), [RequestedDevice(name="gpu")])
    taken = [("nvidia", "gpu", "1080ti", "a")]
    given = assign_devices(with_devices(gpus("a", "b")), taken, [RequestedDevice(name="gpu")])
    assert not isinstance(given, str)
    assert given[0].device_ids == ("b",)


@pytest.mark.parametrize(
    ("value", "operand", "expected"),
    [("10 GiB", ">=", True), ("12 GiB", ">=", False), ("11264 MiB", "=", True), ("11 GB", ">", True)],
)
def test_attributes_compare_with_their_units(value: str, operand: str, expected: bool) -> None:
    constraint = Constraint(ltarget="${device.attr.memory}", operand=operand, rtarget=value)
    assert (
        devices_suffice(with_devices(gpus("a")), [RequestedDevice(name="gpu", constraints=(constraint,))]) is expected
    )


@pytest.mark.parametrize(("wanted", "given"), [("b", ("b",)), ("a", ("a",)), ("z", None)])
def test_a_constraint_on_ids_gives_that_instance_or_none(wanted: str, given: tuple[str, ...] | None) -> None:
    """B054."""
    constraint = Constraint(ltarget="${device.ids}", operand="set_contains", rtarget=wanted)
    result = assign_devices(with_devices(gpus("a", "b")), (), [RequestedDevice(name="gpu", constraints=(constraint,))])
    assert (None if isinstance(result, str) else result[0].device_ids) == given


def test_affinity_chooses_the_group() -> None:
    affinity = Affinity(ltarget="${device.model}", operand="=", rtarget="2080ti", weight=50)
    node = with_devices(gpus("a"), gpus("b", name="2080ti"))
    given = assign_devices(node, (), [RequestedDevice(name="gpu", affinities=(affinity,))])
    assert not isinstance(given, str)
    assert given[0].name == "2080ti"
