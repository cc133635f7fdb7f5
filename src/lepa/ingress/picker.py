"""Pure: which target of a route gets the next request, and which are left out for a while because they refuse.

Every route has a ring of slots, in which a target stands as often as its share says, evenly spread. `rr` walks the
ring, `rnd` draws a slot, `lc` takes the target with the fewest open connections for its share. A target that refuses is
left out for a time that doubles with each refusal in a row; when all are out, they are tried all the same, the one that
returns first before the others: a wrong guess about health must not be worse than none.
"""

from collections.abc import Collection, Sequence
from math import gcd
from typing import Literal, Protocol, TypeVar

Strategy = Literal["rr", "rnd", "lc"]

SLOTS_MAX = 10_000
"""Slots of a ring whose shares differ; a share below half a slot still gets one."""
OUT_S = 1.0
"""How long a target is left out after its first refusal."""
OUT_MAX_S = 30.0
TARGETS_MAX = 200_000
"""Targets of which something is remembered; beyond, those without a connection are forgotten."""


class Weighted(Protocol):
    """What shares are computed from."""

    @property
    def fixed_share(self) -> float | None:
        """A share from 0 to 1 that somebody asked for."""

    @property
    def weight(self) -> int:
        """Its part of what is not fixed."""


class Pickable(Weighted, Protocol):
    """A target."""

    @property
    def key(self) -> str:
        """Address and port."""


T = TypeVar("T", bound=Pickable)
T_co = TypeVar("T_co", bound=Pickable, covariant=True)


class Choice(Protocol[T_co]):
    """A route: its targets, and the same as a ring."""

    cursor: int
    first: bool

    @property
    def targets(self) -> Sequence[T_co]:
        """Targets that may be picked."""

    @property
    def ring(self) -> Sequence[T_co]:
        """The same, each as often as its share says."""


def shares(targets: Sequence[Weighted]) -> list[float]:
    """What part of all requests each target gets; they add up to 1.

    Fixed shares come first, scaled down when they exceed 1; the rest is parted by weight among the others. Without
    others the fixed ones are scaled up.
    """
    fixed = [target.fixed_share for target in targets]
    total = sum(share for share in fixed if share is not None)
    others = sum(target.weight for target, share in zip(targets, fixed, strict=True) if share is None)
    if others and total < 1:
        rest = (1 - total) / others
        return [
            share if share is not None else rest * target.weight for target, share in zip(targets, fixed, strict=True)
        ]
    if total > 0:
        return [(share or 0.0) / total for share in fixed]
    return [1 / len(targets)] * len(targets)


def ring_of(targets: Sequence[T]) -> Sequence[T]:
    """The slots of a route. Targets of equal shares stand once each, in the order given."""
    if not targets:
        return ()
    parts = shares(targets)
    if max(parts) - min(parts) < 1e-9:
        return targets
    room = max(SLOTS_MAX // 10, min(SLOTS_MAX, 4 * len(targets)))
    counts = [max(1, round(part * room)) if part > 0 else 0 for part in parts]
    divisor = gcd(*counts)
    places = sorted(
        ((slot + 0.5) / (count // divisor), number)
        for number, count in enumerate(counts)
        for slot in range(count // divisor)
    )
    return tuple(targets[number] for _, number in places)


class TargetState:
    """What is known of one target. open: connections or requests under way. out_until: monotonic seconds."""

    __slots__ = ("failures", "open", "out_until")

    def __init__(self) -> None:
        self.open = 0
        self.failures = 0
        self.out_until = 0.0


class Picker:
    """Picks targets for all routes. Not thread-safe: one loop owns it. seed: for `rnd`."""

    def __init__(self, strategy: Strategy = "rr", seed: int = 1) -> None:
        self._strategy = strategy
        self._chance = seed | 1
        self.states: dict[str, TargetState] = {}
        self.out: set[str] = set()
        """Keys of targets that refused and have not worked since."""

    def pick(self, route: Choice[T], now: float, tried: Collection[str] = ()) -> T | None:
        """A target that is not in `tried`; None when there is none. now: monotonic seconds."""
        ring = route.ring
        if not ring:
            return None
        if route.first:
            return self._first_allowed(route.targets, now, tried)
        if self._strategy == "lc":
            return self._least_connected(route, now, tried)
        if self._strategy == "rr":
            place = route.cursor % len(ring)
            route.cursor = place + 1
        else:
            place = self._draw() % len(ring)
        chosen = ring[place]
        if not self.out and not tried:
            return chosen
        if chosen.key not in tried and self.is_in(chosen.key, now):
            return chosen
        return self._first_allowed([*ring[place + 1 :], *ring[: place + 1]], now, tried)

    def _draw(self) -> int:
        """A xorshift generator: 64 bits of state, no two equal in a row."""
        x = self._chance
        x ^= (x << 13) & 0xFFFF_FFFF_FFFF_FFFF
        x ^= x >> 7
        x ^= (x << 17) & 0xFFFF_FFFF_FFFF_FFFF
        self._chance = x
        return x >> 11

    def _first_allowed(self, order: Sequence[T], now: float, tried: Collection[str]) -> T | None:
        fallback: T | None = None
        for target in order:
            if target.key in tried:
                continue
            if self.is_in(target.key, now):
                return target
            if fallback is None or self._returns_at(target) < self._returns_at(fallback):
                fallback = target
        return fallback

    def _least_connected(self, route: Choice[T], now: float, tried: Collection[str]) -> T | None:
        """Fewest connections for its share; among equals the next in turn. Targets that are out come last."""
        parts = shares(route.targets)
        turn = route.cursor = route.cursor + 1
        count = len(route.targets)
        ranked = [
            (not self.is_in(target.key, now), self._open(target) / part, (place - turn) % count, place)
            for place, (target, part) in enumerate(zip(route.targets, parts, strict=True))
            if target.key not in tried and part > 0
        ]
        return route.targets[min(ranked)[3]] if ranked else None

    def _open(self, target: Pickable) -> int:
        known = self.states.get(target.key)
        return 1 + known.open if known else 1

    def _returns_at(self, target: Pickable) -> float:
        known = self.states.get(target.key)
        return known.out_until if known else 0.0

    def is_in(self, key: str, now: float) -> bool:
        """Whether a target may be picked now."""
        return key not in self.out or self.states[key].out_until <= now

    def began(self, key: str) -> TargetState:
        """A request or connection goes to a target; hand the state back to `ended`."""
        state = self.states.get(key)
        if state is None:
            self._make_room()
            state = self.states[key] = TargetState()
        state.open += 1
        return state

    def ended(self, state: TargetState) -> None:
        """What `began` returned has come to its end."""
        state.open -= 1

    def worked(self, key: str) -> None:
        """The target took a connection."""
        if key in self.out:
            self.out.discard(key)
            self.states[key].failures = 0

    def refused(self, key: str, now: float) -> float:
        """The target took no connection, or ended one without a word; how long it is left out, in seconds."""
        state = self.states.setdefault(key, TargetState())
        out_s = min(OUT_MAX_S, OUT_S * 2.0**state.failures)
        state.failures = min(state.failures + 1, 10)
        state.out_until = now + out_s
        self.out.add(key)
        return out_s

    def _make_room(self) -> None:
        if len(self.states) >= TARGETS_MAX:
            self.states = {key: state for key, state in self.states.items() if state.open}
            self.out &= self.states.keys()
