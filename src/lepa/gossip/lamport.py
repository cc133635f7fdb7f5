"""Pure: Lamport clocks, and what was heard at each of their times."""

from collections.abc import Hashable
from typing import Final

from lepa.gossip.serf_messages import BUFFER

TIME_END: Final = 1 << 63
"""Times above are refused: a peer that sends them would stop the clock for everybody."""
HEARD_MAX: Final = 64
"""Different messages of one time."""


class LamportClock:
    """Starts at 1; later than everything that was witnessed."""

    def __init__(self) -> None:
        self.time = 1

    def increment(self) -> int:
        """The next time."""
        self.time += 1
        return self.time

    def witness(self, time: int) -> None:
        """Another one was at this time."""
        if time < TIME_END:
            self.time = max(self.time, time + 1)


class Heard:
    """Messages by the time they say, for as long as a repetition can still arrive. least: earlier ones are refused."""

    def __init__(self, clock: LamportClock) -> None:
        self.least = 0
        self._clock = clock
        self._at: dict[int, set[Hashable]] = {}

    def is_news(self, time: int, what: Hashable) -> bool:
        """Whether this was not heard before and is not too old; it is heard now."""
        oldest = self._clock.time - BUFFER
        if not max(self.least, oldest) <= time < TIME_END:
            return False
        at = self._at.setdefault(time, set())
        if what in at or len(at) >= HEARD_MAX:
            return False
        at.add(what)
        if len(self._at) > 2 * BUFFER:
            self._at = {known: heard for known, heard in self._at.items() if known >= oldest}
        return True
