"""Pages of what is listed in the order of its creation."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.builders import make_alloc, make_deployment, make_eval, uuid_of
from tests.world import World

from lepa.rpc import requests as r
from lepa.server.endpoints.allocations import list_allocations, list_evaluations
from lepa.server.endpoints.deployments import list_deployments


def evaluations(world: World, number: int) -> None:
    world.put_eval(make_eval(uuid_of(number)))


def allocations(world: World, number: int) -> None:
    world.put_alloc(make_alloc(uuid_of(number)))


def deployments(world: World, number: int) -> None:
    world.put_deployment(make_deployment(uuid_of(number)))


@pytest.mark.parametrize(
    ("create", "listing", "request_type"),
    [
        (evaluations, list_evaluations, r.EvaluationListRequest),
        (allocations, list_allocations, r.AllocationListRequest),
        (deployments, list_deployments, r.ReadRequest),
    ],
    ids=["evaluations", "allocations", "deployments"],
)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("around", [100, 1000])
def test_pages_go_on_when_the_index_gains_a_digit(
    create: Callable[[World, int], None], listing: Callable[..., Any], request_type: type, reverse: bool, around: int
) -> None:
    """B144."""
    world = World()
    world.revision = around - 6
    for number in range(11):
        create(world, number)
    whole = listing(world.snapshot, request_type(reverse=reverse)).items
    indexes = [row.create_index for row in whole]
    assert indexes == sorted(range(around - 5, around + 6), reverse=reverse)
    seen, token = [], ""
    for _ in range(6):
        page = listing(world.snapshot, request_type(per_page=2, next_token=token, reverse=reverse))
        seen += page.items
        token = page.next_token
    assert (seen, token) == (list(whole), "")
