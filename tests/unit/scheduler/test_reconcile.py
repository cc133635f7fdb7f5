"""Wanted against existing: what a service or batch job needs changed (`lepa.scheduler.group_step`)."""

from typing import Any

import msgspec
import pytest
from tests.builders import (
    make_alloc,
    make_deployment,
    make_eval,
    make_group,
    make_job,
    make_node,
    make_task,
    make_task_state,
    make_update,
)
from tests.fake_view import FakeView, Ids

from lepa.kit.durations import HOUR, MINUTE, SECOND, parse_rfc3339, rfc3339
from lepa.model.allocation import (
    Allocation,
    AllocDeploymentStatus,
    AllocState,
    DesiredTransition,
    RescheduleEvent,
    RescheduleTracker,
)
from lepa.model.deployment import DeploymentState
from lepa.model.job import Job
from lepa.model.policies import DisconnectStrategy, ReschedulePolicy
from lepa.scheduler.changes import LOST, MIGRATING, NOT_NEEDED, NOT_NEEDED_RECONNECT, RESCHEDULED, UPDATING, Changes
from lepa.scheduler.reconcile import reconcile
from lepa.scheduler.rollout import CANCELLED_NEWER, CANCELLED_STOPPED

NOW = 100 * HOUR


def service(count: int = 3, *, env: str = "", job_type: str = "service", **group: Any) -> Job:
    fields: dict[str, Any] = {"reschedule_policy": ReschedulePolicy(), "tasks": (make_task(env={"v": env}),)}
    return make_job(groups=(make_group(count=count, **(fields | group)),), type=job_type)


def view_of(job: Job, *allocs: Allocation, nodes: int = 3) -> FakeView:
    return FakeView(*(make_node(f"node-{i}") for i in range(1, nodes + 1)), job=job, allocs=allocs)


def running(count: int, job: Job, **changes: Any) -> list[Allocation]:
    return [make_alloc(f"a{i}", job=job, index=i, **changes) for i in range(count)]


def changes_of(view: FakeView, **evaluation: Any) -> Changes:
    job = view.job("default", "web")
    return reconcile(make_eval(job=job, **evaluation), view, NOW, Ids())


def names(changes: Changes) -> list[str]:
    return [placement.name for placement in changes.placements]


def stops(changes: Changes) -> dict[str, str]:
    return {alloc_id: stop.description for alloc_id, stop in changes.stops.items()}


def failed(alloc_id: str = "a0", *, job: Job, at: int = NOW - HOUR, **changes: Any) -> Allocation:
    state = make_task_state(state="dead", failed=True, finished_at=rfc3339(at))
    return make_alloc(alloc_id, job=job, client_status="failed", task_states={"web": state}, **changes)


# Count.


def test_missing_allocations_get_the_lowest_free_names() -> None:
    job = service(4)
    view = view_of(job, make_alloc("a1", job=job, index=1))
    changes = changes_of(view)
    assert names(changes) == ["web.web[0]", "web.web[2]", "web.web[3]"]
    assert changes.desired["web"].place == 3
    assert changes.desired["web"].ignore == 1


def test_surplus_goes_from_the_highest_name() -> None:
    job = service(1)
    changes = changes_of(view_of(job, *running(3, job)))
    assert stops(changes) == {"a1": NOT_NEEDED, "a2": NOT_NEEDED}
    assert changes.desired["web"].stop == 2


def test_what_failed_under_a_low_name_stays_and_a_high_name_goes() -> None:
    """Seed 33: three of which [0] had failed, one wanted by the next version: its name is [0]."""
    old = service(3)
    view = view_of(old, failed(job=old), *running(3, old)[1:])
    view.put_job(service(1, env="new"))
    changes = changes_of(view)
    assert stops(changes) == {"a1": NOT_NEEDED, "a2": NOT_NEEDED}
    assert names(changes) == ["web.web[0]"]


def test_nothing_to_do_is_nothing() -> None:
    job = service(3)
    changes = changes_of(view_of(job, *running(3, job)))
    assert (changes.placements, changes.stops, changes.updates, changes.followups) == ([], {}, {}, [])


def test_a_stopped_job_stops_everything_and_its_deployment() -> None:
    job = service(2)
    view = view_of(job, *running(2, job), failed("f", job=job, index=1))
    view.deployments.append(make_deployment(job=job))
    view.put_job(make_job(groups=job.task_groups, stop=True))
    changes = changes_of(view)
    assert set(stops(changes)) == {"a0", "a1", "f"}
    assert changes.deployment_updates[0].status_description == CANCELLED_STOPPED


def test_a_purged_job_stops_everything_and_asks_for_nothing_more() -> None:
    """B011."""
    job = service(2)
    view = view_of(job, *running(2, job))
    view.purge_job(job)
    changes = reconcile(make_eval(job=job), view, NOW, Ids())
    assert set(stops(changes)) == {"a0", "a1"}
    assert changes.followups == []


def test_a_group_that_was_removed_is_stopped() -> None:
    job = service(1)
    other = make_alloc("b", job=make_job(groups=(make_group("old"),)))
    assert stops(changes_of(view_of(job, *running(1, job), other))) == {"b": NOT_NEEDED}


# Updates.


def test_a_change_of_count_updates_in_place() -> None:
    old = service(2)
    view = view_of(old, *running(2, old))
    new = view.put_job(service(3))
    changes = changes_of(view)
    assert {alloc.job_version for alloc in changes.updates.values()} == {new.version}
    assert names(changes) == ["web.web[2]"]
    assert stops(changes) == {}
    assert changes.desired["web"].in_place_update == 2


def test_without_a_strategy_everything_is_replaced_at_once() -> None:
    old = service(3)
    view = view_of(old, *running(3, old))
    view.put_job(service(3, env="new"))
    changes = changes_of(view)
    assert [p.replaces.description for p in changes.placements if p.replaces] == [UPDATING] * 3
    assert not any(p.rescheduled for p in changes.placements), "B002: an update is no failure"
    assert changes.stops == {}, "they stop only once their replacements are placed"
    assert changes.deployment is None


def test_a_node_that_no_longer_suits_means_replacement() -> None:
    old = service(1)
    view = view_of(old, *running(1, old))
    view.put_job(make_job(groups=old.task_groups, datacenters=("dc9",)))
    assert changes_of(view).desired["web"].destructive_update == 1


def test_a_failure_without_tries_left_is_replaced_by_a_new_version() -> None:
    policy = ReschedulePolicy(attempts=0, unlimited=False)
    old = service(1, reschedule_policy=policy)
    view = view_of(old, failed(job=old))
    assert changes_of(view).placements == []
    view.put_job(service(1, env="fixed", reschedule_policy=policy))
    assert [p.replaces is not None for p in changes_of(view).placements] == [True]


def test_rolling_update_goes_max_parallel_at_a_time() -> None:
    old = service(5, update=make_update(max_parallel=2))
    view = view_of(old, *running(5, old))
    new = view.put_job(service(5, env="new", update=make_update(max_parallel=2)))
    changes = changes_of(view)
    assert len(changes.placements) == 2
    assert changes.deployment is not None
    assert changes.deployment.task_groups["web"].desired_total == 5
    assert {p.deployment_id for p in changes.placements} == {changes.deployment.id}
    assert changes.desired["web"].ignore == 3
    view.deployments.append(changes.deployment)
    unproven = make_alloc("n0", job=new, deployment_id=changes.deployment.id)
    view.put_alloc(unproven)
    view.put_alloc(view.alloc("a0"), desired_status="stop")
    assert len(changes_of(view).placements) == 1, "one is not healthy yet"
    view.put_alloc(unproven, deployment_status=AllocDeploymentStatus(healthy=True))
    assert len(changes_of(view).placements) == 2


def test_what_is_missing_counts_against_max_parallel() -> None:
    """B004."""
    old = service(5, update=make_update(max_parallel=1))
    view = view_of(old, *running(3, old))
    view.put_job(service(5, env="new", update=make_update(max_parallel=1)))
    changes = changes_of(view)
    assert names(changes) == ["web.web[3]", "web.web[4]"]
    assert all(placement.replaces is None for placement in changes.placements)


def test_first_version_opens_a_deployment() -> None:
    job = service(2, update=make_update(canary=1, auto_promote=True))
    changes = changes_of(view_of(job))
    assert changes.deployment is not None
    assert changes.deployment.task_groups["web"].desired_canaries == 0, "there is nothing to compare canaries with"
    assert changes.deployment.status_description == "Deployment is running"
    assert changes.deployment.eval_priority == 50


def test_what_is_left_of_a_purged_job_of_that_name_does_not_count_as_started() -> None:
    job = msgspec.structs.replace(service(1, update=make_update()), create_index=50)
    left = [msgspec.structs.replace(alloc, desired_status="stop", create_index=20) for alloc in running(1, job)]
    assert changes_of(view_of(job, *left)).deployment is not None
    own = [msgspec.structs.replace(alloc, create_index=60) for alloc in left]
    assert changes_of(view_of(job, *own)).deployment is None


def test_a_newer_version_cancels_the_deployment_of_the_older() -> None:
    old = service(1, update=make_update())
    view = view_of(old, *running(1, old))
    view.deployments.append(make_deployment(job=old))
    view.put_job(service(1, env="new", update=make_update()))
    changes = changes_of(view)
    assert [update.status_description for update in changes.deployment_updates] == [CANCELLED_NEWER]
    assert changes.deployment is not None


def test_a_deployment_succeeds_when_all_are_healthy() -> None:
    job = service(1, update=make_update())
    healthy = AllocDeploymentStatus(healthy=True)
    view = view_of(job, *running(1, job, deployment_id="deployment-1"))
    view.deployments.append(make_deployment(job=job))
    assert changes_of(view).deployment_updates == []
    view.put_alloc(view.alloc("a0"), deployment_status=healthy)
    assert [update.status for update in changes_of(view).deployment_updates] == ["successful"]


@pytest.mark.parametrize("status", ["failed", "paused"])
def test_a_failed_or_paused_deployment_makes_nothing_new(status: str) -> None:
    job = service(3, update=make_update())
    view = view_of(job, *running(2, job))
    view.deployments.append(make_deployment(job=job, status=status))
    assert changes_of(view).placements == []


@pytest.mark.parametrize("status", ["failed", "paused"])
def test_what_is_lost_is_replaced_whatever_the_deployment(status: str) -> None:
    """B005; also when the first try found no room."""
    job = service(2, update=make_update())
    view = view_of(job, *running(2, job, deployment_id="deployment-1"))
    view.deployments.append(make_deployment(job=job, status=status))
    view.change_node("node-1", status="down")
    changes = changes_of(view)
    assert len(changes.placements) == 2
    assert set(stops(changes).values()) == {LOST}
    for alloc in view.all_allocs():
        view.put_alloc(alloc, desired_status="stop", client_status="lost", desired_description=LOST)
    again = changes_of(view)
    assert [p.previous.id for p in again.placements if p.previous] == ["a0", "a1"]


# Canaries.


def canary_view(count: int = 6, canaries: int = 6) -> tuple[FakeView, Job, Changes]:
    old = service(count, update=make_update(canary=canaries))
    view = view_of(old, *running(count, old))
    new = view.put_job(service(count, env="new", update=make_update(canary=canaries)))
    return view, new, changes_of(view)


def test_old_allocations_run_untouched_until_promotion() -> None:
    """B029."""
    view, new, changes = canary_view()
    assert [(p.name, p.canary) for p in changes.placements] == [(f"web.web[{i}]", True) for i in range(6)]
    assert changes.stops == {}
    assert changes.deployment is not None
    assert changes.deployment.status_description == "Deployment is running but requires manual promotion"
    assert changes.deployment.task_groups["web"].desired_canaries == 6
    view.deployments.append(changes.deployment)
    for number in range(6):
        status = AllocDeploymentStatus(canary=True, healthy=True)
        view.put_alloc(
            make_alloc(
                f"c{number}", job=new, index=number, deployment_id=changes.deployment.id, deployment_status=status
            )
        )
    waiting = changes_of(view)
    assert (waiting.placements, waiting.stops, waiting.deployment_updates) == ([], {}, [])
    view.promote()
    promoted = changes_of(view)
    assert set(stops(promoted)) == {f"a{i}" for i in range(6)}
    assert promoted.placements == []


def test_a_promoted_canary_takes_its_predecessors_place_also_where_more_are_wanted() -> None:
    """One becomes three: the canary is [0], so the older [0] goes, and [1] and [2] are new; no name is there twice."""
    old = service(1)
    view = view_of(old, *running(1, old))
    new = service(3, env="new", update=make_update(canary=1))
    view.put_job(new)
    changes = changes_of(view)
    assert changes.deployment is not None
    view.deployments.append(changes.deployment)
    new = view.job("default", "web") or new
    status = AllocDeploymentStatus(canary=True, healthy=True)
    view.put_alloc(make_alloc("c", job=new, deployment_id=changes.deployment.id, deployment_status=status))
    view.promote()
    promoted = changes_of(view)
    assert stops(promoted) == {"a0": NOT_NEEDED}
    assert names(promoted) == ["web.web[1]", "web.web[2]"]


def test_what_failed_under_a_name_that_a_newer_version_has_is_not_made_again() -> None:
    """Version 1 has taken [0] from one that had failed; version 2 wants two of them: [1] is new, not another [0]."""
    old = service(1)
    view = view_of(old, failed(job=old))
    newer = view.put_job(service(1, env="new"))
    view.put_alloc(make_alloc("b", job=newer))
    view.put_job(service(2, env="new"))
    assert names(changes_of(view)) == ["web.web[1]"]


def test_auto_promotion_is_told_in_the_description() -> None:
    """B024: a group without canaries takes part and does not hold the promotion up."""
    update = make_update(canary=1, auto_promote=True)
    task = (make_task(env={"v": "new"}),)
    old = make_job(groups=(make_group("a", update=update), make_group("b", update=make_update())))
    view = FakeView(make_node("node-1"), job=old)
    for name in ("a", "b"):
        view.put_alloc(make_alloc(name, job=make_job(groups=(make_group(name),))))
    view.put_job(
        make_job(groups=(make_group("a", update=update, tasks=task), make_group("b", update=make_update(), tasks=task)))
    )
    changes = changes_of(view)
    assert changes.deployment is not None
    assert changes.deployment.status_description == "Deployment is running pending automatic promotion"
    assert {p.group.name: p.canary for p in changes.placements} == {"a": True, "b": False}


def test_a_canary_that_was_lost_and_found_no_room_is_made_again_once() -> None:
    """Seed 372: as a canary, and not a second time in the place of an allocation that should have been replaced."""
    view, new, changes = canary_view(1, 1)
    assert changes.deployment is not None
    view.deployments.append(changes.deployment)
    lost = {"desired_status": "stop", "client_status": "lost", "desired_description": LOST}
    canary = AllocDeploymentStatus(canary=True)
    view.put_alloc(make_alloc("c", job=new, deployment_id=changes.deployment.id, deployment_status=canary, **lost))
    for alloc in view.job_allocations("default", "web"):
        view.put_alloc(alloc, **lost)
    again = changes_of(view)
    assert sorted((p.name, p.canary, p.job.version) for p in again.placements) == [
        ("web.web[0]", False, 0),
        ("web.web[0]", True, 1),
    ]


def test_canaries_of_an_older_deployment_are_stopped() -> None:
    view, new, changes = canary_view(1, 1)
    assert changes.deployment is not None
    view.deployments.append(changes.deployment)
    status = AllocDeploymentStatus(canary=True)
    view.put_alloc(make_alloc("c", job=new, deployment_id=changes.deployment.id, deployment_status=status))
    view.put_job(service(1, env="newer", update=make_update(canary=1)))
    changes = changes_of(view)
    assert stops(changes) == {"c": NOT_NEEDED}
    assert [p.canary for p in changes.placements] == [True]


def test_canaries_of_a_failed_deployment_are_stopped_and_not_made_again() -> None:
    view, new, changes = canary_view(1, 1)
    assert changes.deployment is not None
    view.deployments.append(changes.deployment)
    status = AllocDeploymentStatus(canary=True)
    view.put_alloc(make_alloc("c", job=new, deployment_id=changes.deployment.id, deployment_status=status))
    view.set_deployment(changes.deployment.id, status="failed")
    changes = changes_of(view)
    assert stops(changes) == {"c": NOT_NEEDED}
    assert changes.placements == []


def test_while_canaries_wait_a_lost_allocation_is_replaced_by_its_own_version() -> None:
    view, _, changes = canary_view(2, 1)
    assert changes.deployment is not None
    view.deployments.append(changes.deployment)
    view.put_alloc(view.alloc("a1"), node_id="gone")
    placed = [p for p in changes_of(view).placements if not p.canary]
    assert [(p.name, p.job.version) for p in placed] == [("web.web[1]", 0)]
    assert placed[0].deployment_id == ""


def test_a_lost_canary_is_made_again_as_one() -> None:
    view, new, changes = canary_view(1, 1)
    assert changes.deployment is not None
    view.deployments.append(changes.deployment)
    status = AllocDeploymentStatus(canary=True)
    view.put_alloc(
        make_alloc("c", job=new, node_id="gone", deployment_id=changes.deployment.id, deployment_status=status)
    )
    changes = changes_of(view)
    assert [(p.canary, p.previous is not None) for p in changes.placements] == [(True, True)]


# Failures.


def test_a_failure_is_replaced_now_or_asked_for_later() -> None:
    """B016: every failed group gets its follow-up."""
    job = make_job(groups=tuple(make_group(name, reschedule_policy=ReschedulePolicy()) for name in ("a", "b", "c")))
    allocs = []
    for name, at in (("a", NOW - HOUR), ("b", NOW), ("c", NOW - SECOND)):
        allocs.append(failed(name, job=make_job(groups=(make_group(name),)), at=at))
    changes = changes_of(view_of(job, *allocs))
    assert [(p.group.name, p.rescheduled) for p in changes.placements] == [("a", True)]
    assert changes.placements[0].replaces is not None
    assert changes.placements[0].replaces.description == RESCHEDULED
    assert {alloc_id: alloc.followup_eval_id != "" for alloc_id, alloc in changes.updates.items()} == {
        "b": True,
        "c": True,
    }
    followup = changes.followups[0]
    assert followup.status_description == "created for delayed rescheduling"
    assert parse_rfc3339(followup.wait_until) == NOW + 30 * SECOND


def test_near_follow_ups_share_one_evaluation() -> None:
    job = service(3)
    allocs = [failed(f"a{i}", job=job, index=i, at=NOW + i * 4 * SECOND) for i in range(3)]
    changes = changes_of(view_of(job, *allocs))
    followups = [changes.updates[f"a{i}"].followup_eval_id for i in range(3)]
    assert followups[0] == followups[1] != followups[2]


def test_superseded_failures_do_not_count_twice() -> None:
    """B007."""
    job = service(1)
    chain = [failed(f"f{i}", job=job, desired_status="stop", next_allocation="x") for i in range(3)]
    assert changes_of(view_of(job, *chain, make_alloc("a", job=job))).placements == []


# Nodes.


def test_migration_stops_here_and_places_elsewhere() -> None:
    job = service(1)
    moving = make_alloc("a", job=job, desired_transition=DesiredTransition(migrate=True))
    changes = changes_of(view_of(job, moving))
    assert stops(changes) == {"a": MIGRATING}
    assert [(p.name, p.rescheduled) for p in changes.placements] == [("web.web[0]", False)]
    assert changes.desired["web"].migrate == 1


def test_drained_batch_work_is_stopped_without_a_replacement_and_placed_again_later() -> None:
    """B034, B035."""
    job = service(1, job_type="batch")
    transition = DesiredTransition(migrate=True, migrate_disable_placement=True)
    view = view_of(job, make_alloc("a", job=job, desired_transition=transition))
    changes = changes_of(view)
    assert stops(changes) == {"a": MIGRATING}
    assert changes.placements == []
    killed = {"web": make_task_state("Killing", "Killed")}
    view.put_alloc(view.alloc("a"), desired_status="stop", client_status="complete", task_states=killed)
    assert names(changes_of(view)) == ["web.web[0]"]


def test_finished_batch_work_is_not_run_again_when_its_node_drains() -> None:
    """B033."""
    job = service(1, job_type="batch")
    done = make_alloc("a", job=job, client_status="complete", desired_transition=DesiredTransition(migrate=True))
    changes = changes_of(view_of(job, done))
    assert (changes.placements, changes.stops) == ([], {})


def test_a_lost_allocation_keeps_its_reschedule_history() -> None:
    """B017: the replacement follows the lost one, whose tracker the placer copies."""
    job = service(1)
    tracker = RescheduleTracker(events=(RescheduleEvent(prev_alloc_id="x"),))
    changes = changes_of(view_of(job, make_alloc("a", job=job, node_id="gone", reschedule_tracker=tracker)))
    assert changes.placements[0].previous is not None
    assert changes.placements[0].previous.reschedule_tracker == tracker
    assert changes.stops["a"].client_status == "lost"


def disconnect_view(**strategy: Any) -> tuple[FakeView, Job]:
    job = service(1, disconnect=DisconnectStrategy(**({"lost_after": 10 * MINUTE} | strategy)))
    view = view_of(job, make_alloc("a", job=job))
    view.change_node("node-1", status="disconnected")
    return view, job


def test_a_disconnected_allocation_becomes_unknown_and_gets_a_replacement() -> None:
    view, job = disconnect_view()
    changes = changes_of(view)
    unknown = changes.updates["a"]
    assert (unknown.client_status, unknown.desired_status) == ("unknown", "run")
    assert unknown.alloc_states[-1] == AllocState(value="unknown", time=rfc3339(NOW))
    assert changes.followups[0].triggered_by == "max-disconnect-timeout"
    assert names(changes) == ["web.web[0]"]
    view.put_alloc(unknown)
    view.put_alloc(make_alloc("b", job=job, node_id="node-2", previous_allocation="a"))
    assert changes_of(view).placements == [], "it is replaced once"


def test_without_room_the_replacement_is_still_wanted() -> None:
    view, _ = disconnect_view()
    view.put_alloc(changes_of(view).updates["a"])
    assert names(changes_of(view)) == ["web.web[0]"]


def test_without_replacement_the_original_goes_on() -> None:
    """B039, B044: nothing new is made, and the follow-up is forgotten."""
    view, _ = disconnect_view(replace=False)
    view.put_alloc(changes_of(view).updates["a"])
    assert changes_of(view).placements == []
    view.change_node("node-1", status="ready")
    assert changes_of(view).placements == []
    view.put_alloc(view.alloc("a"), client_status="running")
    changes = changes_of(view)
    assert (changes.placements, changes.stops) == ([], {})
    back = changes.updates["a"]
    assert (back.alloc_states[-1].value, back.followup_eval_id) == ("running", "")
    view.put_alloc(back)
    assert changes_of(view).updates == {}
    view.put_job(service(1, env="new"))
    assert changes_of(view).desired["web"].destructive_update == 1, "B040"


@pytest.mark.parametrize(("strategy", "stopped"), [("keep_original", "b"), ("keep_replacement", "a")])
def test_of_original_and_replacement_one_goes(strategy: str, stopped: str) -> None:
    view, job = disconnect_view(reconcile=strategy)
    view.put_alloc(changes_of(view).updates["a"], client_status="running")
    view.put_alloc(make_alloc("b", job=job, node_id="node-2", previous_allocation="a"))
    view.change_node("node-1", status="ready")
    changes = changes_of(view)
    assert stops(changes) == {stopped: NOT_NEEDED_RECONNECT}
    assert changes.placements == []


def test_after_its_time_an_unknown_allocation_is_lost() -> None:
    view, _ = disconnect_view()
    states = (AllocState(value="unknown", time=rfc3339(NOW - HOUR)),)
    view.put_alloc(view.alloc("a"), client_status="unknown", alloc_states=states)
    changes = changes_of(view)
    assert (changes.stops["a"].client_status, names(changes)) == ("lost", ["web.web[0]"])


def test_a_client_that_stops_by_itself_is_waited_for() -> None:
    job = service(1, disconnect=DisconnectStrategy(stop_on_client_after=HOUR))
    view = view_of(job, make_alloc("a", job=job))
    view.change_node("node-1", status="down", status_updated_at=NOW // SECOND)
    changes = changes_of(view)
    lost = changes.updates["a"]
    assert (lost.client_status, lost.desired_status, changes.placements) == ("lost", "stop", [])
    view.put_alloc(lost)
    assert changes_of(view).placements == []
    due = changes_of(view, eval_id=lost.followup_eval_id)
    assert [p.previous.id for p in due.placements if p.previous] == ["a"]


def test_deployment_progress_is_read_from_allocations_not_from_counts() -> None:
    job = service(1, update=make_update())
    view = view_of(job, *running(1, job))
    state = DeploymentState(desired_total=1, healthy_allocs=1)
    view.deployments.append(make_deployment(job=job, task_groups={"web": state}))
    assert changes_of(view).deployment_updates == []
