"""Pure: what a query frontend knows of itself: for Prometheus as text, and as the one object behind `lepa model top`.

`metrics.report` is the third view, the JSON of Clipper's `GET /metrics`. Counters count since the frontend began, so a
reader takes the difference of two readings; quantiles are those of the newest samples.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lepa.serving.metrics import Histogram
from lepa.serving.query import Predictions
from lepa.serving.served import Replica, ServedApplication, ServedModel

QUANTILES = (0.5, 0.95, 0.99)

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""Suffix of the name, labels, value."""


def prometheus(predictions: Predictions) -> str:
    """All metrics in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for name, kind, meaning, samples in _families(predictions):
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{suffix}{_labels(labels)} {value:.10g}" for suffix, labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(predictions: Predictions) -> Iterable[tuple[str, str, str, list[Sample]]]:
    """Name, type, meaning and samples of each family."""
    apps = [({"app": name}, app) for name, app in predictions.applications.items()]
    models = [(_model_labels(model), model) for model in predictions.models.values()]
    replicas = [(_replica_labels(replica), replica) for replica in predictions.replicas.values()]

    yield _counter("predictions", "Answers to queries", ((k, a.metrics.defaults.total) for k, a in apps))
    yield _counter("defaults", "Answers that were the default", ((k, a.metrics.defaults.hits) for k, a in apps))
    yield _summary("latency_seconds", "From query to answer", ((k, a.metrics.latency_us) for k, a in apps), 1e-6)
    yield _counter("model_predictions", "Outputs of models", ((k, m.metrics.throughput.count) for k, m in models))
    yield _counter("model_failures", "Queries without an output", ((k, m.metrics.failures.count) for k, m in models))
    yield _counter("cache_lookups", "Looks into the cache", ((k, m.metrics.cache_hits.total) for k, m in models))
    yield _counter("cache_hits", "Outputs found in the cache", ((k, m.metrics.cache_hits.hits) for k, m in models))
    yield _gauge("queued", "Inputs that wait for a replica", ((k, m.batcher.queued) for k, m in models))
    yield _gauge("replicas", "Connected replicas", ((k, m.batcher.replica_count) for k, m in models))
    yield _summary("batch_size", "Inputs in a batch", ((k, m.metrics.batch_size) for k, m in models), 1.0)
    yield _summary("model_latency_seconds", "Query to output", ((k, m.metrics.latency_us) for k, m in models), 1e-6)
    yield _counter("replica_predictions", "Inputs sent to a replica", ((k, r.work.predictions) for k, r in replicas))
    yield _counter("replica_busy_seconds", "Time with a batch", ((k, r.work.busy_s) for k, r in replicas))
    sent = (({**k, "reason": why}, count) for k, r in replicas for why, count in r.work.batches.items())
    yield _counter("batches", "Batches sent to a replica, and why each left", sent)


def _counter(name: str, meaning: str, values: Iterable[tuple[Labels, float]]) -> tuple[str, str, str, list[Sample]]:
    return f"lepa_serving_{name}_total", "counter", meaning, [("", labels, value) for labels, value in values]


def _gauge(name: str, meaning: str, values: Iterable[tuple[Labels, float]]) -> tuple[str, str, str, list[Sample]]:
    return f"lepa_serving_{name}", "gauge", meaning, [("", labels, value) for labels, value in values]


def _summary(
    name: str, meaning: str, values: Iterable[tuple[Labels, Histogram]], scale: float
) -> tuple[str, str, str, list[Sample]]:
    samples: list[Sample] = []
    for labels, histogram in values:
        found = histogram.quantiles(QUANTILES)
        samples += [
            ("", {**labels, "quantile": str(share)}, value * scale)
            for share, value in zip(QUANTILES, found, strict=True)
        ]
        samples += [("_sum", labels, histogram.sum * scale), ("_count", labels, histogram.count)]
    return f"lepa_serving_{name}", "summary", meaning, samples


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _model_labels(model: ServedModel) -> dict[str, str]:
    return {"model": model.name, "version": model.version}


def _replica_labels(replica: Replica) -> dict[str, str]:
    return {**_model_labels(replica.model), "replica": str(replica.replica_id)}


def top(predictions: Predictions, now: float) -> dict[str, Any]:
    """Applications and models with what they do now."""
    return {
        "applications": [_application_row(app) for app in predictions.applications.values()],
        "models": [_model_row(predictions, model, now) for model in predictions.models.values()],
    }


def _application_row(app: ServedApplication) -> dict[str, Any]:
    defaults = app.metrics.defaults
    median, slow = app.metrics.latency_us.quantiles((0.5, 0.99))
    return {
        "name": app.name,
        "predictions": defaults.total,
        "defaults": defaults.hits,
        "rate_1min": app.metrics.throughput.rate_1min,
        "p50_ms": median / 1e3,
        "p99_ms": slow / 1e3,
        "slo_ms": app.slo_s * 1e3,
        "arms": list(app.arms),
        "policy": app.record.policy,
    }


def _model_row(predictions: Predictions, model: ServedModel, now: float) -> dict[str, Any]:
    metrics = model.metrics
    median, slow = metrics.latency_us.quantiles((0.5, 0.99))
    mine = [replica for replica in predictions.replicas.values() if replica.model is model]
    return {
        "model": model.name,
        "version": model.version,
        "replicas": model.batcher.replica_count,
        "queued": model.batcher.queued,
        "predictions": metrics.throughput.count,
        "failures": metrics.failures.count,
        "rate_1min": metrics.throughput.rate_1min,
        "p50_ms": median / 1e3,
        "p99_ms": slow / 1e3,
        "batch_p50": metrics.batch_size.quantiles((0.5,))[0],
        "batch_limit": max((model.batcher.batch_size(replica.id) for replica in mine), default=0),
        "batches": {reason: counter.count for reason, counter in metrics.batches.items()},
        "busy_s": sum(replica.work.busy_s for replica in mine),
        "streams": model.streams.open,
        "streams_begun": model.streams.begun,
        "streams_s": model.streams.seconds(now),
        "cache_lookups": metrics.cache_hits.total,
        "cache_hits": metrics.cache_hits.hits,
    }
