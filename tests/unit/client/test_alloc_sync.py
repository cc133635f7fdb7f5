"""Orders from what is wanted and what runs."""

from tests.builders import make_alloc

from lepa.client.alloc_sync import compare, divide, is_over


def test_newer_and_unknown_allocations_are_fetched_and_those_that_are_gone_forgotten() -> None:
    orders = compare({"a": 5, "b": 3, "new": 9}, {"a": 4, "b": 3, "gone": 1}, since=8)
    assert orders.fetch == ("a", "new")
    assert orders.forget == ("gone",)


def test_an_allocation_that_ended_here_long_ago_is_left_alone() -> None:
    assert compare({"old": 4}, {}, since=8).fetch == ()


def test_only_allocations_that_should_run_are_started() -> None:
    run, stop = make_alloc("run", client_status="pending"), make_alloc("stop", desired_status="stop")
    done, known = make_alloc("done", client_status="complete"), make_alloc("known", desired_status="stop")
    change = divide((run, stop, done, known), {"known"})
    assert change.start == (run,)
    assert change.update == (known,)
    assert is_over(done)
    assert not is_over(run)
