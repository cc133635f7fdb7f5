"""Which members of etcd have left for good."""

from lepa.agent.cluster_care import dead_members, departed
from lepa.store.etcd_members import Member


def member(name: str, *, answers: bool = True, learner: bool = False) -> Member:
    return Member(ord(name), name, f"http://{name}:4650", f"http://{name}:4649", learner, answers)


def names(found: list[Member]) -> list[str]:
    return [each.name for each in found]


def test_a_server_that_left_and_is_silent_is_taken_out() -> None:
    members = [member("a"), member("b"), member("c", answers=False)]
    assert names(departed(members, {"c.global"}, "global")) == ["c"]
    assert departed(members, {"c.eu"}, "global") == []


def test_a_server_that_only_failed_or_came_back_stays() -> None:
    assert departed([member("a"), member("b"), member("c", answers=False)], set(), "global") == []
    assert departed([member("a"), member("b"), member("c")], {"c.global"}, "global") == []


def test_nobody_is_taken_out_while_the_rest_has_no_majority() -> None:
    members = [member("a"), member("b", answers=False), member("c", answers=False)]
    assert departed(members, {"c.global"}, "global") == []
    members = [member("a"), member("b"), member("c", answers=False), member("d", answers=False, learner=True)]
    assert names(departed(members, {"c.global", "d.global"}, "global")) == ["c", "d"]


def test_the_dead_are_taken_out_as_far_as_most_of_the_rest_answer() -> None:
    members = [member("a"), member("b"), member("c", answers=False), member("d", answers=False), member("e")]
    dead = {"c.global", "d.global"}
    assert names(dead_members(members, dead, "global", [], 0)) == ["c", "d"]
    assert names(dead_members(members, {"d.global"}, "global", [], 0)) == ["d"]
    assert names(dead_members(members, dead, "global", [members[2]], 0)) == ["d"]
    few = [member("a"), member("b", answers=False), member("c", answers=False)]
    assert dead_members(few, {"b.global", "c.global"}, "global", [], 0) == []


def test_a_quorum_of_a_smallest_size_stays() -> None:
    members = [member("a"), member("b"), member("c"), member("d", answers=False), member("e", answers=False)]
    dead = {"d.global", "e.global"}
    assert names(dead_members(members, dead, "global", [], 4)) == ["d"]
    assert dead_members(members, dead, "global", [], 5) == []
    learner = [*members[:3], member("d", answers=False, learner=True)]
    assert names(dead_members(learner, {"d.global"}, "global", [], 3)) == ["d"]
