from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from lepa.ingress.picker import OUT_MAX_S, OUT_S, SLOTS_MAX, Picker, Strategy, ring_of, shares


@dataclass(frozen=True)
class Target:
    key: str
    fixed_share: float | None = None
    weight: int = 1


class Route:
    def __init__(self, *targets: Target, first: bool = False) -> None:
        self.targets: Sequence[Target] = targets
        self.ring = ring_of(self.targets)
        self.cursor = 0
        self.first = first


A, B, C = Target("a"), Target("b"), Target("c")


def picked(picker: Picker, route: Route, times: int, now: float = 0.0) -> list[str]:
    return [found.key for _ in range(times) if (found := picker.pick(route, now))]


def test_in_turn() -> None:
    assert picked(Picker(), Route(A, B, C), 6) == list("abcabc")


def test_a_route_without_targets_picks_nothing() -> None:
    assert Picker().pick(Route(), 0) is None


def test_at_random_every_target_has_its_part() -> None:
    counts = Counter(picked(Picker("rnd", 7), Route(A, B, C), 3_000))
    assert all(900 < counts[key] < 1_100 for key in "abc")


def test_a_fixed_share_leaves_the_rest_to_the_others() -> None:
    assert shares([Target("a", 0.05), B, C]) == pytest.approx([0.05, 0.475, 0.475])


def test_fixed_shares_beyond_the_whole_are_scaled_down_and_starve_the_others() -> None:
    assert shares([Target("a", 0.9), Target("b", 0.9), C]) == pytest.approx([0.5, 0.5, 0])


def test_fixed_shares_alone_are_scaled_up() -> None:
    assert shares([Target("a", 0.1), Target("b", 0.3)]) == pytest.approx([0.25, 0.75])


def test_weights_part_what_is_not_fixed() -> None:
    assert shares([Target("a", weight=3), B]) == pytest.approx([0.75, 0.25])


def test_only_zero_shares_are_equal_shares() -> None:
    assert shares([Target("a", 0.0), Target("b", 0.0)]) == pytest.approx([0.5, 0.5])


def test_a_ring_is_evenly_spread() -> None:
    ring = [target.key for target in ring_of([Target("a", 0.2), B])]
    assert len(ring) == 5
    assert ring.count("a") == 1


def test_a_ring_is_bounded() -> None:
    targets = [Target(str(n), weight=n + 1) for n in range(3_000)]
    assert len(ring_of(targets)) <= SLOTS_MAX + len(targets)


def test_a_canary_of_five_percent() -> None:
    counts = Counter(picked(Picker(), Route(Target("canary", 0.05), A, B), 1_000))
    assert counts["canary"] == 50


def test_a_target_that_refuses_is_left_out_for_a_while() -> None:
    picker, route = Picker(), Route(A, B)
    assert picker.refused("a", 0.0) == OUT_S
    assert set(picked(picker, route, 4, now=0.5)) == {"b"}
    assert set(picked(picker, route, 4, now=1.5)) == {"a", "b"}


def test_each_refusal_doubles_the_time_up_to_a_bound() -> None:
    picker = Picker()
    assert [picker.refused("a", 0.0) for _ in range(7)] == [1, 2, 4, 8, 16, OUT_MAX_S, OUT_MAX_S]


def test_work_ends_the_time_out() -> None:
    picker, route = Picker(), Route(A, B)
    picker.refused("a", 0.0)
    picker.worked("a")
    assert set(picked(picker, route, 4)) == {"a", "b"}
    assert picker.refused("a", 0.0) == OUT_S


def test_when_all_are_out_the_one_that_returns_first_is_tried() -> None:
    picker, route = Picker(), Route(A, B)
    picker.refused("a", 0.0)
    picker.refused("a", 0.0)
    picker.refused("b", 0.0)
    assert picked(picker, route, 3, now=0.1) == ["b", "b", "b"]


@pytest.mark.parametrize("strategy", ["rr", "rnd", "lc"])
def test_what_was_tried_is_not_picked_again(strategy: Strategy) -> None:
    picker, route = Picker(strategy), Route(A, B)
    found = picker.pick(route, 0.0, ("a",))
    assert found is not None
    assert found.key == "b"
    assert picker.pick(route, 0.0, ("a", "b")) is None


def test_the_fewest_connections() -> None:
    picker, route = Picker("lc"), Route(A, B)
    held = [picker.began("a"), picker.began("a"), picker.began("b")]
    assert picked(picker, route, 1) == ["b"]
    picker.ended(held[0])
    picker.ended(held[1])
    assert picked(picker, route, 1) == ["a"]


def test_the_fewest_connections_for_its_share() -> None:
    picker, route = Picker("lc"), Route(Target("a", weight=4), B)
    for _ in range(2):
        picker.began("a")
    assert picked(picker, route, 1) == ["a"]


def test_equals_take_turns_when_connections_are_short() -> None:
    assert set(picked(Picker("lc"), Route(A, B, C), 3)) == {"a", "b", "c"}


def test_the_first_and_only_when_it_is_gone_the_next() -> None:
    picker, route = Picker(), Route(A, B, first=True)
    assert picked(picker, route, 3) == ["a", "a", "a"]
    picker.refused("a", 0.0)
    assert picked(picker, route, 2) == ["b", "b"]
