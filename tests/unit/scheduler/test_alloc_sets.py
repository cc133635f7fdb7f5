"""Allocations sorted into what must be done about them."""

from typing import Any

import pytest
from tests.builders import make_alloc, make_deployment, make_group, make_job, make_node, make_task_state

from lepa.kit.durations import HOUR, MINUTE, SECOND, rfc3339
from lepa.model.allocation import Allocation, AllocState, DesiredTransition
from lepa.model.node import Node
from lepa.model.policies import DisconnectStrategy, ReschedulePolicy
from lepa.scheduler.alloc_sets import (
    AllocSets,
    AllocSorter,
    NameIndex,
    index_of,
    name_of,
    ran_to_completion,
    surplus_first,
)

NOW = 100 * HOUR
GRACE = DisconnectStrategy(lost_after=10 * MINUTE)


def sort(
    *allocs: Allocation,
    node: Node | None = None,
    job_type: str = "service",
    version: int = 0,
    deployment_status: str = "",
    evaluation_id: str = "eval-9",
    **group: Any,
) -> AllocSets:
    made = make_group(**({"reschedule_policy": ReschedulePolicy()} | group))
    job = make_job(groups=(made,), type=job_type, version=version)
    deployment = make_deployment(job=job, status=deployment_status) if deployment_status else None
    sorter = AllocSorter(job, lambda _: node, deployment, evaluation_id, NOW)
    return sorter.sort(made, allocs)


def where(sets: AllocSets) -> dict[str, list[str]]:
    """Ids by the name of their set, empty sets left out."""
    found = {}
    for name, allocs in vars(sets).items():
        if allocs:
            found[name] = [item.id if isinstance(item, Allocation) else item[0].id for item in allocs]
    return found


def failed(finished_at: int = NOW, **changes: Any) -> Allocation:
    state = make_task_state(state="dead", failed=True, finished_at=rfc3339(finished_at))
    return make_alloc("a", client_status="failed", task_states={"web": state}, **changes)


def unknown(since: int, **changes: Any) -> Allocation:
    states = (AllocState(value="unknown", time=rfc3339(since)),)
    return make_alloc("a", client_status="unknown", alloc_states=states, **changes)


READY, DOWN, AWAY = make_node(), make_node(status="down"), make_node(status="disconnected")


@pytest.mark.parametrize(
    ("alloc", "node", "expected"),
    [
        (make_alloc("a"), READY, {"live": ["a"]}),
        (make_alloc("a", client_status="pending"), READY, {"live": ["a"]}),
        (make_alloc("a", desired_transition=DesiredTransition(migrate=True)), READY, {"migrating": ["a"]}),
        (make_alloc("a"), DOWN, {"lost": ["a"]}),
        (make_alloc("a"), None, {"lost": ["a"]}),
        (make_alloc("a", desired_status="stop"), DOWN, {"lost_stopped": ["a"]}),
        (make_alloc("a", desired_status="stop"), READY, {}),
        (make_alloc("a", client_status="complete"), READY, {}),
        (make_alloc("a", client_status="lost"), READY, {}),
        (failed(finished_at=NOW - HOUR), READY, {"failed": ["a"]}),
        (failed(), READY, {"failed_later": ["a"]}),
        (failed(followup_eval_id="eval-9"), READY, {"failed": ["a"]}),
        (failed(followup_eval_id="eval-8"), READY, {"settled": ["a"]}),
        (failed(desired_transition=DesiredTransition(force_reschedule=True)), READY, {"failed": ["a"]}),
        (failed(next_allocation="b"), READY, {}),
    ],
)
def test_service_allocations(alloc: Allocation, node: Node | None, expected: dict[str, list[str]]) -> None:
    assert where(sort(alloc, node=node)) == expected


@pytest.mark.parametrize(
    ("alloc", "version", "expected"),
    [
        (make_alloc("a", client_status="complete"), 0, {"settled": ["a"]}),
        (make_alloc("a", client_status="complete"), 1, {}),
        (make_alloc("a", client_status="complete", desired_status="stop"), 0, {"settled": ["a"]}),
        (
            make_alloc(
                "a",
                client_status="complete",
                desired_status="stop",
                task_states={"web": make_task_state("Killing", "Killed")},
            ),
            0,
            {},
        ),
        (failed(finished_at=NOW - HOUR), 1, {}),
        (failed(finished_at=NOW - HOUR), 0, {"failed": ["a"]}),
    ],
)
def test_batch_work_that_is_done_stays_done(alloc: Allocation, version: int, expected: dict[str, list[str]]) -> None:
    assert where(sort(alloc, node=READY, job_type="batch", version=version)) == expected


def test_no_tries_left_counts_and_is_left_alone() -> None:
    policy = ReschedulePolicy(attempts=0, unlimited=False)
    assert where(sort(failed(0), node=READY, reschedule_policy=policy)) == {"settled": ["a"]}


def test_allocations_of_a_failed_deployment_wait_for_permission() -> None:
    alloc = failed(0, deployment_id="deployment-1")
    assert where(sort(alloc, node=READY, deployment_status="failed")) == {"settled": ["a"]}
    assert where(sort(alloc, node=READY, deployment_status="running")) == {"failed": ["a"]}
    allowed = failed(0, deployment_id="deployment-1", desired_transition=DesiredTransition(reschedule=True))
    assert where(sort(allowed, node=READY, deployment_status="failed")) == {"failed": ["a"]}


@pytest.mark.parametrize(
    ("alloc", "node", "group", "expected"),
    [
        (make_alloc("a"), AWAY, {}, {"lost": ["a"]}),
        (make_alloc("a"), AWAY, {"disconnect": GRACE}, {"unknown": ["a"], "newly_disconnected": ["a"]}),
        (make_alloc("a"), AWAY, {"max_client_disconnect": HOUR}, {"unknown": ["a"], "newly_disconnected": ["a"]}),
        (make_alloc("a", client_status="pending"), AWAY, {"disconnect": GRACE}, {"lost": ["a"]}),
        (unknown(NOW - MINUTE), AWAY, {"disconnect": GRACE}, {"unknown": ["a"]}),
        (unknown(NOW - HOUR), AWAY, {"disconnect": GRACE}, {"lost": ["a"]}),
        (unknown(NOW - MINUTE), None, {"disconnect": GRACE}, {"lost": ["a"]}),
        (unknown(NOW - MINUTE), READY, {"disconnect": GRACE}, {"away": ["a"]}),
    ],
)
def test_disconnected_nodes(
    alloc: Allocation, node: Node | None, group: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    assert where(sort(alloc, node=node, **group)) == expected


def test_replace_false_means_no_replacement() -> None:
    """B042."""
    strategy = DisconnectStrategy(lost_after=HOUR, replace=False)
    assert where(sort(make_alloc("a"), node=AWAY, disconnect=strategy))["away"] == ["a"]


def test_no_reschedule_attempts_mean_no_replacement_while_away() -> None:
    """B041."""
    policy = ReschedulePolicy(attempts=0, unlimited=False)
    assert "away" in where(sort(make_alloc("a"), node=AWAY, disconnect=GRACE, reschedule_policy=policy))


def test_an_allocation_that_came_back_is_told_by_its_last_state() -> None:
    states = (AllocState(value="unknown", time=rfc3339(NOW)),)
    assert where(sort(make_alloc("a", alloc_states=states), node=READY)) == {"reconnecting": ["a"]}


def test_a_client_that_stops_by_itself_gets_its_time() -> None:
    strategy = DisconnectStrategy(stop_on_client_after=HOUR)
    gone = make_node(status="down", status_updated_at=(NOW - MINUTE) // SECOND)
    sets = sort(make_alloc("a"), node=gone, disconnect=strategy)
    assert sets.lost_later[0][1] == NOW - MINUTE + HOUR
    states = (AllocState(value="lost", time=rfc3339(NOW - MINUTE)),)
    waiting = make_alloc("a", desired_status="stop", client_status="lost", alloc_states=states)
    assert where(sort(waiting, node=gone, disconnect=strategy)) == {"settled": ["a"]}
    late = make_alloc(
        "a", desired_status="stop", client_status="lost", alloc_states=(AllocState(value="lost", time=rfc3339(0)),)
    )
    assert where(sort(late, node=gone, disconnect=strategy)) == {}


def test_killed_work_did_not_run_to_completion() -> None:
    assert ran_to_completion(make_alloc(client_status="complete"))
    assert not ran_to_completion(make_alloc(client_status="failed"))


def test_names_are_the_lowest_free_ones() -> None:
    names = NameIndex("web", "g", [name_of("web", "g", 0), name_of("web", "g", 2)])
    assert names.take() == "web.g[1]"
    assert not names.claim("web.g[2]")
    assert names.claim("web.g[3]")
    assert names.take() == "web.g[4]"
    assert index_of("web.g[12]") == 12
    assert index_of("odd") == -1


def test_doubles_of_newer_ones_and_high_names_go_first() -> None:
    allocs = [
        make_alloc("old-0", index=0),
        make_alloc("new-0", index=0, job_version=1),
        make_alloc("old-1", index=1),
        make_alloc("moving", index=0),
    ]
    order = [alloc.id for alloc in surplus_first(allocs, 1, {"moving"})]
    assert order == ["moving", "old-0", "old-1", "new-0"]
