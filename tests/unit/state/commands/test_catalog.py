"""Instances of services."""

import pytest
from tests.builders import make_alloc, make_job, make_node, make_service
from tests.world import World

from lepa.model.errors import LepaError
from lepa.model.service import ServiceRegistration
from lepa.state.commands import catalog as commands
from lepa.state.commands.garbage import Garbage, collect


def test_an_instance_is_registered_once() -> None:
    world = World()
    world.put_alloc(make_alloc(job=make_job()))
    world.do(commands.register_services, "node-1", [make_service(node_id="")])
    (stored,) = world.snapshot.services()
    assert stored.node_id == "node-1"
    draft = world.draft()
    commands.register_services(draft, "node-1", [make_service()])
    assert draft.empty


def test_what_has_ended_cannot_register() -> None:
    world = World()
    world.put_alloc(make_alloc(job=make_job(), client_status="complete"))
    world.do(commands.register_services, "node-1", [make_service(), make_service("x", alloc_id="unknown")])
    assert list(world.snapshot.services()) == []


def test_instances_are_withdrawn_by_name_or_by_node() -> None:
    world = World()
    world.put_alloc(make_alloc(job=make_job()))
    world.do(commands.register_services, "node-1", [make_service("a"), make_service("b")])
    world.do(commands.withdraw_service, "default", "web", "a")
    with pytest.raises(LepaError, match="not found"):
        world.do(commands.withdraw_service, "default", "web", "a")
    world.do(commands.withdraw_node_services, "node-1", ["b", "unknown"])
    assert list(world.snapshot.services()) == []


def test_an_instance_from_outside_belongs_to_no_job() -> None:
    world = World()
    wanted = ServiceRegistration(id="p", service_name="printer", node_name="box", node_address="10.9.9.9", job_id="x")
    world.do(commands.register_outside, wanted)
    (stored,) = world.snapshot.services()
    assert (stored.namespace, stored.job_id, stored.node_address) == ("default", "", "10.9.9.9")
    draft = world.draft()
    commands.register_outside(draft, wanted)
    assert draft.empty


@pytest.mark.parametrize(
    "wanted",
    [
        ServiceRegistration(id="p", node_name="box"),
        ServiceRegistration(service_name="printer", node_name="box"),
        ServiceRegistration(id="p", service_name="printer"),
        ServiceRegistration(id="p", service_name="printer", node_id="unknown"),
        ServiceRegistration(id="p", service_name="printer", node_name="box", namespace="unknown"),
        ServiceRegistration(id="p", service_name="printer", node_name="box", status="fine"),
        ServiceRegistration(id="p", service_name="p" * 513, node_name="box"),
    ],
)
def test_what_cannot_be_registered_from_outside(wanted: ServiceRegistration) -> None:
    with pytest.raises(LepaError):
        World().do(commands.register_outside, wanted)


def test_an_instance_of_a_job_cannot_be_taken_over_from_outside() -> None:
    world = World()
    world.put_alloc(make_alloc(job=make_job()))
    world.do(commands.register_services, "node-1", [make_service("a")])
    with pytest.raises(LepaError, match="belongs to allocation"):
        world.do(commands.register_outside, ServiceRegistration(id="a", service_name="web", node_name="box"))


def test_what_a_forgotten_node_offered_is_forgotten_too() -> None:
    world = World()
    world.node(make_node("n1"))
    outside = ServiceRegistration(id="p", service_name="printer", node_id="n1", agent="n1")
    world.do(commands.register_outside, outside)
    world.do(collect, Garbage(nodes=("n1",)))
    assert list(world.snapshot.services()) == []
