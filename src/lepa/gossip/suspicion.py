"""Pure: how long a silent member is only suspected.

Lifeguard (Dadgar, Phillips and Currey, 2017): the fewer others agree, the longer the accused gets to answer. With c of
k accusers the time is max - (max - min) * log(c + 1) / log(k + 1); where k is below one, there is nobody to agree.
"""

import math


class Suspicion:
    """One member under suspicion. Times are monotonic seconds."""

    def __init__(self, incarnation: int, source: str, bounds: tuple[float, float, int], now: float) -> None:
        self.incarnation = incarnation
        self._least, self._most, self._wanted = bounds
        self._sources = {source}
        self._since = now

    def confirm(self, source: str) -> bool:
        """Somebody accuses it too; whether that is news worth passing on."""
        if len(self._sources) > self._wanted or source in self._sources:
            return False
        self._sources.add(source)
        return True

    def delay(self, seconds: float) -> None:
        """Time in which this side could not listen does not count."""
        self._since += seconds

    @property
    def ends_at(self) -> float:
        """When it counts as dead if it does not answer."""
        return self._since + timeout(len(self._sources) - 1, self._wanted, self._least, self._most)


def timeout(confirmations: int, wanted: int, least: float, most: float) -> float:
    """Seconds of suspicion after `confirmations` of the `wanted` ones."""
    if wanted < 1:
        return least
    share = math.log(confirmations + 1) / math.log(wanted + 1)
    return max(least, math.floor(1000 * (most - (most - least) * share)) / 1000)
