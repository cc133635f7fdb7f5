"""Clock and Random."""

import time

from lepa.kit.sources import SeededRandom, SystemClock, SystemRandom


def test_the_same_seed_gives_the_same_ids_and_numbers() -> None:
    first, second = SeededRandom(7), SeededRandom(7)
    assert [first.uuid(), first.seed(), first.uniform(0, 1)] == [second.uuid(), second.seed(), second.uniform(0, 1)]


def test_system_ids_are_uuids_and_differ() -> None:
    chance = SystemRandom()
    ids = {chance.uuid() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(one) == 36 and one[14] == "4" for one in ids)


def test_uniform_stays_within_its_bounds() -> None:
    chance = SystemRandom()
    assert all(2.0 <= chance.uniform(2.0, 3.0) <= 3.0 for _ in range(100))
    assert 0 <= chance.seed() < 1 << 63


async def test_the_system_clock_is_the_machines() -> None:
    clock = SystemClock()
    assert abs(clock.now_ns() - time.time_ns()) < 1_000_000_000
    before = clock.now()
    await clock.sleep(0)
    assert clock.now() >= before
