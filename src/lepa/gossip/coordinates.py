"""Pure: where members are in a space whose distances are round-trip times: Vivaldi (Dabek and others, 2004).

Serf's variant: eight dimensions, a height for the last mile, an adjustment for what space cannot explain, and a weak
pull towards the origin. A coordinate travels in acks of probes; what peers send and makes no sense is ignored.
"""

import math
from collections import deque
from typing import Any, Final, NamedTuple

from lepa.gossip import raw_msgpack
from lepa.gossip.chance import Chance
from lepa.gossip.errors import Malformed

PING_VERSION: Final = 1
DIMENSIONS: Final = 8
ERROR_MAX: Final = 1.5
CE: Final = 0.25
CC: Final = 0.25
ADJUSTMENTS: Final = 20
HEIGHT_MIN: Final = 1e-5
LATENCIES: Final = 3
GRAVITY_RHO: Final = 150.0
RTT_MAX_S: Final = 10.0
TINY: Final = 1e-6
PEERS_MAX: Final = 16_384


class Coordinate(NamedTuple):
    """A place, in seconds. error: how sure one is, 1.5 at first."""

    vec: tuple[float, ...] = (0.0,) * DIMENSIONS
    error: float = ERROR_MAX
    height: float = HEIGHT_MIN
    adjustment: float = 0.0

    @property
    def makes_sense(self) -> bool:
        """Whether the numbers are numbers."""
        numbers = (*self.vec, self.error, self.height, self.adjustment)
        return len(self.vec) == DIMENSIONS and all(map(math.isfinite, numbers))


def distance_s(here: Coordinate, there: Coordinate) -> float:
    """The round-trip time that two places suggest."""
    plain = _plain_distance(here, there)
    adjusted = plain + here.adjustment + there.adjustment
    return adjusted if adjusted > 0 else plain


def encode_ping(place: Coordinate) -> bytes:
    """What an ack carries."""
    body = {"Adjustment": place.adjustment, "Error": place.error, "Height": place.height, "Vec": list(place.vec)}
    return bytes([PING_VERSION]) + raw_msgpack.encode(body)


def decode_ping(payload: bytes) -> Coordinate:
    """The coordinate of an ack. Raises Malformed."""
    value, _ = raw_msgpack.decode(payload, 1) if payload[:1] == bytes([PING_VERSION]) else (None, 0)
    if not isinstance(value, dict) or not isinstance(vec := value.get(b"Vec"), list):
        raise Malformed("coordinate")
    found = Coordinate(
        tuple(map(_number, vec)),
        *(_number(value.get(key, 0.0)) for key in (b"Error", b"Height", b"Adjustment")),
    )
    if not found.makes_sense:
        raise Malformed("coordinate")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed("coordinate")
    return float(value)


class Place:
    """This member's own coordinate, moved by each measured round trip."""

    def __init__(self, chance: Chance) -> None:
        self.here = Coordinate()
        self._chance = chance
        self._latencies: dict[str, deque[float]] = {}
        self._samples: deque[float] = deque([0.0] * ADJUSTMENTS, maxlen=ADJUSTMENTS)

    def measured(self, name: str, there: Coordinate, rtt_s: float) -> None:
        """A probe of `name` took `rtt_s`."""
        if not 0 < rtt_s <= RTT_MAX_S:
            return
        rtt_s = self._median(name, rtt_s)
        here = self._pushed(self.here, there, rtt_s)
        self._samples.append(rtt_s - _plain_distance(here, there))
        here = here._replace(adjustment=sum(self._samples) / (2 * ADJUSTMENTS))
        origin = Coordinate()
        pull = -((distance_s(here, origin) / GRAVITY_RHO) ** 2)
        here = self._moved(here, origin, pull)
        self.here = here if here.makes_sense else Coordinate()

    def forget(self, name: str) -> None:
        """A member is gone."""
        self._latencies.pop(name, None)

    def _median(self, name: str, rtt_s: float) -> float:
        if len(self._latencies) >= PEERS_MAX:
            self._latencies.clear()
        last = self._latencies.setdefault(name, deque(maxlen=LATENCIES))
        last.append(rtt_s)
        return sorted(last)[len(last) // 2]

    def _pushed(self, here: Coordinate, there: Coordinate, rtt_s: float) -> Coordinate:
        wrongness = abs(distance_s(here, there) - rtt_s) / rtt_s
        weight = here.error / max(here.error + there.error, TINY)
        error = min(ERROR_MAX, CE * weight * wrongness + here.error * (1 - CE * weight))
        force = CC * weight * (rtt_s - distance_s(here, there))
        return self._moved(here._replace(error=error), there, force)

    def _moved(self, here: Coordinate, there: Coordinate, force: float) -> Coordinate:
        """Moved along the line away from `there`, or towards it; height takes its share."""
        difference = [a - b for a, b in zip(here.vec, there.vec, strict=True)]
        length = math.hypot(*difference)
        if length > TINY:
            height = max(HEIGHT_MIN, (here.height + there.height) * force / length + here.height)
        else:
            difference = [self._chance.uniform(-0.5, 0.5) for _ in here.vec]
            length, height = max(math.hypot(*difference), TINY), here.height
        vec = tuple(a + d / length * force for a, d in zip(here.vec, difference, strict=True))
        return here._replace(vec=vec, height=height)


def _plain_distance(here: Coordinate, there: Coordinate) -> float:
    return math.dist(here.vec, there.vec) + here.height + there.height
