"""Clock and Random: the only doors to time and chance.

Deciding code takes `now` and seeds as arguments; the code around it asks these two. A simulator hands in its own.
"""

import asyncio
import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Time as the running parts see it."""

    def now(self) -> float:
        """Monotonic seconds."""

    def now_ns(self) -> int:
        """Wall time in nanoseconds since the Unix epoch."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class Random(Protocol):
    """Chance as the running parts see it."""

    def uuid(self) -> str:
        """A fresh random UUID in text form."""

    def seed(self) -> int:
        """A fresh seed, 63 bits, for deciding code."""

    def uniform(self, low: float, high: float) -> float:
        """A float in low..high."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.monotonic()

    def now_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemRandom:
    """The operating system's randomness for ids; a private generator for jitter and seeds."""

    def __init__(self) -> None:
        self._random = random.Random()

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def seed(self) -> int:
        return self._random.getrandbits(63)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class SeededRandom:
    """Everything from one seed, ids included: for tests and simulation."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def seed(self) -> int:
        return self._random.getrandbits(63)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
