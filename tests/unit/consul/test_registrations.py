"""What clients register is understood or refused."""

from typing import Any

import pytest

from lepa.consul.registrations import AgentNode, check_of, definition_of, host_and_port, outside_of, service_of
from lepa.kit.durations import MINUTE, SECOND
from lepa.model.errors import LepaError

NODE = AgentNode("n1", "1", "10.0.0.1", "dc1")


def test_a_service_takes_what_it_does_not_say_from_its_agent() -> None:
    service = service_of({"Name": "web"}, NODE)
    assert (service.id, service.address, service.node_id, service.agent) == ("web", "10.0.0.1", "1", "n1")
    assert (service.status, service.checks) == ("passing", ())


def test_an_agent_without_a_node_is_a_machine_of_its_own() -> None:
    service = service_of({"Name": "web"}, AgentNode("srv", "", "10.0.0.7", "dc1"))
    assert (service.node_id, service.node_name, service.node_address) == ("", "srv", "10.0.0.7")


def test_a_service_with_a_check_is_critical_at_first() -> None:
    service = service_of({"Name": "web", "Check": {"TTL": "10s"}}, NODE)
    assert (service.status, service.checks[0].id) == ("critical", "service:web")
    passing = service_of({"Name": "web", "Check": {"TTL": "10s", "Status": "passing"}}, NODE)
    assert passing.status == "passing"


def test_several_checks_are_numbered() -> None:
    service = service_of({"Name": "web", "Checks": [{"TTL": "10s"}, {"TCP": "a:1", "Interval": "1s"}]}, NODE)
    assert [check.id for check in service.checks] == ["service:web:1", "service:web:2"]


def test_keys_are_taken_in_any_case_and_with_underscores() -> None:
    definition = definition_of({"http": "http://a/", "interval": "5s", "tls_skip_verify": True})
    assert (definition.kind, definition.interval, definition.tls_skip_verify) == ("http", 5 * SECOND, True)


def test_an_interval_and_a_deregistration_have_floors() -> None:
    body = {"TCP": "a:1", "Interval": "10ms", "DeregisterCriticalServiceAfter": "1s"}
    definition = definition_of(body)
    assert (definition.interval, definition.deregister_after) == (SECOND, MINUTE)


def test_warnings_begin_with_failures_by_default() -> None:
    definition = definition_of({"TCP": "a:1", "Interval": "1s", "FailuresBeforeCritical": 3})
    assert (definition.failures_before_warning, definition.failures_before_critical) == (3, 3)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"TTL": "10s", "Interval": "10s"},
        {"HTTP": "http://a/"},
        {"HTTP": "ftp://a/", "Interval": "1s"},
        {"TCP": "a", "Interval": "1s"},
        {"TCP": "a:99999", "Interval": "1s"},
        {"HTTP": "http://a/", "TCP": "a:1", "Interval": "1s"},
        {"Args": ["true"], "Interval": "1s"},
        {"DockerContainerID": "x", "Interval": "1s"},
        {"AliasService": "x"},
        {"TCP": "a:1", "Interval": "soon"},
        {"TCP": "a:1", "Interval": "1s", "FailuresBeforeWarning": 5, "FailuresBeforeCritical": 1},
        {"TCP": "a:1", "Interval": "1s", "SuccessBeforePassing": -1},
    ],
)
def test_checks_that_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(LepaError):
        definition_of(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"Name": "x", "Address": "::"},
        {"Name": "x", "Port": "80"},
        {"Name": "x", "Meta": {str(n): "" for n in range(65)}},
        {"Name": "x", "Check": {"TTL": "1s", "Status": "fine"}},
        {"Name": "x", "Checks": [{"TTL": "1s"}] * 65},
    ],
)
def test_services_that_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(LepaError):
        service_of(body, NODE)


def test_a_stored_definition_is_read_as_it_was_given() -> None:
    body = {
        "CheckID": "c",
        "GRPC": "a:1/pkg.Service",
        "GRPCUseTLS": True,
        "Interval": "10s",
        "Header": {"a": ["1", "2"]},
    }
    check = check_of(body, "")
    assert definition_of(check.definition) == definition_of(body)
    assert definition_of(body).headers == (("a", "1"), ("a", "2"))


def test_an_address_may_be_ipv6() -> None:
    assert host_and_port("[::1]:53/x") == ("::1", 53)


def test_a_machine_outside_tells_its_own_results() -> None:
    body = {
        "Node": "box",
        "Address": "10.9.9.9",
        "Service": {"Service": "db", "Port": 1},
        "Checks": [{"CheckID": "c", "Status": "warning", "Output": "slow"}],
    }
    service = outside_of(body, "dc1")
    assert (service.node_name, service.node_address, service.address) == ("box", "10.9.9.9", "10.9.9.9")
    assert (service.agent, service.status, service.checks[0].output) == ("", "warning", "slow")


@pytest.mark.parametrize("body", [{}, {"Node": "box"}, {"Node": "box", "Address": "10.9.9.9"}])
def test_a_machine_needs_name_address_and_service(body: dict[str, Any]) -> None:
    with pytest.raises(LepaError):
        outside_of(body, "dc1")
