"""Pure: what was made once and may be forgotten at any time, by key, within a number of entries and of octets."""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A dict that empties itself before it outgrows its bounds. Readers take `entries` as it is."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self.entries: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._bytes = 0
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Keep a value. size: the octets that it is taken to cost."""
        self.drop(key)
        if len(self.entries) >= self._entries_max or self._bytes + size > self._bytes_max:
            self.entries.clear()
            self._sizes.clear()
            self._bytes = 0
        self.entries[key] = value
        self._sizes[key] = size
        self._bytes += size

    def drop(self, key: K) -> None:
        """Forget a value, when there is one."""
        self.entries.pop(key, None)
        self._bytes -= self._sizes.pop(key, 0)

    def only(self, holds: Callable[[K, V], bool]) -> "BoundedCache[K, V]":
        """Another cache with the entries that `holds` accepts; another thread may add to this one meanwhile."""
        chosen: BoundedCache[K, V] = BoundedCache(self._entries_max, self._bytes_max)
        sizes = self._sizes.copy()
        for key, value in self.entries.copy().items():
            if holds(key, value):
                chosen.put(key, value, sizes.get(key, 0))
        return chosen
