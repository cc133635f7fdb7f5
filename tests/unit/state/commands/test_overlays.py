"""Shares of overlay networks."""

from typing import Any

import pytest
from tests.builders import make_alloc, make_node
from tests.world import World

from lepa.model.errors import LepaError
from lepa.model.overlay import OverlayLease
from lepa.state import keys
from lepa.state.commands.nodes import purge_node
from lepa.state.commands.overlays import lease_share


def wanted(node: str = "n1", **fields: Any) -> OverlayLease:
    values = {"overlay": "b", "node_id": node, "pool": "10.88.0.0/22", "vni": 7, "port": 4789, "endpoint": "192.0.2.1"}
    return OverlayLease(**(values | fields))


def lease(world: World, node: str = "n1", **fields: Any) -> OverlayLease:
    found = world.do(lease_share, wanted(node, **fields))
    assert isinstance(found, OverlayLease)
    return found


@pytest.fixture
def world() -> World:
    return World()


def test_nodes_get_the_lowest_free_subnets(world: World) -> None:
    assert [lease(world, node).subnet for node in ("n1", "n2", "n3")] == [f"10.88.{n}.0/24" for n in range(3)]
    assert lease(world).hardware == "02:4c:0a:58:00:00"


def test_a_node_keeps_its_share_and_may_move(world: World) -> None:
    lease(world)
    lease(world, "n2")
    assert lease(world, endpoint="192.0.2.9").subnet == "10.88.0.0/24"
    (first, _) = world.snapshot.overlay_leases("b")
    assert first.endpoint == "192.0.2.9"


def test_asking_again_writes_nothing(world: World) -> None:
    lease(world)
    draft = world.draft()
    lease_share(draft, wanted())
    assert draft.empty


def test_of_two_that_ask_for_the_same_at_once_one_has_to_ask_again(world: World) -> None:
    one, other = world.draft(), world.draft()
    lease_share(one, wanted("n1"))
    lease_share(other, wanted("n2"))
    assert {op.key for op in one.txn().operations} == {op.key for op in other.txn().operations}
    assert all(compare.modified == 0 for compare in other.txn().compares)


def test_a_full_pool_takes_back_what_nobody_needs(world: World) -> None:
    for number in range(4):
        world.do(lambda d, n=number: d.put_node(make_node(f"n{n}", status="ready")))
        lease(world, f"n{number}")
    with pytest.raises(LepaError, match=r"all 4 subnets of pool .* are held"):
        lease(world, "new")
    world.do(lambda d: d.put_node(make_node("n2", status="down")))
    world.do(lambda d: d.put_allocation(make_alloc("a1", node_id="n2", client_status="running")))
    with pytest.raises(LepaError, match="are held"):
        lease(world, "new")
    world.do(lambda d: d.put_allocation(make_alloc("a1", node_id="n2", client_status="lost")))
    assert lease(world, "new").subnet == "10.88.2.0/24"


def test_a_purged_node_gives_its_share_back(world: World) -> None:
    world.do(lambda d: d.put_node(make_node("n1")))
    lease(world)
    world.do(purge_node, "n1")
    assert list(world.snapshot.overlay_leases()) == []


def test_a_changed_pool_moves_the_share(world: World) -> None:
    lease(world)
    assert lease(world, pool="10.90.0.0/22").subnet == "10.90.0.0/24"
    assert [found.subnet for found in world.snapshot.overlay_leases()] == ["10.90.0.0/24"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"pool": "10.88.0.0/22", "vni": 8}, "this node says vni = 8, node n1 says 7"),
        ({"encrypted": True}, "this node says encrypted = True"),
        ({"overlay": "c", "pool": "10.88.2.0/23"}, 'overlaps that of "b"'),
        ({"pool": "10.88.0.0"}, "cannot be cut into subnets /24"),
        ({"pool": "nonsense"}, "wanted a block such as 10.88.0.0/16"),
        ({"pool": "10.0.0.0/8", "subnet_prefix": 30}, "wanted 2 to 4096"),
        ({"overlay": ""}, "has 1 to 63 characters"),
    ],
)
def test_what_cannot_be_is_refused(world: World, fields: dict[str, Any], told: str) -> None:
    lease(world)
    with pytest.raises(LepaError, match=told):
        lease(world, "n2", **fields)


def test_a_share_is_stored_under_its_subnet() -> None:
    assert keys.split(keys.overlay_key("b", "10.0.0.0/24")) == ("overlays", ("b", "10.0.0.0/24"))
