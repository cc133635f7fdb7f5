"""Seeded chance."""

import numpy as np

from lepa.scheduler.chance import mix, text_bits
from lepa.scheduler.rank import mixed_ties


def test_same_seed_gives_same_bits_and_others_differ() -> None:
    assert mix(1, 2) == mix(1, 2)
    assert len({mix(seed, value) for seed in range(10) for value in range(10)}) == 100


def test_text_bits_fit_64_bits() -> None:
    assert 0 <= text_bits("node-1") < 1 << 64
    assert text_bits("node-1") != text_bits("node-2")


def test_first_output_is_that_of_the_published_generator() -> None:
    assert mix(0) == 0xE220A8397B1DCDAF


def test_numpy_mixes_as_python_does() -> None:
    bits = [text_bits(name) for name in "abc"]
    assert mixed_ties(np.array(bits, np.uint64), 5).tolist() == [mix(each ^ 5) for each in bits]
