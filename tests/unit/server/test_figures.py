"""Figures of the state under Nomad's names."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_group, make_job, make_metric
from tests.world import World

from lepa.model.policies import PeriodicConfig
from lepa.server.figures import job_labels, state_figures
from lepa.state.commands.children import launch_periodic


def figures(world: World, **options: bool) -> dict[tuple[str, str], float]:
    """By name and the job that the labels name."""
    found = state_figures(world.snapshot, **options)
    return {(name, labels.get("job", "")): value for name, value, labels in found}


def test_jobs_are_counted_by_status_and_their_allocations_by_state() -> None:
    world = World()
    job = world.job(make_job(count=2))
    world.put_alloc(make_alloc("a", job=job))
    world.put_alloc(make_alloc("b", job=job, client_status="pending"))
    found = figures(world)
    assert found["nomad.nomad.job_status.running", ""] == 1
    assert found["nomad.nomad.job_summary.running", "web"] == 1
    assert found["nomad.nomad.job_summary.starting", "web"] == 1
    assert found["nomad.nomad.job_summary.lost", "web"] == 0
    assert found["nomad.nomad.state.snapshotIndex", ""] == world.snapshot.index


def test_labels_name_the_group_and_what_made_a_child() -> None:
    world = World()
    world.job(make_job("nightly", type="batch", periodic=PeriodicConfig(specs=("@daily",))))
    world.do(launch_periodic, "default", "nightly", 1_770_000_000)
    child = world.snapshot.job("default", "nightly/periodic-1770000000")
    assert child is not None
    labels = job_labels(child)
    assert (labels["parent_id"], labels["periodic_id"], labels["exported_job"]) == ("nightly", "1770000000", child.id)
    dispatched = replace(child, id="nightly/dispatch-5-ab", dispatched=True)
    assert job_labels(dispatched)["dispatch_id"] == "5-ab"
    assert figures(world)["nomad.nomad.job_summary.children.pending", "nightly"] == 1


def test_summaries_of_dispatched_jobs_may_be_left_out() -> None:
    world = World()
    world.job(make_job("a/dispatch-1-x", dispatched=True))
    assert ("nomad.nomad.job_summary.queued", "a/dispatch-1-x") in figures(world)
    assert ("nomad.nomad.job_summary.queued", "a/dispatch-1-x") not in figures(world, dispatched=False)


def test_what_waits_for_room_is_summed() -> None:
    world = World()
    world.job(make_job(groups=(make_group("web"), make_group("db"))))
    waiting = make_eval(
        "b", status="blocked", failed_tg_allocs={"web": make_metric()}, queued_allocations={"web": 3, "db": 1}
    )
    world.put_eval(waiting)
    found = figures(world)
    assert found["nomad.nomad.blocked_evals.cpu", ""] == 300
    assert found["nomad.nomad.blocked_evals.job.memory", "web"] == 3 * 128
    world.put_eval(make_eval("orphan", job=make_job("gone"), status="blocked", failed_tg_allocs={"x": make_metric()}))
    assert figures(world)["nomad.nomad.blocked_evals.job.cpu", "gone"] == 0
