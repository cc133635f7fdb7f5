"""Names of running things."""

from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import ALLOC, NODE

from lepa.model.service import ServiceRegistration
from lepa.model.wire import to_builtins


@pytest.fixture
def named(agent: FakeAgent) -> FakeAgent:
    """An agent with two services."""
    services = [{"ServiceName": "redis", "Tags": ["b", "a"]}, {"ServiceName": "web", "Tags": []}]
    agent.on("GET /v1/services", [{"Namespace": "default", "Services": services}])
    instance = ServiceRegistration(
        id="_nomad-1",
        service_name="redis",
        namespace="default",
        node_id=NODE,
        datacenter="dc1",
        job_id="cache",
        alloc_id=ALLOC,
        tags=("a", "b"),
        address="10.0.0.1",
        port=6379,
    )
    agent.on("GET /v1/service/redis", [to_builtins(instance)])
    return agent


def test_the_list(named: FakeAgent, lepa: Run) -> None:
    assert lepa("service", "list").out == "Service Name  Tags\nredis         [a,b]\nweb           []\n"
    assert lepa("service", "list", "-name", "we").out == "Service Name  Tags\nweb           []\n"
    assert lepa("service", "list", "-namespace=*").out.split("\n")[0] == "Service Name  Namespace  Tags"
    named.on("GET /v1/services", [])
    assert lepa("service", "list").out == "No service registrations found\n"


def test_instances_by_a_prefix_in_all_namespaces(named: FakeAgent, lepa: Run, golden: Any) -> None:
    """B132."""
    golden("service_info", lepa("service", "info", "-namespace", "*", "red").out)
    assert named.requests[-1].query["namespace"] == "default"
    golden("service_info_verbose", lepa("service", "info", "-verbose", "redis").out)
    assert lepa("service", "info", "-t", "{{len .}}", "redis").out == "1\n"


def test_several_or_no_services_are_a_sentence(named: FakeAgent, lepa: Run) -> None:
    assert "Prefix matched multiple services" in lepa("service", "info", "").error
    assert 'No service with name or prefix "zz" found' in lepa("service", "info", "zz").error


def test_an_instance_is_taken_away(named: FakeAgent, lepa: Run) -> None:
    named.on("DELETE /v1/service/redis/_nomad-1", Reply())
    assert lepa("service", "delete", "redis", "_nomad-1").out == "Successfully deleted service registration\n"


def test_only_healthy_instances(named: FakeAgent, lepa: Run) -> None:
    lepa("service", "info", "-healthy", "redis")
    assert named.requests[-1].query["filter"] == '(Status != "critical")'
    lepa("service", "info", "-healthy", "-filter", "Port == 1", "redis")
    assert named.requests[-1].query["filter"] == '(Port == 1) and (Status != "critical")'
