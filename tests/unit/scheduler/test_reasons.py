"""Why a node fails a check, in words."""

from tests.builders import make_node

from lepa.model.constraint import Constraint
from lepa.model.node import ClientHostVolumeConfig, DriverInfo
from lepa.model.resources import RequestedDevice
from lepa.scheduler.feasible import (
    Check,
    DevicesColumn,
    DriverColumn,
    FieldColumn,
    HostNetworkColumn,
    HostVolumeColumn,
    NetworkModeColumn,
    ReadyColumn,
    constraint_check,
)
from lepa.scheduler.reasons import failed_check_words


def check(column: object) -> Check:
    return Check("reason", column, bool)  # type: ignore[arg-type]


def test_constraints_show_what_the_node_has() -> None:
    node = make_node(meta={"rack": "r" * 200})
    said = failed_check_words(constraint_check(Constraint(ltarget="${meta.rack}", operand="=", rtarget="x")), node)
    assert said.startswith('constraint ${meta.rack} = x does not hold: the node has "rrr')
    assert len(said) < 150
    pair = constraint_check(Constraint(ltarget="${meta.a}", operand="=", rtarget="${node.datacenter}"))
    assert failed_check_words(pair, node).endswith('left the node has no such value, right the node has "dc1"')


def test_drivers_are_absent_or_unwell() -> None:
    unwell = DriverInfo(detected=True, health_description="no daemon")
    node = make_node(drivers={"docker": unwell}, attributes={})
    assert failed_check_words(check(DriverColumn("docker")), node) == 'driver "docker" is not healthy on it: no daemon'
    assert failed_check_words(check(DriverColumn("qemu")), node) == 'driver "qemu" was not found on it'


def test_what_a_node_does_not_offer() -> None:
    node = make_node(host_volumes={"data": ClientHostVolumeConfig(name="data", path="/d", read_only=True)})
    assert "offers it read-only" in failed_check_words(check(HostVolumeColumn("data")), node)
    assert "does not offer it" in failed_check_words(check(HostVolumeColumn("logs")), node)
    assert failed_check_words(check(NetworkModeColumn("bridge")), node) == 'it offers no network of mode "bridge"'
    assert failed_check_words(check(HostNetworkColumn("dmz")), node) == 'it has no host network "dmz"'
    devices = DevicesColumn((RequestedDevice(name="nvidia/gpu", count=2),))
    assert failed_check_words(check(devices), node) == "it lacks healthy devices: 2 of nvidia/gpu"
    plugin = Check("missing CSI volume(s) v", FieldColumn("id"), lambda _: False)
    assert failed_check_words(plugin, node) == "missing CSI volume(s) v: no storage plugin runs here"
    assert failed_check_words(check(ReadyColumn()), node) == "reason"
