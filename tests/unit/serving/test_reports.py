"""lepa.serving.reports"""

import math

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.serving.test_query import Frontend

from lepa.serving.reports import prometheus, top


def busy_frontend() -> Frontend:
    frontend = Frontend(replicas=2)
    frontend.ask(b"a")
    frontend.turn()
    frontend.now = 0.01
    frontend.answer(b"1")
    frontend.ask(b"a")
    frontend.now += 1.0
    frontend.turn()
    return frontend


def samples(frontend: Frontend) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(prometheus(frontend.predictions))
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


def test_prometheus_reads_counts_per_application_model_version_and_replica() -> None:
    found = samples(busy_frontend())
    assert found["lepa_serving_predictions_total", ("app",)] == 2
    assert found["lepa_serving_defaults_total", ("app",)] == 0
    assert found["lepa_serving_model_predictions_total", ("m", "2")] == 1
    assert found["lepa_serving_cache_hits_total", ("m", "2")] == 1
    assert found["lepa_serving_batches_total", ("m", "2", "0", "full")] == 1
    assert math.isclose(found["lepa_serving_replica_busy_seconds_total", ("m", "2", "0")], 0.01)
    assert found["lepa_serving_replicas", ("m", "2")] == 2
    assert found["lepa_serving_latency_seconds_count", ("app",)] == 2
    assert math.isclose(found["lepa_serving_model_latency_seconds", ("m", "2", "0.5")], 0.01)


def test_names_that_need_it_are_escaped() -> None:
    frontend = busy_frontend()
    frontend.predictions.applications['a"\\\n'] = frontend.predictions.applications.pop("app")
    assert samples(frontend)["lepa_serving_predictions_total", ('a"\\\n',)] == 2


def test_top_has_a_row_for_each_application_and_model() -> None:
    found = top(busy_frontend().predictions, 0.0)
    (app,) = found["applications"]
    assert (app["name"], app["predictions"], app["slo_ms"], app["arms"]) == ("app", 2, 100.0, ["m:2"])
    row = next(row for row in found["models"] if row["version"] == "2")
    assert (row["replicas"], row["predictions"], row["cache_hits"], row["batches"]) == (2, 1, 1, {"full": 1})
    assert row["batch_limit"] >= 1
