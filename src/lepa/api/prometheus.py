"""Metrics in Prometheus' text format, built when they are asked for.

Names are Nomad's with underscores for dots and dashes, so that its dashboards find them. A counter keeps its name too,
without the suffix `_total` that Prometheus would give it, and so is shown as untyped; a sample becomes a summary with
the quantiles 0.5, 0.9 and 0.99 of its newest values.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from lepa.kit.statsd import Labels
from lepa.kit.telemetry import Metrics

_ODD = re.compile(r"[^a-zA-Z0-9_:]")
Series = tuple[tuple[str, Labels], float]


def exposition(metrics: Metrics) -> bytes:
    """All series of `metrics` as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Series(metrics))
    return generate_latest(registry)


class _Series(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """One family a name."""
        metrics = self._metrics
        for name, rows in _families(metrics.all_gauges()):
            yield _family(name, "gauge", rows)
        for name, rows in _families({key: n for key, n in list(metrics.totals.items()) if metrics.shows(key[0])}):
            yield _family(name, "unknown", rows)
        shown = {key: float(sample.count) for key, sample in list(metrics.sums.items()) if metrics.shows(key[0])}
        for name, series in _families(shown):
            summary = Metric(name, _about(name), "summary")
            for key, count in series:
                labels = _labels(key[1])
                for share, value in metrics.quantiles(key):
                    summary.add_sample(name, {**labels, "quantile": f"{share:g}"}, value)
                summary.add_sample(f"{name}_count", labels, count)
                summary.add_sample(f"{name}_sum", labels, metrics.sums[key].total)
            yield summary


def _family(name: str, kind: str, rows: list[Series]) -> Metric:
    family = Metric(name, _about(name), kind)
    for (_, labels), value in rows:
        family.add_sample(name, _labels(labels), value)
    return family


def _labels(labels: Labels) -> dict[str, str]:
    return {_ODD.sub("_", name): text for name, text in labels}


def _about(name: str) -> str:
    """What a family is, as far as its name tells."""
    return name.replace("_", " ")


def _families(series: Mapping[tuple[str, Labels], float]) -> Iterator[tuple[str, list[Series]]]:
    """Series by their exposed name, in order."""
    grouped: dict[str, list[Series]] = defaultdict(list)
    for key, value in sorted(series.items()):
        grouped[_ODD.sub("_", key[0])].append((key, value))
    yield from grouped.items()
