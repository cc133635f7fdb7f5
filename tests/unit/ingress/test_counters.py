import re

from lepa.ingress.counters import BUCKETS_S, SERVICES_MAX, TOTALS, Counters

GAUGE = {"routes": 3.0, "open_connections": 2}


def test_everything_is_shown_in_prometheus_form() -> None:
    counters = Counters()
    counters.add("no_route_total", 2)
    counters.of("web").served(200, 0.003, 10, 20)
    counters.of("web").served(503, 100.0, 0, 5)
    text = counters.exposition(GAUGE)
    assert "lepa_ingress_no_route_total 2\n" in text
    assert 'lepa_ingress_requests_total{service="web",code="2xx"} 1\n' in text
    assert 'lepa_ingress_requests_total{service="web",code="5xx"} 1\n' in text
    assert 'lepa_ingress_request_seconds_bucket{service="web",le="0.005"} 1\n' in text
    assert f'lepa_ingress_request_seconds_bucket{{service="web",le="{BUCKETS_S[-1]}"}} 1\n' in text
    assert 'lepa_ingress_request_seconds_bucket{service="web",le="+Inf"} 2\n' in text
    assert 'lepa_ingress_received_bytes_total{service="web"} 10\n' in text
    assert 'lepa_ingress_sent_bytes_total{service="web"} 25\n' in text
    assert "lepa_ingress_routes 3.0\n" in text
    line = re.compile(r"(# (HELP|TYPE) .+|lepa_ingress_\w+(\{[^}]*\})? [\d.e+-]+)")
    assert [row for row in text.splitlines() if not line.fullmatch(row)] == []
    assert all(f"# TYPE lepa_ingress_{name} counter" in text for name in TOTALS)


def test_names_of_services_are_quoted() -> None:
    counters = Counters()
    counters.of('a"b\\c\n').served(200, 0, 0, 0)
    assert 'service="a\\"b\\\\c\\n"' in counters.exposition({})


def test_services_beyond_the_bound_are_counted_as_one() -> None:
    counters = Counters()
    for number in range(SERVICES_MAX + 5):
        counters.of(f"s{number}").failed += 1
    assert len(counters.services) == SERVICES_MAX + 1
    assert counters.services[""].failed == 5
