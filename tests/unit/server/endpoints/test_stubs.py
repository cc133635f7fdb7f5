"""Allocations in lists."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_job, make_task_state
from tests.world import World

from lepa.server.endpoints.stubs import alloc_stub


def test_a_stub_knows_its_jobs_type_and_leaves_out_what_is_not_asked_for() -> None:
    world = World()
    job = world.job(make_job(type="batch"))
    alloc = world.put_alloc(make_alloc(job=job, task_states={"web": make_task_state("Started")}))
    stub = alloc_stub(world.snapshot, alloc)
    assert (stub.job_type, list(stub.task_states), stub.allocated_resources) == ("batch", ["web"], None)
    stub = alloc_stub(world.snapshot, alloc, resources=True, task_states=False)
    assert (stub.task_states, stub.allocated_resources) == ({}, alloc.allocated_resources)
    assert alloc_stub(world.snapshot, replace(alloc, job_id="gone")).job_type == ""
