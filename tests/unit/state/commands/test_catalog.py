"""Instances of services."""

import pytest
from tests.builders import make_alloc, make_job, make_service
from tests.world import World

from lepa.model.errors import LepaError
from lepa.state.commands import catalog as commands


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
