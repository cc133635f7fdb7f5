"""Namespaces, node pools and the scheduler's settings."""

import pytest
from tests.builders import make_job, make_node
from tests.world import World

from lepa.model.errors import LepaError
from lepa.model.operator import SchedulerConfiguration
from lepa.model.tenancy import Namespace, NodePool
from lepa.state.commands import tenancy as commands


def test_a_namespace_comes_and_goes() -> None:
    world = World()
    world.do(commands.upsert_namespace, Namespace(name="blue"))
    world.job(make_job(namespace="blue"))
    with pytest.raises(LepaError, match='namespace "blue" has non-terminal jobs'):
        world.do(commands.delete_namespace, "blue")
    world.forget("jobs/blue/web")
    world.do(commands.delete_namespace, "blue")
    assert world.snapshot.namespace("blue") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [("default", "can not delete default namespace"), ("ghost", "Namespace not found")],
)
def test_a_namespace_that_cannot_go(name: str, message: str) -> None:
    with pytest.raises(LepaError, match=message):
        World().do(commands.delete_namespace, name)


@pytest.mark.parametrize("namespace", [Namespace(name="a b"), Namespace(name="a", description="x" * 257)])
def test_a_namespace_that_is_refused(namespace: Namespace) -> None:
    with pytest.raises(LepaError) as refused:
        World().do(commands.upsert_namespace, namespace)
    assert refused.value.code == "invalid"


def test_a_pool_with_nodes_stays() -> None:
    world = World()
    world.do(commands.upsert_node_pool, NodePool(name="gpu"))
    world.node(make_node(node_pool="gpu"))
    with pytest.raises(LepaError, match='node pool "gpu" has nodes'):
        world.do(commands.delete_node_pool, "gpu")
    world.forget("nodes/node-1")
    world.job(make_job(node_pool="gpu"))
    with pytest.raises(LepaError, match='node pool "gpu" has non-terminal jobs'):
        world.do(commands.delete_node_pool, "gpu")


def test_built_in_pools_stay_as_they_are() -> None:
    for name in ("default", "all"):
        with pytest.raises(LepaError, match="not allowed"):
            World().do(commands.upsert_node_pool, NodePool(name=name))
        with pytest.raises(LepaError, match="can not be deleted"):
            World().do(commands.delete_node_pool, name)
    with pytest.raises(LepaError, match="node pool not found"):
        World().do(commands.delete_node_pool, "ghost")
    with pytest.raises(LepaError, match="invalid name"):
        World().do(commands.upsert_node_pool, NodePool(name="a b"))


def test_settings_change_only_when_nobody_else_was_faster() -> None:
    world = World()
    spread = SchedulerConfiguration(scheduler_algorithm="spread")
    assert world.do(commands.set_scheduler_configuration, spread)
    assert not world.do(commands.set_scheduler_configuration, SchedulerConfiguration(), check_index=1)
    assert world.do(commands.set_scheduler_configuration, SchedulerConfiguration(), check_index=world.revision - 1)
    with pytest.raises(LepaError, match="invalid scheduler algorithm: random"):
        world.do(commands.set_scheduler_configuration, SchedulerConfiguration(scheduler_algorithm="random"))
