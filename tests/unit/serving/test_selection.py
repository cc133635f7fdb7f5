"""lepa.serving.selection"""

import random
from collections import Counter
from typing import Any

import pytest

from lepa.model.errors import LepaError
from lepa.serving.selection import (
    ArmState,
    Choice,
    Combined,
    Loss,
    PolicyOptions,
    SelectionState,
    arm_key,
    arms_of,
    check_options,
    combine,
    known_arms,
    learn,
    loss_of,
    selection_policy,
    user_chance,
)

CURRENT = {"a": "1", "b": "7"}
ARMS = {"a:1": ArmState(0.25), "b:7": ArmState(0.75)}


def chosen(policy: str, arms: Any = ARMS, count: int = 2000, **options: Any) -> Counter[str]:
    chance = random.Random(1).random
    made = selection_policy(policy)
    return Counter(key for _ in range(count) for key in made.choose(arms, PolicyOptions(**options), chance).weights)


def test_single_takes_the_first_linked_model_and_has_clippers_name_too() -> None:
    for name in ("single", "DefaultOutputSelectionPolicy"):
        assert selection_policy(name).choose(ARMS, PolicyOptions(), lambda: 0.9) == Choice({"a:1": 1.0})
    with pytest.raises(LepaError, match="Best is an invalid selection_policy"):
        selection_policy("Best")


def test_exp3_draws_by_weight_and_says_with_which_probability() -> None:
    found = chosen("exp3")
    assert 0.70 < found["b:7"] / 2000 < 0.80
    assert selection_policy("exp3").choose(ARMS, PolicyOptions(), lambda: 0.1) == Choice({"a:1": 1.0}, 0.25)


def test_epsilon_greedy_takes_the_best_arm_and_now_and_then_any() -> None:
    arms = {"a:1": ArmState(0.5, trials=10, loss=1), "b:7": ArmState(0.5, trials=10, loss=9)}
    found = chosen("epsilon-greedy", arms, epsilon=0.2)
    assert 0.05 < found["b:7"] / 2000 < 0.15
    assert selection_policy("epsilon-greedy").choose(arms, PolicyOptions(epsilon=0.2), lambda: 0.9).probability == 0.9


def test_thompson_prefers_what_lost_less_and_still_tries_what_is_unknown() -> None:
    found = chosen("thompson", {"a:1": ArmState(0.5, 100, 10), "b:7": ArmState(0.5, 100, 60)})
    assert found["a:1"] == 2000
    found = chosen("thompson", {"a:1": ArmState(0.5, 100, 50), "b:7": ArmState()})
    assert min(found.values()) > 500


def test_ensembles_ask_everybody() -> None:
    assert selection_policy("exp4").choose(ARMS, PolicyOptions(), lambda: 0.5).weights == {"a:1": 0.25, "b:7": 0.75}
    assert selection_policy("majority").choose(ARMS, PolicyOptions(), lambda: 0.5).weights == {"a:1": 1.0, "b:7": 1.0}


def test_split_and_canary_follow_their_shares() -> None:
    options = PolicyOptions(weights={"a": 3, "b:7": 1})
    arms = known_arms(None, arms_of(selection_policy("split"), options, ("a", "b"), CURRENT))
    assert 0.70 < chosen("split", arms)["a:1"] / 2000 < 0.80
    options = PolicyOptions(canary="2", share=0.1)
    arms = known_arms(None, arms_of(selection_policy("canary"), options, ("a",), CURRENT))
    assert 0.07 < chosen("canary", arms, share=0.1)["a:2"] / 2000 < 0.13


def test_an_arm_is_written_in_three_ways_and_belongs_to_a_linked_model() -> None:
    assert arm_key("a", ("a", "b"), CURRENT) == "a:1"
    assert arm_key("b:3", ("a", "b"), CURRENT) == "b:3"
    assert arm_key("9", ("a", "b"), CURRENT) == "a:9"
    assert arm_key("c:1", ("a", "b"), CURRENT) == ""
    assert arm_key("9", (), CURRENT) == ""


def test_without_usable_weights_the_linked_models_share_evenly() -> None:
    options = PolicyOptions(weights={"gone:1": 1})
    assert arms_of(selection_policy("split"), options, ("a", "b"), CURRENT) == {"a:1": 1.0, "b:7": 1.0}


def test_a_new_arm_begins_with_the_mean_weight_and_a_gone_one_is_left_out() -> None:
    state = SelectionState("app", "", {"a:1": ArmState(0.2, 5, 1), "old:1": ArmState(0.8)})
    assert known_arms(state, {"a:1": 1.0, "b:7": 1.0}) == {"a:1": ArmState(0.2, 5, 1), "b:7": ArmState(0.2)}


def test_a_user_stays_with_his_arm() -> None:
    assert user_chance("app", "7") == user_chance("app", "7")
    spread = [user_chance("app", str(user)) for user in range(1000)]
    assert 0.4 < sum(spread) / 1000 < 0.6


WEIGHTS = {"a": 1.0, "b": 1.0, "c": 1.0}


def test_a_vote_goes_to_the_most_weight_and_confidence_counts_who_is_missing() -> None:
    assert combine({"a": b"1", "b": b"2", "c": b"2.0"}, WEIGHTS, "vote") == Combined(b"2", 2 / 3)
    assert combine({"c": b'"x"'}, WEIGHTS, "vote") == Combined(b'"x"', 1 / 3)
    assert combine({"a": b"1", "b": b"2"}, WEIGHTS, "vote").output == b"1"
    assert combine({"a": b"[1, 2]", "b": b"[1,2]"}, WEIGHTS, "vote").confidence == 2 / 3
    assert combine({"a": b"true", "b": b"1"}, WEIGHTS, "vote").confidence == 1 / 3


def test_a_mean_is_of_numbers_and_of_lists_of_numbers_and_else_a_vote() -> None:
    assert combine({"a": b"1", "b": b"2"}, {"a": 1.0, "b": 3.0}, "mean") == Combined(b"1.75", 1.0)
    assert combine({"a": b"[0,1]", "b": b"[1,0]"}, WEIGHTS, "mean") == Combined(b"[0.5,0.5]", 2 / 3)
    assert combine({"a": b"[0,1]", "b": b"[1]"}, WEIGHTS, "mean").output == b"[0,1]"
    assert combine({"a": b'"x"', "b": b'"x"'}, WEIGHTS, "mean") == Combined(b'"x"', 2 / 3)


def test_losses() -> None:
    assert loss_of(b"3", 3.0, PolicyOptions()) == 0.0
    assert loss_of(b'"cat"', "dog", PolicyOptions()) == 1.0
    assert loss_of(None, 1.0, PolicyOptions()) == 1.0
    absolute = PolicyOptions(loss="absolute", loss_scale=10)
    assert loss_of(b"7", 2.0, absolute) == 0.5
    assert loss_of(b"100", 2.0, absolute) == 1.0
    assert loss_of(b'"x"', 2.0, absolute) == 1.0


def test_learning_takes_weight_from_who_lost_and_more_from_who_was_seldom_asked() -> None:
    once = learn(ARMS, {"b:7": Loss(1.0, 0.75)}, PolicyOptions(eta=0.1))
    assert once["b:7"].weight < 0.75
    assert (once["b:7"].trials, once["b:7"].loss, once["a:1"].trials) == (1, 1, 0)
    seldom = learn(ARMS, {"b:7": Loss(1.0, 0.1)}, PolicyOptions(eta=0.1))
    assert seldom["b:7"].weight < once["b:7"].weight
    assert learn({}, {"a:1": Loss(0.0)}, PolicyOptions()) == {"a:1": ArmState(1.0, 1.0, 0.0)}


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 2.0},
        {"share": -0.1},
        {"eta": float("nan")},
        {"confidence_min": 1.1},
        {"loss_scale": 0.0},
        {"weights": {"a": -1.0}},
        {"weights": {"a": 0.0}},
        {"shadow": tuple("a" * 40)},
    ],
)
def test_numbers_that_mean_nothing_are_refused(options: Any) -> None:
    with pytest.raises(LepaError):
        check_options(PolicyOptions(**options))
