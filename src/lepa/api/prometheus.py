"""Metrics in Prometheus' text format, built when they are asked for.

Names have underscores for dots. Gauges and counters keep theirs; a sample becomes a summary without quantiles
(`_sum`, `_count`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from lepa.kit.telemetry import Labels, Metrics

_ODD = re.compile(r"[^a-zA-Z0-9_:]")


def exposition(metrics: Metrics) -> bytes:
    """All series of `metrics` as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Series(metrics))
    return generate_latest(registry)


class _Series(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """One family a name; series of a name that have other label names than its first are families of their own."""
        for name, names, rows in _families(self._metrics.gauges):
            gauge = GaugeMetricFamily(name, name, labels=names)
            for values, value in rows:
                gauge.add_metric(values, value)
            yield gauge
        for name, names, rows in _families(self._metrics.totals):
            counter = CounterMetricFamily(name, name, labels=names)
            for values, value in rows:
                counter.add_metric(values, value)
            yield counter
        sums = {key: sample.total for key, sample in self._metrics.sums.items()}
        counts = {key: sample.count for key, sample in self._metrics.sums.items()}
        for (name, names, totals), (_, _, numbers) in zip(_families(sums), _families(counts), strict=True):
            summary = SummaryMetricFamily(name, name, labels=names)
            for (values, total), (_, number) in zip(totals, numbers, strict=True):
                summary.add_metric(values, count_value=int(number), sum_value=total)
            yield summary


def _families(
    series: "dict[tuple[str, Labels], float] | dict[tuple[str, Labels], int]",
) -> Iterator[tuple[str, list[str], list[tuple[list[str], float]]]]:
    grouped: dict[tuple[str, tuple[str, ...]], list[tuple[list[str], float]]] = defaultdict(list)
    for (name, labels), value in sorted(series.items()):
        key = (_ODD.sub("_", name), tuple(_ODD.sub("_", label) for label, _ in labels))
        grouped[key].append(([text for _, text in labels], value))
    for (name, names), rows in grouped.items():
        yield name, list(names), rows
