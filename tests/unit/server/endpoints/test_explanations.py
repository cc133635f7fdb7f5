"""Why a job's allocations are where they are, from one snapshot."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_metric, make_node
from tests.world import World

from lepa.model.errors import LepaError
from lepa.rpc.requests import JobExplainRequest
from lepa.server.endpoints.explanations import explain_job
from lepa.state.commands.evaluations import end_evaluation


def test_every_group_is_explained_with_what_was_recorded() -> None:
    world = World()
    world.node(make_node("n1"))
    job = world.job(make_job(groups=(make_group("web"), make_group("db"))))
    world.put_alloc(make_alloc("a", job=job, node_id="n1", metrics=make_metric("n1")))
    evaluation = world.snapshot.job_evaluations("default", "web")[0]
    world.do(
        end_evaluation,
        replace(evaluation, status="complete", failed_tg_allocs={"db": make_metric()}, snapshot_index=3),
    )
    found = explain_job(world.snapshot, JobExplainRequest(id="web"), world.now_ns)
    assert found is not None
    assert [(group.name, group.nodes[0].running) for group in found.groups] == [("web", 1), ("db", 0)]
    assert [(each.group, each.allocation_id) for each in found.recorded] == [("db", ""), ("web", "a")]
    assert found.index == world.snapshot.index


def test_one_group_may_be_asked_for() -> None:
    world = World()
    world.job(make_job(groups=(make_group("web"), make_group("db"))))
    found = explain_job(world.snapshot, JobExplainRequest(id="web", group="db"), world.now_ns)
    assert found is not None
    assert [group.name for group in found.groups] == ["db"]
    with pytest.raises(LepaError, match='job "web" has no group "x"; it has web, db'):
        explain_job(world.snapshot, JobExplainRequest(id="web", group="x"), world.now_ns)


def test_a_job_that_is_not_there_has_no_explanation() -> None:
    assert explain_job(World().snapshot, JobExplainRequest(id="web"), 1) is None
