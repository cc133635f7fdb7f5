"""May a node run a group, and if not why."""

import pytest
from tests.builders import make_group, make_job, make_node, make_task

from lepa.model.constraint import Constraint
from lepa.model.job import VolumeRequest
from lepa.model.job_rules import implied_constraints
from lepa.model.node import ClientHostVolumeConfig, DrainStrategy, DriverInfo, NodeNetworkResource, NodeResources
from lepa.model.resources import NetworkResource, Port, RequestedDevice, Resources
from lepa.model.service import Service, ServiceCheck
from lepa.scheduler.feasible import (
    constraint_text,
    datacenter_matches,
    distinct_constraints,
    failed_check,
    group_checks,
    interpolate,
    is_ready,
    pool_matches,
    resolve_target,
)


def reason(node_changes: dict[str, object], *constraints: Constraint, **group: object) -> str:
    """Why a node with some changes may not run a group."""
    made = make_group(**group)
    job = make_job(groups=(made,), constraints=constraints)
    return failed_check(make_node(**node_changes), group_checks(job, made))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("literal", "literal"),
        ("${node.unique.id}", "node-1"),
        ("${node.unique.name}", "node-1"),
        ("${node.datacenter}", "dc1"),
        ("${node.class}", "big"),
        ("${node.pool}", "default"),
        ("${attr.kernel.name}", "linux"),
        ("${meta.rack}", "r1"),
        ("${meta.absent}", None),
        ("${nonsense}", None),
    ],
)
def test_targets_name_properties_of_a_node(target: str, expected: str | None) -> None:
    assert resolve_target(make_node(node_class="big", meta={"rack": "r1"}), target) == expected


def test_interpolation_leaves_what_the_node_does_not_have() -> None:
    assert interpolate(make_node(meta={"net": "lan"}), "${meta.net}-${meta.x}") == "lan-${meta.x}"


def test_datacenters_are_globs_and_pool_all_is_everywhere() -> None:
    assert datacenter_matches("us-east-1", ("eu*", "us-*"))
    assert not datacenter_matches("us-east-1", ("us",))
    assert pool_matches("gpu", "all")
    assert not pool_matches("gpu", "default")


@pytest.mark.parametrize(
    ("changes", "ready"),
    [
        ({}, True),
        ({"status": "down"}, False),
        ({"scheduling_eligibility": "ineligible"}, False),
        ({"drain_strategy": DrainStrategy()}, False),
    ],
)
def test_only_ready_nodes_get_work(changes: dict[str, object], ready: bool) -> None:
    assert is_ready(make_node(**changes)) is ready


def test_failed_constraint_is_told_as_text() -> None:
    constraint = Constraint(ltarget="${attr.kernel.name}", operand="=", rtarget="windows")
    assert reason({}, constraint) == "${attr.kernel.name} = windows"
    assert reason({"attributes": {"kernel.name": "windows"}}, constraint) == ""


def test_b220_checks_of_the_own_catalog_are_not_placed_where_they_cannot_run() -> None:
    """B220."""
    service = Service(name="web", provider="nomad", checks=(ServiceCheck(type="tcp"),))
    job = implied_constraints(make_job(groups=(make_group(services=(service,)),)))
    checks = group_checks(job, job.task_groups[0])

    def told(version: str) -> str:
        attributes = {"nomad.service_discovery": "true", "nomad.version": version}
        return failed_check(make_node(attributes=attributes), checks)

    assert told("1.3.16") == "${attr.nomad.version} semver >= 1.4.0"
    assert told("1.4.0") == ""


def test_both_sides_may_be_targets() -> None:
    constraint = Constraint(ltarget="${meta.a}", operand="=", rtarget="${meta.b}")
    assert reason({"meta": {"a": "1", "b": "1"}}, constraint) == ""
    assert reason({"meta": {"a": "1"}}, constraint) == "${meta.a} = ${meta.b}"


def test_driver_has_to_be_detected_and_healthy() -> None:
    assert reason({"drivers": {"mock_driver": DriverInfo(detected=True, healthy=False)}}) == "missing drivers"
    assert reason({"drivers": {}, "attributes": {}}) == "missing drivers"
    assert reason({"drivers": {}, "attributes": {"driver.mock_driver": "1"}}) == ""


@pytest.mark.parametrize(
    ("offered", "wants_to_write", "expected"),
    [
        ({}, False, "missing compatible host volumes"),
        ({"certs": ClientHostVolumeConfig(name="certs")}, True, ""),
        ({"certs": ClientHostVolumeConfig(name="certs", read_only=True)}, True, "missing compatible host volumes"),
        ({"certs": ClientHostVolumeConfig(name="certs", read_only=True)}, False, ""),
    ],
)
def test_host_volumes(offered: dict[str, ClientHostVolumeConfig], wants_to_write: bool, expected: str) -> None:
    request = VolumeRequest(name="v", type="host", source="certs", read_only=not wants_to_write)
    assert reason({"host_volumes": offered}, volumes={"v": request}) == expected


def test_network_modes_and_host_networks() -> None:
    bridge = (NetworkResource(mode="bridge"),)
    assert reason({}, networks=bridge) == "missing network"
    has = NodeResources(node_networks=(NodeNetworkResource(mode="bridge"),))
    assert reason({"node_resources": has}, networks=bridge) == ""
    named = (NetworkResource(dynamic_ports=(Port(label="http", host_network="private"),)),)
    assert reason({}, networks=named) == 'missing host network "private" for port "http"'
    by_meta = (NetworkResource(dynamic_ports=(Port(label="http", host_network="${meta.net}"),)),)
    assert reason({"meta": {"net": "default"}}, networks=by_meta) == ""


def test_missing_devices() -> None:
    task = make_task(resources=Resources(devices=(RequestedDevice(name="gpu"),)))
    assert reason({}, tasks=(task,)) == "missing devices"


def test_distinct_constraints_are_no_checks_and_may_be_switched_off() -> None:
    hosts = Constraint(operand="distinct_hosts")
    off = Constraint(operand="distinct_hosts", rtarget="false")
    group = make_group(constraints=(Constraint(operand="distinct_property", ltarget="${meta.rack}"), off))
    job = make_job(groups=(group,), constraints=(hosts,))
    assert [(c.operand, whole) for c, whole in distinct_constraints(job, group)] == [
        ("distinct_hosts", True),
        ("distinct_property", False),
    ]
    assert len(group_checks(job, group)) == 1
    assert constraint_text(hosts) == "distinct_hosts"
    assert constraint_text(group.constraints[0]) == "distinct_property: ${meta.rack}"
