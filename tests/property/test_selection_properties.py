"""Selection: weights stay a distribution; on seeded bandits every learning policy finds the best arm."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lepa.serving.selection import (
    POLICIES,
    WEIGHT_SHARE_MIN,
    Arms,
    ArmState,
    Loss,
    PolicyOptions,
    combine,
    known_arms,
    learn,
    selection_policy,
)

NAMES = ("a:1", "b:1", "c:1", "d:1")
LOSSES = st.builds(Loss, st.floats(0, 1), st.floats(0.001, 1))
ROUNDS = 1500


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), LOSSES, min_size=1, max_size=4), min_size=1, max_size=30),
    st.floats(0, 1),
)
def test_weights_stay_a_distribution_and_trials_stay_above_losses(rounds: list[dict[str, Loss]], eta: float) -> None:
    arms: Arms = {}
    for losses in rounds:
        arms = learn(arms, losses, PolicyOptions(eta=eta))
        assert abs(sum(arm.weight for arm in arms.values()) - 1) < 1e-9
        assert all(arm.weight > WEIGHT_SHARE_MIN / len(arms) / 2 for arm in arms.values())
        assert all(-1e-9 <= arm.loss <= arm.trials + 1e-9 for arm in arms.values())


@given(st.sampled_from(sorted(POLICIES)), st.integers(1, 4), st.integers(0, 2**32))
def test_a_policy_chooses_among_the_arms_with_positive_probability(name: str, count: int, seed: int) -> None:
    arms = known_arms(None, dict.fromkeys(NAMES[:count], 1.0))
    choice = selection_policy(name).choose(arms, PolicyOptions(), random.Random(seed).random)
    assert set(choice.weights) <= set(arms)
    assert choice.weights
    assert 0 < choice.probability <= 1


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from([b"1", b"2", b'"x"', b"[1]", b"null"]), min_size=1),
    st.sampled_from(["vote", "mean"]),
)
def test_what_is_combined_was_said_and_confidence_is_a_share(outputs: dict[str, bytes], how: str) -> None:
    output, confidence = combine(outputs, dict.fromkeys(NAMES, 1.0), how)
    assert 0 < confidence <= 1
    if how == "vote":
        assert output in outputs.values()


def mean_loss(policy: str, seed: int, means: list[float], arms: Arms) -> tuple[float, Arms]:
    """Play ROUNDS rounds against arms that lose with these probabilities; the mean loss of the second half."""
    dice, made, options = random.Random(seed), selection_policy(policy), PolicyOptions(eta=0.1)
    lost = 0.0
    for number in range(ROUNDS):
        choice = made.choose(arms, options, dice.random)
        drawn = {name: float(dice.random() < mean) for name, mean in zip(NAMES, means, strict=True)}
        if number >= ROUNDS // 2:
            total = sum(choice.weights.values())
            lost += sum(weight * drawn[name] for name, weight in choice.weights.items()) / total
        arms = learn(arms, {name: Loss(drawn[name], choice.probability) for name in choice.weights}, options)
    return lost / (ROUNDS - ROUNDS // 2), arms


@pytest.mark.parametrize("policy", ["epsilon-greedy", "thompson", "exp3", "exp4"])
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), best=st.integers(0, 3))
def test_regret_is_small_and_a_policy_follows_when_the_best_arm_changes(policy: str, seed: int, best: int) -> None:
    def means(number: int) -> list[float]:
        return [0.1 if position == number else 0.7 for position in range(4)]

    found, arms = mean_loss(policy, seed, means(best), {name: ArmState(0.25) for name in NAMES})
    assert found < 0.25
    found, _ = mean_loss(policy, seed + 1, means((best + 1) % 4), arms)
    assert found < 0.40
