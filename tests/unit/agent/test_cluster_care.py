"""Which members of etcd have left for good."""

from lepa.agent.cluster_care import departed
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
