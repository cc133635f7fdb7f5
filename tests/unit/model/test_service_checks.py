"""Networks, ports, services and checks that do not fit together."""

from typing import Any

import pytest
from tests.unit.model.raw_jobs import errors_of


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"Networks": [{"DynamicPorts": [{"Label": "a"}, {"Label": "a"}]}]}, "Port label a already in use by"),
        (
            {"Networks": [{"ReservedPorts": [{"Label": "a", "Value": 80}, {"Label": "b", "Value": 80}]}]},
            "Static port 80 already reserved by taskgroup network:api:a",
        ),
        ({"Networks": [{"ReservedPorts": [{"Label": "a", "Value": 70000}]}]}, "Port a (70000) cannot be greater than"),
        ({"Networks": [{"DynamicPorts": [{"Label": "a", "To": -2}]}]}, 'Port "a" cannot be mapped to negative value'),
        ({"Networks": [{"Mode": "bridge", "Hostname": "a_b"}]}, "Hostname is not a valid DNS name"),
    ],
)
def test_a_broken_network_is_refused(group: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors_of(group=group))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"Services": [{"Name": "a b"}]}, "Service name must be valid per RFC 1123"),
        ({"Services": [{"Provider": "x"}]}, 'Service provider must be "consul", or "nomad"; not "x"'),
        ({"Services": [{"PortLabel": "1"}, {"PortLabel": "1"}]}, "Services are not unique: server->web-api-server:1"),
        ({"Services": [{"PortLabel": "gone"}]}, 'port label "gone" does not exist'),
        ({"Services": [{"Checks": [{"Type": "tcp"}]}]}, "interval (0s) cannot be lower than 1s"),
        ({"Services": [{"Checks": [{"Type": "tcp"}]}]}, "check requires a port but neither check nor service"),
        ({"Services": [{"Provider": "nomad", "Checks": [{"Type": "grpc"}]}]}, 'invalid check type ("grpc"), must be'),
        ({"Services": [{"Checks": [{"Type": "tcp", "AddressMode": "auto"}]}]}, 'invalid address_mode "auto"'),
        ({"Services": [{"Checks": [{"Type": "tcp", "Notes": "x" * 256}]}]}, "notes must not be longer than 255"),
        (
            {"Services": [{"Checks": [{"Type": "tcp", "OnUpdate": "ignore", "CheckRestart": {"Limit": 1}}]}]},
            "not supported with check_restart",
        ),
        ({"Services": [{"Provider": "nomad"}, {"Name": "b"}]}, "Multiple service providers used"),
    ],
)
def test_a_broken_service_is_refused(task: dict[str, Any], message: str) -> None:
    assert any(
        message in error and error.startswith("Task group api validation failed: ") for error in errors_of(**task)
    )


def test_a_service_without_a_port_is_accepted_and_its_checks_bring_one() -> None:
    """B216."""
    assert errors_of(Services=[{"Name": "x"}]) == ()
    check = {"Type": "tcp", "Interval": 10**10, "Timeout": 10**9}
    (error,) = errors_of(Services=[{"Name": "x", "Checks": [check]}])
    assert 'check requires a port but neither check nor service "x" have a port' in error
    networks = {"Networks": [{"DynamicPorts": [{"Label": "probe"}]}]}
    assert errors_of(group=networks, Services=[{"Name": "x", "Checks": [check | {"PortLabel": "probe"}]}]) == ()


def test_names_that_are_known_only_on_the_node_are_accepted() -> None:
    """B108: names made of run-time variables may be equal as texts."""
    services = [{"Name": "${NOMAD_JOB_NAME}-${NOMAD_TASK_NAME}", "PortLabel": "${meta.port}"}]
    assert errors_of(Services=services) == ()


def test_two_tasks_may_not_ask_for_one_static_port() -> None:
    """B056."""
    network = {"Networks": [{"ReservedPorts": [{"Label": "http", "Value": 8080}]}]}
    tasks = [{"Name": name, "Driver": "docker", "Resources": network} for name in ("a", "b")]
    assert list(errors_of(group={"Tasks": tasks})) == [
        "Task group api validation failed: Static port 8080 already reserved by task network:a:http"
    ]


def test_one_static_port_on_two_host_networks_is_accepted() -> None:
    """B057."""
    ports = [{"Label": name, "Value": 80, "HostNetwork": name} for name in ("net1", "net2")]
    assert errors_of(group={"Networks": [{"ReservedPorts": ports}]}) == ()


def test_two_tasks_may_use_one_label_on_networks_of_their_own() -> None:
    network = {"Networks": [{"DynamicPorts": [{"Label": "http"}]}]}
    tasks = [{"Name": name, "Driver": "docker", "Resources": network} for name in ("a", "b")]
    assert errors_of(group={"Tasks": tasks}) == ()
    clash = errors_of(group={"Tasks": tasks, **network})
    assert len(clash) == 2
    assert all("Port label http already in use by taskgroup network:api:http" in error for error in clash)


def test_a_service_refers_to_tasks_of_its_group() -> None:
    errors = errors_of(group={"Services": [{"Name": "x", "TaskName": "gone"}]})
    assert errors == (
        'Task group api validation failed: Service "x" validation failed: refers to task "gone", '
        "which is not in the group",
    )


def test_ports_shared_on_purpose_do_not_collide() -> None:
    ports = [{"Label": name, "Value": 80, "IgnoreCollision": True} for name in ("a", "b")]
    assert errors_of(group={"Networks": [{"ReservedPorts": ports}]}) == ()
    bridged = errors_of(group={"Networks": [{"Mode": "bridge", "ReservedPorts": ports}]})
    assert all("may only set ignore_collision in host network mode" in error for error in bridged)
