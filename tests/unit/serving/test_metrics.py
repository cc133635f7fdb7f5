"""lepa.serving.metrics"""

from lepa.serving.metrics import (
    HISTOGRAM_SAMPLES,
    ApplicationMetrics,
    Counter,
    Histogram,
    Meter,
    ModelMetrics,
    Ratio,
    report,
)


def test_the_report_has_clippers_shape_and_only_sections_that_hold_something() -> None:
    assert report([], 0.0) == {}
    found = report([("a", Counter()), ("b", Ratio()), ("c", Meter(0.0)), ("d", Histogram("queries"))], 10.0)
    assert list(found) == ["counters", "ratio_counters", "meters", "histograms"]
    assert found["counters"] == [{"a": {"count": "0"}}]
    assert found["ratio_counters"] == [{"b": {"ratio": "nan"}}]
    assert list(found["histograms"][0]["d"]) == ["unit", "size", "min", "max", "mean", "std_dev", "p50", "p95", "p99"]
    assert all(isinstance(value, str) for value in found["meters"][0]["c"].values())


def test_a_meter_reports_its_rate_and_moving_averages() -> None:
    meter = Meter(0.0)
    assert meter.report(1.0)["rate_1min"] == "-1.0"
    meter.count = 50
    assert meter.report(5.0) == {
        "unit": "events per second",
        "rate": "10.0",
        "rate_1min": "10.0",
        "rate_5min": "10.0",
        "rate_15min": "10.0",
    }
    meter.tick(65.0)
    assert float(meter.report(65.0)["rate_1min"]) < float(meter.report(65.0)["rate_15min"]) < 10.0


def test_a_histogram_keeps_the_newest_samples() -> None:
    histogram = Histogram("microseconds")
    for sample in range(2 * HISTOGRAM_SAMPLES):
        histogram.add(sample)
    found = histogram.report(0.0)
    assert found["size"] == str(HISTOGRAM_SAMPLES)
    assert found["min"] == str(HISTOGRAM_SAMPLES)
    assert found["max"] == str(2 * HISTOGRAM_SAMPLES - 1)
    assert found["p50"] == str(HISTOGRAM_SAMPLES + HISTOGRAM_SAMPLES // 2)


def test_metrics_have_clippers_names() -> None:
    model = ModelMetrics(0.0)
    model.batch_left(3, "full")
    assert {name for name, _ in ApplicationMetrics(0.0).named("a")} == {
        "app:a:num_predictions",
        "app:a:default_prediction_ratio",
        "app:a:prediction_throughput",
        "app:a:prediction_latency",
    }
    assert {
        "model:m:1:num_predictions",
        "model:m:1:cache_hit_ratio",
        "model:m:1:prediction_throughput",
        "model:m:1:prediction_latency",
        "model:m:1:batch_size",
        "model:m:1:batches_full",
        "model:m:1:failures",
    } == {name for name, _ in model.named("m:1")}
