from lepa.dns.bounded_cache import BoundedCache


def test_it_empties_itself_before_there_are_too_many_entries() -> None:
    cache: BoundedCache[int, str] = BoundedCache(3, 100)
    for number in range(10):
        cache.put(number, "kept")
        assert len(cache.entries) <= 3
    assert list(cache.entries) == [9]


def test_it_empties_itself_before_it_is_too_large() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(100, 10)
    cache.put("a", b"first", 6)
    cache.put("a", b"second", 7)
    cache.put("b", b"", 3)
    assert cache.entries == {"a": b"second", "b": b""}
    cache.put("c", b"", 1)
    assert list(cache.entries) == ["c"]


def test_what_was_dropped_takes_no_room() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(100, 10)
    cache.put("a", b"", 10)
    cache.drop("a")
    cache.drop("never there")
    cache.put("b", b"", 10)
    assert list(cache.entries) == ["b"]


def test_what_still_holds_goes_into_another_cache_with_its_size() -> None:
    cache: BoundedCache[str, int] = BoundedCache(100, 10)
    cache.put("a", 1, 5)
    cache.put("b", 2, 5)
    chosen = cache.only(lambda key, value: (key, value) == ("a", 1))
    assert chosen.entries == {"a": 1}
    chosen.put("c", 3, 6)
    assert list(chosen.entries) == ["c"]
    assert list(cache.entries) == ["a", "b"]
