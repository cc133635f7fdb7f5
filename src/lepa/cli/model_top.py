"""Pure: what serving does now, as people see it: the difference of two looks at `GET /top` of every query frontend.

Counters of several frontends add up, for each query is asked of one of them. Every replica is connected to all of them,
so the most that any has counts, and a latency is that of the slowest. A frontend that began anew counts from nothing;
one that was not seen before only begins to count.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lepa.cli.output import Json, paint, table

Look = dict[str, Json]
"""The answers of the frontends, by address."""

APPLICATION = ("Application", "Policy", "Queries/s", "Defaults", "p50", "p99", "SLO", "Models")
MODEL = ("Model", "Replicas", "Busy", "Queued", "Outputs/s", "Failed/s", "p50", "p99", "Batch", "Limit", "Cache Hits")


class Pair(NamedTuple):
    """One row of one frontend, and the same row at the look before: {} where it was not there."""

    before: Json
    after: Json


def render(before: Look, after: Look, elapsed_s: float) -> str:
    """Both tables, for the time between two looks."""
    applications = [
        _application(pairs, elapsed_s) for pairs in _pairs(before, after, "applications", lambda row: str(row["name"]))
    ]
    models = [_model(pairs, elapsed_s) for pairs in _pairs(before, after, "models", _model_key)]
    return "\n\n".join(
        (
            _titled("Applications", table(APPLICATION, applications) if applications else "No applications registered"),
            _titled("Models", table(MODEL, models) if models else "No models connected"),
        )
    )


def _titled(title: str, body: str) -> str:
    return f"{paint(title, 'bold')}\n{body}"


def _model_key(row: Json) -> str:
    return f"{row['model']}:{row['version']}"


def _pairs(before: Look, after: Look, kind: str, key: Callable[[Json], str]) -> Iterable[Sequence[Pair]]:
    """The rows of one application or model at all frontends, in the order of their names."""
    found: dict[str, list[Pair]] = {}
    for address, answer in after.items():
        old = {key(row): row for row in before.get(address, answer)[kind]}
        for row in answer[kind]:
            found.setdefault(key(row), []).append(Pair(old.get(key(row), {}), row))
    return [found[name] for name in sorted(found)]


def _application(pairs: Sequence[Pair], elapsed_s: float) -> Sequence[object]:
    row = pairs[0].after
    queries = _grown(pairs, "predictions")
    return (
        row["name"],
        row["policy"],
        _rate(queries, elapsed_s),
        _share(_grown(pairs, "defaults"), queries),
        _ms(_most(pairs, "p50_ms")),
        _ms(_most(pairs, "p99_ms")),
        _ms(row["slo_ms"]),
        ",".join(row["arms"]),
    )


def _model(pairs: Sequence[Pair], elapsed_s: float) -> Sequence[object]:
    replicas = _most(pairs, "replicas")
    return (
        _model_key(pairs[0].after),
        f"{replicas:.0f}",
        _share(_grown(pairs, "busy_s"), replicas * elapsed_s),
        sum(pair.after["queued"] for pair in pairs),
        _rate(_grown(pairs, "predictions"), elapsed_s),
        _rate(_grown(pairs, "failures"), elapsed_s),
        _ms(_most(pairs, "p50_ms")),
        _ms(_most(pairs, "p99_ms")),
        f"{_most(pairs, 'batch_p50'):.0f}",
        f"{_most(pairs, 'batch_limit'):.0f}",
        _share(_grown(pairs, "cache_hits"), _grown(pairs, "cache_lookups")),
    )


def _grown(pairs: Sequence[Pair], counter: str) -> float:
    """How far a counter went, over all frontends; one that is less than before began anew."""
    return sum(_growth(pair.before.get(counter, 0), pair.after[counter]) for pair in pairs)


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after


def _most(pairs: Sequence[Pair], field: str) -> float:
    return max(float(pair.after[field]) for pair in pairs)


def _rate(count: float, elapsed_s: float) -> str:
    return f"{count / elapsed_s:.1f}" if elapsed_s > 0 else "-"


def _share(part: float, whole: float) -> str:
    return f"{min(part / whole, 1):.1%}" if whole > 0 else "-"


def _ms(value: float) -> str:
    return f"{value:.2f}ms" if value < 10 else f"{value:.0f}ms"
