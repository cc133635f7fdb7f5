"""lepa.serving.batch_sizes"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.model.errors import LepaError
from lepa.serving.batch_sizes import (
    ADAPTIVE,
    BATCH_SIZE_MAX,
    Batching,
    BatchSize,
    QuantileSize,
    RidgeSize,
    check_batching,
    quantile_line,
    sizes_of,
)

OBJECTIVE_S = 0.020


def learn(size: BatchSize, latency_s: Callable[[int], float], batches: int = 2000) -> list[int]:
    """Sizes that the policy asked for while every batch was full."""
    asked = []
    for _ in range(batches):
        count = size.size
        asked.append(count)
        size.observe(count, latency_s(count), OBJECTIVE_S)
    return asked


@pytest.mark.parametrize("policy", ADAPTIVE)
def test_every_policy_finds_about_the_size_that_fits(policy: str) -> None:
    """A model with 2 ms of its own and 0.1 ms an input fits 180 inputs into 20 ms."""
    asked = learn(ADAPTIVE[policy](), lambda count: 0.002 + 0.0001 * count)
    assert 120 <= sum(asked[-100:]) / 100 <= 190


def test_a_batch_that_took_next_to_no_time_gives_the_largest_size() -> None:
    size = ADAPTIVE["throughput"]()
    size.observe(1, 5e-324, 2.0)
    assert size.size == BATCH_SIZE_MAX


@pytest.mark.parametrize("policy", ["aimd", "ridge", "throughput"])
def test_a_policy_that_goes_on_learning_follows_a_model_that_gets_slower(policy: str) -> None:
    size = ADAPTIVE[policy]()
    learn(size, lambda count: 0.002 + 0.0001 * count)
    asked = learn(size, lambda count: 0.002 + 0.0004 * count)
    assert 20 <= sum(asked[-100:]) / 100 <= 60


@pytest.mark.parametrize("policy", ADAPTIVE)
@given(
    batches=st.lists(st.tuples(st.integers(1, 50), st.floats(0, 10)), max_size=300), objective_s=st.floats(1e-6, 100)
)
def test_sizes_keep_their_bounds_whatever_is_seen(
    policy: str, batches: list[tuple[int, float]], objective_s: float
) -> None:
    size = ADAPTIVE[policy]()
    for count, latency_s in batches:
        size.observe(min(count, size.size), latency_s, objective_s)
        assert 1 <= size.size <= BATCH_SIZE_MAX


def test_the_quantile_policy_decides_once() -> None:
    size = QuantileSize()
    learn(size, lambda count: 0.002 + 0.0001 * count, QuantileSize.SAMPLES)
    frozen = size.size
    learn(size, lambda count: 1.0)
    assert size.size == frozen


def test_a_line_lies_above_its_share_of_the_samples() -> None:
    samples = [(x, 1.0 + 2.0 * x + (y % 100) / 10) for x in range(1, 11) for y in range(100)]
    slope, base = quantile_line(samples, 0.99)
    above = sum(y > slope * x + base + 1e-6 for x, y in samples) / len(samples)
    assert slope == pytest.approx(2.0, abs=0.1)
    assert above <= 0.02
    assert quantile_line([(3, 1.0), (3, 2.0)], 0.99) == (0.0, 0.0)


def test_exploring_takes_five_batches_of_a_size_before_the_next() -> None:
    asked = learn(RidgeSize(), lambda count: 0.0001, 5 * 13)
    assert asked == [size for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13) for _ in range(5)]


@pytest.mark.parametrize(
    ("batching", "sentence"),
    [
        (Batching("best"), '"best" is no batching policy; known are aimd, quantile, ridge, throughput, fixed'),
        (Batching("fixed"), "has a size of at least 1; fixed has 0"),
        (Batching("aimd", 5), "has a size of at least 1; aimd has 5"),
        (Batching(wait_us=-1), "wait_us must be in"),
    ],
)
def test_what_is_no_way_to_batch_is_refused(batching: Batching, sentence: str) -> None:
    with pytest.raises(LepaError, match=sentence):
        check_batching(batching)


def test_a_fixed_size_stays() -> None:
    check_batching(Batching("fixed", 7, 2000))
    assert set(learn(sizes_of(Batching("fixed", 7))(), lambda count: 9.0, 10)) == {7}
