"""Pure: counters, ratios, rates and latencies of the query frontend, reported in the shape of Clipper's `GET /metrics`.

Every report value is a string, as Clipper's are. Histograms keep the newest samples (Clipper: a uniform sample over all
time), so that percentiles speak of now.
"""

from collections.abc import Iterable, Sequence
from math import exp, sqrt

HISTOGRAM_SAMPLES = 4096
TICK_S = 5.0
"""Seconds between two updates of a meter's moving averages."""


class Counter:
    """How often something happened."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def report(self, now: float) -> dict[str, str]:
        return {"count": str(self.count)}


class Ratio:
    """How often it was so, out of all times."""

    __slots__ = ("hits", "total")

    def __init__(self) -> None:
        self.hits = 0
        self.total = 0

    def report(self, now: float) -> dict[str, str]:
        return {"ratio": str(self.hits / self.total) if self.total else "nan"}


class Meter:
    """Events per second, over all time and as moving averages over 1, 5 and 15 minutes (-1 before the first tick)."""

    __slots__ = ("_averages", "_seen", "_start", "_ticked", "count")

    def __init__(self, now: float) -> None:
        self.count = 0
        self._start = self._ticked = now
        self._seen = 0
        self._averages = [-1.0, -1.0, -1.0]

    def tick(self, now: float) -> None:
        """Bring the averages up to date."""
        if (elapsed := now - self._ticked) < TICK_S:
            return
        rate = (self.count - self._seen) / elapsed
        self._seen, self._ticked = self.count, now
        for position, minutes in enumerate((1, 5, 15)):
            old, keep = self._averages[position], exp(-elapsed / (60 * minutes))
            self._averages[position] = rate if old < 0 else rate + keep * (old - rate)

    @property
    def rate_1min(self) -> float:
        """Events per second of about the last minute; -1 before the first tick."""
        return self._averages[0]

    def report(self, now: float) -> dict[str, str]:
        self.tick(now)
        elapsed = now - self._start
        one, five, fifteen = map(str, self._averages)
        return {
            "unit": "events per second",
            "rate": str(self.count / elapsed if elapsed > 0 else 0.0),
            "rate_1min": one,
            "rate_5min": five,
            "rate_15min": fifteen,
        }


class Histogram:
    """The newest samples of a quantity. count, sum: of all samples there ever were."""

    __slots__ = ("_next", "_samples", "count", "sum", "unit")

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self._samples: list[float] = []
        self._next = 0
        self.count = 0
        self.sum = 0.0

    def add(self, sample: float) -> None:
        self.count += 1
        self.sum += sample
        if len(self._samples) < HISTOGRAM_SAMPLES:
            self._samples.append(sample)
        else:
            self._samples[self._next] = sample
            self._next = (self._next + 1) % HISTOGRAM_SAMPLES

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The samples below which these shares of the newest ones lie; 0 without samples."""
        ordered = sorted(self._samples)
        last = len(ordered) - 1
        return [ordered[min(last, int(share * len(ordered)))] if ordered else 0.0 for share in shares]

    def report(self, now: float) -> dict[str, str]:
        ordered = sorted(self._samples)
        count = len(ordered)
        mean = sum(ordered) / count if count else 0.0
        deviation = sqrt(sum((x - mean) ** 2 for x in ordered) / count) if count else 0.0

        def percentile(share: float) -> str:
            return str(ordered[min(count - 1, int(share * count))] if count else 0.0)

        return {
            "unit": self.unit,
            "size": str(count),
            "min": percentile(0.0),
            "max": percentile(1.0),
            "mean": str(mean),
            "std_dev": str(deviation),
            "p50": percentile(0.5),
            "p95": percentile(0.95),
            "p99": percentile(0.99),
        }


class ApplicationMetrics:
    """What is counted for one application."""

    __slots__ = ("defaults", "latency_us", "throughput")

    def __init__(self, now: float) -> None:
        self.throughput = Meter(now)
        self.defaults = Ratio()
        self.latency_us = Histogram("microseconds")

    def named(self, name: str) -> Iterable[tuple[str, "Metric"]]:
        predictions = Counter()
        predictions.count = self.throughput.count
        yield f"app:{name}:num_predictions", predictions
        yield f"app:{name}:default_prediction_ratio", self.defaults
        yield f"app:{name}:prediction_throughput", self.throughput
        yield f"app:{name}:prediction_latency", self.latency_us


class ModelMetrics:
    """What is counted for one model version. batches: how many left, by reason. failures: queries without output.
    agreement: how often it said the same as the application, as its shadow."""

    __slots__ = ("agreement", "batch_size", "batches", "cache_hits", "failures", "latency_us", "throughput")

    def __init__(self, now: float) -> None:
        self.throughput = Meter(now)
        self.cache_hits = Ratio()
        self.batch_size = Histogram("queries")
        self.latency_us = Histogram("microseconds")
        self.failures = Counter()
        self.batches: dict[str, Counter] = {}
        self.agreement = Ratio()

    def batch_left(self, count: int, reason: str) -> None:
        self.batch_size.add(count)
        self.batches.setdefault(reason, Counter()).count += 1

    def named(self, key: str) -> Iterable[tuple[str, "Metric"]]:
        predictions = Counter()
        predictions.count = self.throughput.count
        yield f"model:{key}:num_predictions", predictions
        yield f"model:{key}:failures", self.failures
        for reason, counter in self.batches.items():
            yield f"model:{key}:batches_{reason}", counter
        yield f"model:{key}:cache_hit_ratio", self.cache_hits
        if self.agreement.total:
            yield f"model:{key}:shadow_agreement", self.agreement
        yield f"model:{key}:prediction_throughput", self.throughput
        yield f"model:{key}:prediction_latency", self.latency_us
        yield f"model:{key}:batch_size", self.batch_size


Metric = Counter | Ratio | Meter | Histogram

_SECTIONS = (("counters", Counter), ("ratio_counters", Ratio), ("meters", Meter), ("histograms", Histogram))


def report(metrics: Iterable[tuple[str, Metric]], now: float) -> dict[str, list[dict[str, dict[str, str]]]]:
    """All metrics as Clipper's JSON object; a section without metrics is left out."""
    sections: dict[str, list[dict[str, dict[str, str]]]] = {}
    listed = list(metrics)
    for title, kind in _SECTIONS:
        if reports := [{name: metric.report(now)} for name, metric in listed if type(metric) is kind]:
            sections[title] = reports
    return sections
