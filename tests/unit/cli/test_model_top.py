"""Two looks at the query frontends, and what they say together."""

from typing import Any

from lepa.cli.model_top import Look, render
from lepa.cli.output import bare


def application(predictions: int, defaults: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "predictions": predictions,
        "defaults": defaults,
        "p50_ms": 1.5,
        "p99_ms": 12.4,
        "slo_ms": 100.0,
        "arms": ["trees:1"],
        "policy": "single",
        **fields,
    }


def model(predictions: int, busy_s: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {
        "model": "trees",
        "version": "1",
        "replicas": 2,
        "queued": 1,
        "predictions": predictions,
        "failures": 0,
        "p50_ms": 1.25,
        "p99_ms": 11.0,
        "batch_p50": 4,
        "batch_limit": 16,
        "busy_s": busy_s,
        "cache_lookups": 0,
        "cache_hits": 0,
        **fields,
    }


def look(app: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {"applications": [app], "models": [row]}


def rows(text: str) -> list[list[str]]:
    """The cells of the application's row and of the model's."""
    return [line.split() for line in text.split("\n") if line.startswith(("digits", "trees"))]


def test_rates_and_shares_are_those_of_the_time_between_two_looks() -> None:
    before = {"a:1337": look(application(100, 90), model(100, 7.0, cache_lookups=10, cache_hits=10))}
    after = {"a:1337": look(application(140, 94), model(120, 9.0, cache_lookups=50, cache_hits=20))}
    assert bare(render(before, after, 2.0)) == (
        "Applications\n"
        "Application  Policy  Queries/s  Defaults  p50     p99   SLO    Models\n"
        "digits       single  20.0       10.0%     1.50ms  12ms  100ms  trees:1\n"
        "\n"
        "Models\n"
        "Model    Replicas  Busy   Queued  Outputs/s  Failed/s  p50     p99   Batch  Limit  Cache Hits\n"
        "trees:1  2         50.0%  1       10.0       0.0       1.25ms  11ms  4      16     25.0%"
    )


def test_frontends_add_up_and_share_their_replicas() -> None:
    before = {name: look(application(0), model(0)) for name in "ab"}
    after = {
        "a": look(application(10), model(10, 0.5, p99_ms=5.0)),
        "b": look(application(30), model(20, 0.5, p99_ms=8.0)),
    }
    app, row = rows(render(before, after, 1.0))
    assert app[2] == "40.0"
    assert row[1:8] == ["2", "50.0%", "2", "30.0", "0.0", "1.25ms", "8.00ms"]


def test_a_frontend_that_began_anew_counts_from_nothing_and_a_new_one_begins_to_count() -> None:
    before = {"a": look(application(1000), model(1000))}
    after = {"a": look(application(5), model(5)), "b": look(application(9000), model(9000))}
    app, row = rows(render(before, after, 1.0))
    assert (app[2], row[4]) == ("5.0", "5.0")


def test_what_is_registered_between_two_looks_has_done_all_of_it_since() -> None:
    before: Look = {"a": {"applications": [], "models": []}}
    app, row = rows(render(before, {"a": look(application(6), model(4))}, 2.0))
    assert (app[2], row[4]) == ("3.0", "2.0")


def test_without_time_queries_or_rows_nothing_is_made_up() -> None:
    same = {"a": look(application(1), model(1, replicas=0))}
    app, row = rows(render(same, same, 0.0))
    assert (app[2:4], row[2]) == (["-", "-"], "-")
    assert "No applications registered" in render({}, {"a": {"applications": [], "models": []}}, 1.0)
