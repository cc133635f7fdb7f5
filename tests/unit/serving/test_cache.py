"""lepa.serving.cache"""

from lepa.serving.cache import ENTRY_OVERHEAD_BYTES, PredictionCache

ROOM_FOR_TWO = 2 * (ENTRY_OVERHEAD_BYTES + 2)


def test_what_was_put_is_found_for_the_same_input_and_registration_only() -> None:
    cache = PredictionCache(10_000)
    cache.put((1, b"x"), b"1")
    assert cache.get((1, b"x")) == b"1"
    assert cache.get((2, b"x")) is None
    assert cache.get((1, b"y")) is None
    assert (cache.lookups, cache.hits) == (3, 1)


def test_what_was_of_use_stays_longer() -> None:
    cache = PredictionCache(ROOM_FOR_TWO)
    cache.put((1, b"a"), b"1")
    cache.put((1, b"b"), b"2")
    assert cache.get((1, b"a")) == b"1"
    cache.put((1, b"c"), b"3")
    assert cache.get((1, b"b")) is None
    assert cache.get((1, b"a")) == b"1"
    assert cache.get((1, b"c")) == b"3"


def test_an_output_larger_than_the_cache_is_not_kept() -> None:
    cache = PredictionCache(ROOM_FOR_TWO)
    assert not cache.put((1, b"a"), bytes(ROOM_FOR_TWO))
    assert len(cache) == 0


def test_putting_again_counts_once_and_clearing_forgets() -> None:
    cache = PredictionCache(10_000)
    cache.put((1, b"a"), b"1")
    cache.put((1, b"a"), b"22")
    assert cache.bytes_used == ENTRY_OVERHEAD_BYTES + 3
    cache.clear()
    assert (len(cache), cache.bytes_used, cache.get((1, b"a"))) == (0, 0, None)
