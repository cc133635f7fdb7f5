"""Pure: predictions already made, kept within a bound of bytes, forgotten by CLOCK.

Keys hold the whole input, so two inputs can never be taken for each other (Clipper compared 64-bit hashes). CLOCK:
the entries stand in a circle; a hit marks its entry; who needs room walks the circle, takes marks away, and forgets
the first entry without one. Here the circle is an ordered dict, and "behind the hand" is its end.

A model that is registered again is another model: the first part of the key is the registration, so that old answers
are never found, and age out.
"""

from collections import OrderedDict
from collections.abc import Hashable

ENTRY_OVERHEAD_BYTES = 300
"""What Python spends on an entry besides input and output: two tuples, two dict slots, two bytes headers."""

Key = tuple[Hashable, bytes]


class PredictionCache:
    """Outputs by (registration, input). bytes_max 0 keeps nothing."""

    __slots__ = ("_bytes", "_entries", "_marked", "bytes_max", "hits", "lookups")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.lookups = 0
        self.hits = 0
        self._entries: OrderedDict[Key, bytes] = OrderedDict()
        self._marked: set[Key] = set()
        self._bytes = 0

    def get(self, key: Key) -> bytes | None:
        """The output kept for `key`, and a mark that it was of use."""
        self.lookups += 1
        output = self._entries.get(key)
        if output is not None:
            self.hits += 1
            self._marked.add(key)
        return output

    def put(self, key: Key, output: bytes) -> bool:
        """Keep an output. False when it alone is larger than the whole cache."""
        size = _size(key, output)
        if size > self.bytes_max:
            return False
        if (old := self._entries.pop(key, None)) is not None:
            self._bytes -= _size(key, old)
        self._entries[key] = output
        self._bytes += size
        while self._bytes > self.bytes_max:
            self._forget_one()
        return True

    def _forget_one(self) -> None:
        """Turn the hand until it meets an entry without a mark; ends after one round at the latest."""
        while True:
            key, output = self._entries.popitem(last=False)
            if key not in self._marked:
                self._bytes -= _size(key, output)
                return
            self._marked.discard(key)
            self._entries[key] = output

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._marked.clear()
        self._bytes = 0

    @property
    def bytes_used(self) -> int:
        """Bytes of all entries, overhead included."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)


def _size(key: Key, output: bytes) -> int:
    return len(key[1]) + len(output) + ENTRY_OVERHEAD_BYTES
