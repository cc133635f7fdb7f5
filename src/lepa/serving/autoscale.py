"""Pure: from the load of a model to the number of its replicas, zero included.

Load is how busy the replicas were since the last look: one that had a batch in flight for 70 % of the time is busy by
0.7. `ReplicaScaler` wants so many replicas that each would be busy by `busy_target`. It goes up at once, and not by
more than double, for one look may deceive; it goes down only to the highest number that was wanted within the last
`down_after_s`, so that a pause of a few seconds costs nobody a cold start. To zero it goes after `idle_s` without any
query, and from zero it comes back with the first one.
"""

from collections import deque
from math import ceil
from typing import NamedTuple

from msgspec import Struct

from lepa.model.errors import invalid

REPLICAS_MAX = 1000
LOOKS_MAX = 10_000
"""Looks that are remembered; at one a second this is more than any `down_after_s` that makes sense."""


class Autoscale(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a model may be scaled. replicas_min: 0 lets it go away while nobody asks. busy_target: share of time that
    a replica should work. streams_target: requests at once, passed through to a model's own server, that keep a replica
    busy. down_after_s: so long must fewer be enough. idle_s: without a query, until the last goes."""

    replicas_min: int = 1
    replicas_max: int = 10
    busy_target: float = 0.7
    down_after_s: float = 60.0
    idle_s: float = 300.0
    streams_target: float = 8.0


class Load(NamedTuple):
    """One look at a model. replicas: meant to run. busy: summed over replicas, since the last look. queries: asked
    since the last look. queued: waiting now."""

    replicas: int
    busy: float
    queries: int
    queued: int


class Wanted(NamedTuple):
    """How many replicas there should be, and why."""

    replicas: int
    reason: str


def check_autoscale(settings: Autoscale) -> None:
    """Raise LepaError(invalid) for settings that contradict themselves."""
    if not 0 <= settings.replicas_min <= settings.replicas_max <= REPLICAS_MAX or not settings.replicas_max:
        raise invalid(
            f"replicas_min and replicas_max must be in 0..{REPLICAS_MAX} and in order, not "
            f"{settings.replicas_min} and {settings.replicas_max}"
        )
    if not 0 < settings.busy_target <= 1:
        raise invalid(f"busy_target must be in 0..1, not {settings.busy_target}")
    if not settings.streams_target > 0:
        raise invalid(f"streams_target must be more than 0, not {settings.streams_target}")
    if not (settings.down_after_s >= 0 and settings.idle_s >= 0):
        raise invalid("down_after_s and idle_s must not be negative")


class ReplicaScaler:
    """Decides for one model; see the module."""

    def __init__(self, settings: Autoscale, now: float) -> None:
        self.settings = settings
        self._asked_at = now
        self._looks: deque[tuple[float, int]] = deque(maxlen=LOOKS_MAX)

    def decide(self, load: Load, now: float) -> Wanted:
        """The replicas that this look, and those before it, call for."""
        settings = self.settings
        if load.queries or load.queued:
            self._asked_at = now
        needed = ceil(load.busy / settings.busy_target - 1e-9)
        if load.queries or load.queued:
            needed = max(needed, 1)
        self._looks.append((now, needed))
        while self._looks[0][0] < now - settings.down_after_s:
            self._looks.popleft()
        return self._bounded(load.replicas, needed, now)

    def _bounded(self, have: int, needed: int, now: float) -> Wanted:
        settings = self.settings
        idle = now - self._asked_at >= settings.idle_s
        least = settings.replicas_min if idle else max(1 if have else 0, settings.replicas_min)
        if needed > have:
            wanted = min(needed, max(2 * have, 1))
            reason = "the first query" if not have else f"busy replicas: {needed} would have {settings.busy_target:.0%}"
        else:
            wanted = min(have, max(highest for _, highest in self._looks))
            reason = f"no query for {settings.idle_s:.0f} s" if idle and not wanted else "fewer are enough"
        wanted = max(least, min(wanted, settings.replicas_max))
        return Wanted(wanted, reason if wanted != have else "as many as needed")
