"""What an accepted plan writes."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_job, make_service, make_task_state
from tests.world import World

from lepa.kit.durations import MINUTE, parse_rfc3339
from lepa.model.allocation import AllocDeploymentStatus, AllocState
from lepa.model.deployment import DeploymentState
from lepa.model.job import Job
from lepa.model.plan import AllocationStop, DeploymentStatusUpdate, Plan
from lepa.state import keys
from lepa.state.commands.plans import apply_plan, items_max
from lepa.store.protocol import Compare, Limits


def test_a_placement_is_stored_without_its_job_and_with_its_version() -> None:
    world = World()
    job = world.job(make_job())
    world.do(apply_plan, Plan(eval_id="e", job=job, updates=(replace(make_alloc(job=job), job=job),)))
    alloc = world.alloc("alloc-1")
    assert (alloc.job, alloc.job_version, alloc.alloc_modify_index) == (None, 0, world.revision)
    assert alloc.create_time == world.now_ns


def test_nothing_is_placed_for_a_job_that_changed_meanwhile() -> None:
    world = World()
    job = world.job(make_job())
    draft = world.draft()
    apply_plan(draft, Plan(job=job, updates=(make_alloc(job=job),)))
    assert Compare(keys.job_key("default", "web"), modified=job.modify_index) in draft.txn().compares


def test_an_update_keeps_what_the_node_has_said_meanwhile() -> None:
    world = World()
    job = world.job(make_job())
    planned = world.put_alloc(make_alloc(job=job, client_status="pending"))
    world.put_alloc(replace(planned, client_status="running", task_states={"web": make_task_state("Started")}))
    world.do(apply_plan, Plan(job=job, updates=(replace(planned, job_version=3),)))
    alloc = world.alloc("alloc-1")
    assert (alloc.client_status, alloc.job_version, list(alloc.task_states)) == ("running", 3, ["web"])


def test_an_update_that_settles_what_became_of_an_allocation_has_its_way() -> None:
    world = World()
    job = world.job(make_job())
    planned = world.put_alloc(make_alloc(job=job))
    unknown = replace(planned, client_status="unknown", alloc_states=(AllocState(value="unknown"),))
    world.do(apply_plan, Plan(job=job, updates=(unknown,)))
    assert world.alloc("alloc-1").client_status == "unknown"


def test_a_new_deployment_asks_anew_for_health() -> None:
    world = World()
    job = world.job(make_job())
    old = world.put_alloc(
        make_alloc(job=job, deployment_id="old", deployment_status=AllocDeploymentStatus(healthy=True))
    )
    world.put_deployment(make_deployment("new"))
    world.do(apply_plan, Plan(job=job, updates=(replace(old, deployment_id="new", deployment_status=None),)))
    assert world.alloc("alloc-1").deployment_status is None
    assert world.deployment("new").task_groups["web"].placed_allocs == 1


def test_a_stop_says_why_and_what_became_of_it() -> None:
    world = World()
    job = world.job(make_job())
    world.put_alloc(make_alloc(job=job))
    world.do(lambda draft: draft.overwrite("services/default/web/service-1", make_service()))
    stop = AllocationStop(alloc_id="alloc-1", description="alloc is lost", client_status="lost")
    world.do(apply_plan, Plan(job=job, stops=(stop, AllocationStop(alloc_id="unknown"))))
    alloc = world.alloc("alloc-1")
    assert (alloc.desired_status, alloc.desired_description, alloc.client_status) == ("stop", "alloc is lost", "lost")
    assert [state.value for state in alloc.alloc_states] == ["lost"]
    assert list(world.snapshot.services()) == []


def test_what_has_ended_before_its_node_was_lost_is_not_lost() -> None:
    """The plan was made before the node's last report came in."""
    world = World()
    job = world.job(make_job())
    world.put_alloc(make_alloc(job=job, client_status="complete"))
    world.do(apply_plan, Plan(job=job, stops=(AllocationStop(alloc_id="alloc-1", client_status="lost"),)))
    alloc = world.alloc("alloc-1")
    assert (alloc.desired_status, alloc.client_status, list(alloc.alloc_states)) == ("stop", "complete", [])


def test_an_evicted_job_is_looked_at() -> None:
    world = World()
    low, high = world.job(make_job("low")), world.job(make_job("high"))
    world.put_alloc(make_alloc("victim", job=low))
    stop = AllocationStop(alloc_id="victim", desired_status="evict", preempted_by="winner")
    world.do(apply_plan, Plan(job=high, stops=(stop,), updates=(make_alloc("winner", job=high),)))
    assert world.alloc("victim").preempted_by_allocation == "winner"
    assert world.evaluations("low")[-1] == ("preemption", "pending")


def test_a_replacement_is_linked_both_ways() -> None:
    world = World()
    job = world.job(make_job())
    world.put_alloc(make_alloc("old", job=job))
    stop = AllocationStop(alloc_id="old", description="moved")
    world.do(apply_plan, Plan(job=job, stops=(stop,), updates=(make_alloc("new", job=job, previous_allocation="old"),)))
    old = world.alloc("old")
    assert (old.next_allocation, old.desired_status) == ("new", "stop")


def test_placements_are_counted_and_start_the_progress_deadline() -> None:
    world = World()
    job = world.job(make_job())
    wanted = make_deployment(task_groups={"web": DeploymentState(desired_total=2, progress_deadline=10 * MINUTE)})
    canary = make_alloc("a", job=job, deployment_id=wanted.id, deployment_status=AllocDeploymentStatus(canary=True))
    world.do(apply_plan, Plan(job=job, deployment=wanted, updates=(canary,)))
    world.do(apply_plan, Plan(job=job, deployment=wanted, updates=(make_alloc("b", job=job, deployment_id=wanted.id),)))
    state = world.deployment(wanted.id).task_groups["web"]
    assert (state.placed_allocs, state.placed_canaries) == (2, ("a",))
    assert parse_rfc3339(state.require_progress_by) == world.now_ns + 10 * MINUTE


def test_a_successful_deployment_makes_its_version_stable() -> None:
    world = World()
    job: Job = world.job(make_job())
    deployment = world.put_deployment(make_deployment(job=job))
    done = DeploymentStatusUpdate(deployment_id=deployment.id, status="successful", status_description="done")
    world.do(apply_plan, Plan(job=job, deployment_updates=(done,)))
    version = world.snapshot.job_version("default", "web", 0)
    assert version is not None
    assert version.stable
    again = DeploymentStatusUpdate(deployment_id=deployment.id, status="cancelled", status_description="late")
    world.do(apply_plan, Plan(job=job, deployment_updates=(again,)))
    assert world.deployment(deployment.id).status == "successful"


def test_plans_are_cut_to_what_a_store_takes() -> None:
    assert items_max(Limits(operations_max=128, bytes_max=1_500_000)) == 23
    assert items_max(Limits(operations_max=4, bytes_max=10)) == 1
