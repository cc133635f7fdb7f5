"""Removing what nobody needs."""

from tests.builders import make_alloc, make_deployment, make_eval, make_job, make_node, make_service
from tests.world import World

from lepa.state.commands.garbage import Garbage, collect
from lepa.store.protocol import Limits


def test_everything_named_is_removed_and_what_is_gone_is_no_matter() -> None:
    world = World()
    job = world.job(make_job())
    world.node(make_node())
    world.put_alloc(make_alloc(job=job))
    world.put_eval(make_eval(job=job))
    world.put_deployment(make_deployment(job=job))
    world.do(lambda draft: draft.overwrite("services/default/web/service-1", make_service()))
    evaluations = tuple(evaluation.id for evaluation in world.snapshot.evaluations())
    garbage = Garbage(
        evaluations, ("alloc-1", "unknown"), (("default", "web"), ("default", "x")), ("deployment-1",), ("node-1",)
    )
    world.do(collect, garbage)
    names = ("jobs", "job_versions", "evals", "allocs", "deployments", "nodes", "services")
    assert [len(world.snapshot.tables[name]) for name in names] == [0] * len(names)


def test_large_garbage_goes_in_parts_allocations_first() -> None:
    garbage = Garbage(evaluations=("e1", "e2", "e3"), allocations=("a1", "a2", "a3"), jobs=(("default", "web"),))
    parts = list(garbage.parts(Limits(operations_max=4, bytes_max=1)))
    assert [part.allocations for part in parts] == [("a1", "a2"), ("a3",), (), (), ()]
    assert parts[-1].jobs == (("default", "web"),)
    assert Garbage().empty
    assert list(Garbage().parts(Limits(4, 1))) == []
