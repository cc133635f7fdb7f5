"""Pure: choices by chance, which the caller hands in."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """Where chance comes from: `lepa.kit.sources.Random` fits."""

    def uniform(self, low: float, high: float) -> float:
        """A float in low..high."""


def choose(chance: Chance, items: Sequence[T], count: int) -> list[T]:
    """`count` different items, or all when there are fewer, in random order."""
    pool = list(items)
    wanted = min(count, len(pool))
    for i in range(wanted):
        j = min(i + int(chance.uniform(0, len(pool) - i)), len(pool) - 1)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:wanted]
