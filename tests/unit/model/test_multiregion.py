"""One job over several regions."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_job

from lepa.model.job import Job
from lepa.model.multiregion import GOING_ON, UNKNOWN, copies, in_region, next_act, region_names, same_roll_out
from lepa.model.policies import Multiregion, MultiregionRegion, MultiregionStrategy
from lepa.model.wire import from_builtins

NAMES = ("north", "south", "east", "west")


def job(*, max_parallel: int = 0, on_failure: str = "", names: tuple[str, ...] = NAMES, **fields: Any) -> Job:
    block = Multiregion(
        MultiregionStrategy(max_parallel, on_failure), tuple(MultiregionRegion(name=name) for name in names)
    )
    return make_job(multiregion=block, **fields)


def test_each_region_gets_a_copy_with_its_own_values() -> None:
    raw = {
        "ID": "docs",
        "Datacenters": ["*"],
        "Meta": {"first": "job", "second": "job"},
        "TaskGroups": [{"Name": "worker", "Count": 0}, {"Name": "controller", "Count": 1}],
        "Multiregion": {
            "Regions": [
                {"Name": "west", "Count": 2, "Datacenters": ["west-1"], "Meta": {"first": "west"}},
                {"Name": "east", "Count": 5, "NodePool": "big"},
            ]
        },
    }
    found = copies(from_builtins(raw, Job))
    assert list(found) == ["west", "east"]
    west, east = found["west"], found["east"]
    assert [group.count for group in west.task_groups] == [2, 1]
    assert [group.count for group in east.task_groups] == [5, 1]
    assert (west.region, west.datacenters, west.meta) == ("west", ("west-1",), {"first": "west", "second": "job"})
    assert (east.region, east.datacenters, east.node_pool) == ("east", ("*",), "big")
    assert same_roll_out(west, east)
    other = in_region(from_builtins(raw | {"Priority": 60}, Job), MultiregionRegion(name="west"))
    assert not same_roll_out(other, east)
    assert copies(make_job()) == {}
    assert region_names(make_job()) == ()


def pending(**others: str) -> dict[str, str]:
    return dict.fromkeys(NAMES, "pending") | others


def test_all_start_at_once_unless_told_otherwise_and_none_before_all_have_accepted() -> None:
    for name in NAMES:
        assert next_act(job(), name, "pending", pending()) == "start"
        assert next_act(job(), name, "pending", pending(**{next(n for n in NAMES if n != name): UNKNOWN})) == ""


def test_at_most_so_many_run_at_once_in_order() -> None:
    two = job(max_parallel=2)
    assert [next_act(two, name, "pending", pending()) for name in NAMES] == ["start", "start", "", ""]
    running = pending(north="running", south="running")
    assert [next_act(two, name, "pending", running) for name in NAMES[2:]] == ["", ""]
    one_done = pending(north="blocked", south="running")
    assert [next_act(two, name, "pending", one_done) for name in NAMES[2:]] == ["start", ""]


def test_those_that_are_done_wait_for_the_last() -> None:
    done = dict.fromkeys(NAMES, "blocked")
    assert next_act(job(), "north", "blocked", done | {"west": "running"}) == ""
    assert next_act(job(), "north", "blocked", done) == "succeed"
    assert next_act(job(), "north", "blocked", done | {"west": "successful", "east": "none"}) == "succeed"
    assert next_act(job(), "north", "successful", done) == ""


@pytest.mark.parametrize(
    ("on_failure", "wanted"),
    [("", ["", "", "fail"]), ("fail_all", ["fail", "fail", "fail"]), ("fail_local", ["", "", "start"])],
)
def test_how_far_a_failure_reaches(on_failure: str, wanted: list[str]) -> None:
    """north and south are done, east has failed, west waits."""
    statuses = {"north": "blocked", "south": "blocked", "east": "failed", "west": "pending"}
    found = [
        next_act(job(max_parallel=1, on_failure=on_failure), name, statuses[name], statuses)
        for name in ("north", "south", "west")
    ]
    assert found == wanted


@given(
    st.integers(0, 4),
    st.sampled_from(["", "fail_all", "fail_local"]),
    st.lists(st.sampled_from(NAMES), max_size=60),
    st.dictionaries(st.sampled_from(NAMES), st.just("failed"), max_size=2),
)
def test_a_roll_out_never_exceeds_its_strategy_and_comes_to_rest(
    max_parallel: int, on_failure: str, order: list[str], fails: dict[str, str]
) -> None:
    """Regions look at each other in any order; one that runs ends as blocked, or as failed."""
    rolled = job(max_parallel=max_parallel, on_failure=on_failure)
    statuses = dict.fromkeys(NAMES, "pending")
    for name in [*order, *(NAMES * 30)]:
        act = next_act(rolled, name, statuses[name], statuses)
        if act:
            statuses[name] = {"start": "running", "fail": "failed", "succeed": "successful"}[act]
        elif statuses[name] == "running":
            statuses[name] = fails.get(name, "blocked")
        running = [one for one in NAMES if statuses[one] == "running"]
        assert not max_parallel or len(running) <= max_parallel
    if not fails:
        assert set(statuses.values()) == {"successful"}
    elif on_failure == "fail_all":
        assert set(statuses.values()) == {"failed"}
    else:
        assert not {"pending", "running"} & set(statuses.values())
        first = min(NAMES.index(name) for name in fails)
        later = {statuses[name] for name in NAMES[first:]}
        assert later == {"failed"} if on_failure == "" else "failed" in later
        assert all(statuses[name] == "blocked" for name in NAMES[:first])


def test_a_region_that_is_not_named_does_nothing() -> None:
    for status, other in product(GOING_ON, ("failed", "blocked", "running")):
        assert next_act(job(), "elsewhere", status, dict.fromkeys(NAMES, other)) == ""
