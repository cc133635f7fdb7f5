"""Pure: how large a batch may be, learned from how long batches took: the published policies, by name.

    aimd         grow by a step while full batches stay within the objective, shrink by a tenth above it: the paper's
                 default, with the steps of the Rust prototype
    quantile     AIMD for the first batches; then a line through the 99th percentile of latency over size is fitted, and
                 the size at which it meets the objective is kept for good (the paper's second policy)
    ridge        what Clipper's last release did: explore while batches are quick, else estimate the size that fits from
                 the statistics of each size by a regression
    throughput   Clipper 0.2: what the average throughput of recent batches gives in the time there is
    fixed        always the same

A policy sees the count and latency of each batch and the objective of one batch, and offers a `size`. The padding that
Clipper's exploration sent to models (copies of a query, thrown away) is left out: only batches that are full teach it.
Its random growth by 10 % on average is 10 % here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import Protocol

from msgspec import Struct

from lepa.model.errors import invalid

BATCH_SIZE_MAX = 1024
"""Queries in one batch, whatever a policy learns."""
WAIT_US_MAX = 1_000_000


class BatchSize(Protocol):
    """Learns how many queries one replica may get at once."""

    size: int

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        """A batch of `count` took `latency_s`; it should take at most `objective_s`."""


class AimdSize:
    """Additive increase, multiplicative decrease, as the paper's and the Rust prototype's: + 2 below 90 % of the
    objective when the batch was full, x 0.9 above the objective, hold in between."""

    STEP = 2
    BACKOFF = 0.9
    CALM = 0.9

    def __init__(self) -> None:
        self.size = 1

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        if latency_s > objective_s:
            self.size = max(1, int(self.size * self.BACKOFF))
        elif latency_s < self.CALM * objective_s and count >= self.size:
            self.size = min(BATCH_SIZE_MAX, self.size + self.STEP)


class FixedSize:
    """Always the same size."""

    def __init__(self, size: int) -> None:
        self.size = min(size, BATCH_SIZE_MAX)

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        """Nothing to learn."""


class QuantileSize:
    """AIMD until `SAMPLES` batches are seen, then a size for good. Where all batches were equally large there is no
    line to fit, and AIMD goes on."""

    SAMPLES = 200
    QUANTILE = 0.99

    def __init__(self) -> None:
        self._aimd = AimdSize()
        self._samples: list[tuple[int, float]] = []
        self._frozen = False
        self.size = 1

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        if self._frozen:
            return
        self._samples.append((count, latency_s))
        self._aimd.observe(count, latency_s, objective_s)
        self.size = self._aimd.size
        if len(self._samples) >= self.SAMPLES:
            slope, base = quantile_line(self._samples, self.QUANTILE)
            self._samples.clear()
            if slope > 0:
                self._frozen = True
                self.size = _bounded((objective_s - base) / slope)


def quantile_line(samples: list[tuple[int, float]], quantile: float) -> tuple[float, float]:
    """Slope and base of the line below which that share of (x, y) lies, by reweighted least squares: a sample above the
    line weighs `quantile`, one below 1 - `quantile`, both over their distance. (0, 0) where all x are equal."""
    if len({x for x, _ in samples}) < 2:
        return 0.0, 0.0
    slope, base = _weighted_line([(x, y, 1.0) for x, y in samples])
    for _ in range(FIT_ROUNDS):
        least = FIT_LEAST * max(y for _, y in samples)
        weighted = []
        for x, y in samples:
            off = y - slope * x - base
            weighted.append((x, y, (quantile if off > 0 else 1 - quantile) / max(abs(off), least)))
        slope, base = _weighted_line(weighted)
    return slope, base


FIT_ROUNDS = 30
FIT_LEAST = 1e-4
"""Distance from the line, as a share of the largest value, below which a sample weighs no more."""


def _weighted_line(samples: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    total = sum(w for _, _, w in samples)
    mean_x = sum(w * x for x, _, w in samples) / total
    mean_y = sum(w * y for _, y, w in samples) / total
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in samples)
    slope = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in samples) / spread if spread else 0.0
    return slope, mean_y - slope * mean_x


class _Seen:
    """Latencies of batches of one size: how many, their mean, and the squared distances from it."""

    __slots__ = ("count", "mean", "squares")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0

    def add(self, latency_s: float) -> None:
        self.count += 1
        off = latency_s - self.mean
        self.mean += off / self.count
        self.squares += off * (latency_s - self.mean)


class RidgeSize:
    """Explores while the time there is exceeds the slowest batch so far, and estimates when it does not."""

    BUDGET = 0.92
    SURE = 5
    """Batches of a size that make its statistics count, and that are waited for before a larger one is tried."""
    SMALL = 10
    GROWTH = 1.1
    DEVIATIONS = 3.0
    """Above the mean: what stands for the 99th percentile."""
    RIDGE = 1e-6
    FORGET_AFTER = 256
    """Batches until the slowest one is forgotten, so that one hiccup does not end exploring."""

    def __init__(self) -> None:
        self.size = 1
        self._seen: dict[int, _Seen] = {}
        self._slowest_s = 0.0
        self._since = 0

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        self._seen.setdefault(count, _Seen()).add(latency_s)
        self._since += 1
        if self._since >= self.FORGET_AFTER:
            self._since, self._slowest_s = 0, 0.0
        self._slowest_s = max(self._slowest_s, latency_s)
        budget_s = objective_s * self.BUDGET
        self.size = self._explored() if budget_s > self._slowest_s else self._estimated(budget_s)

    def _explored(self) -> int:
        if self.size not in self._seen or self._seen[self.size].count < self.SURE:
            return self.size
        return min(BATCH_SIZE_MAX, self.size + 1 if self.size < self.SMALL else int(self.size * self.GROWTH))

    def _estimated(self, budget_s: float) -> int:
        """The size at which a batch takes `budget_s` at the 99th percentile, by a regression of size on latency."""
        sure = {size: seen for size, seen in self._seen.items() if seen.count >= self.SURE}
        if len(sure) < 2:
            return max(1, int(self.size * AimdSize.BACKOFF))
        deviation = sqrt(sum(seen.squares for seen in sure.values()) / sum(seen.count for seen in sure.values()))
        slow = {size: seen.mean + self.DEVIATIONS * deviation for size, seen in sure.items()}
        mean_size, mean_s = sum(slow) / len(slow), sum(slow.values()) / len(slow)
        spread = sum((latency - mean_s) ** 2 for latency in slow.values())
        both = sum((latency - mean_s) * (size - mean_size) for size, latency in slow.items())
        slope = both / (spread + self.RIDGE * mean_s**2)
        return _bounded(mean_size + slope * (budget_s - mean_s))


class ThroughputSize:
    """Average throughput of the newest batches, times the time there is."""

    NEWEST = 50

    def __init__(self) -> None:
        self.size = 1
        self._newest: deque[tuple[int, float]] = deque(maxlen=self.NEWEST)

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        self._newest.append((count, latency_s))
        took_s = sum(latency for _, latency in self._newest)
        if took_s > 0:
            self.size = _bounded(sum(size for size, _ in self._newest) / took_s * objective_s)


def _bounded(size: float) -> int:
    return max(1, int(min(BATCH_SIZE_MAX, size)))


ADAPTIVE: dict[str, Callable[[], BatchSize]] = {
    "aimd": AimdSize,
    "quantile": QuantileSize,
    "ridge": RidgeSize,
    "throughput": ThroughputSize,
}
FIXED = "fixed"


class Batching(Struct, frozen=True, forbid_unknown_fields=True):
    """How the batches of a model version are made. policy: a name of the module's table. size: of `fixed`. wait_us: a
    batch that is not full waits so long for more (delayed batching); 0 leaves at once, but for the wait that is
    learned."""

    policy: str = "aimd"
    size: int = 0
    wait_us: int = 0


def check_batching(batching: Batching) -> None:
    """Raise LepaError(invalid) for what is no way to batch."""
    if batching.policy not in (*ADAPTIVE, FIXED):
        raise invalid(f'"{batching.policy}" is no batching policy; known are {", ".join(ADAPTIVE)}, {FIXED}')
    if (batching.policy == FIXED) != (batching.size > 0) or batching.size < 0:
        raise invalid(f"policy {FIXED}, and no other, has a size of at least 1; {batching.policy} has {batching.size}")
    if not 0 <= batching.wait_us <= WAIT_US_MAX:
        raise invalid(f"wait_us must be in 0..{WAIT_US_MAX}, not {batching.wait_us}")


def sizes_of(batching: Batching) -> Callable[[], BatchSize]:
    """What makes the policy of each replica."""
    return partial(FixedSize, batching.size) if batching.policy == FIXED else ADAPTIVE[batching.policy]
