"""Logs and metrics of lepa itself."""

import io
import json
import logging
from pathlib import Path

import pytest
from aiohttp.http_exceptions import BadStatusLine

from lepa.kit import telemetry
from lepa.kit.telemetry import INTERVAL_S, Metrics, log_path, log_to_file, set_up_logging


@pytest.fixture
def stream() -> io.StringIO:
    loggers = [logging.getLogger(name) for name in ("lepa", "aiohttp.server")]
    before = [(logger.handlers, logger.filters, logger.propagate, logger.level) for logger in loggers]
    yield io.StringIO()
    for logger, state in zip(loggers, before, strict=True):
        logger.handlers, logger.filters, logger.propagate, logger.level = state


def _report(error: Exception, stream: io.StringIO) -> str:
    set_up_logging(stream=stream)
    try:
        raise error
    except Exception:
        logging.getLogger("aiohttp.server").exception("Error handling request from %s", "::1")
    return stream.getvalue()


@pytest.mark.parametrize("error", [BadStatusLine("GET / HTTP/9.9"), ConnectionResetError("gone")])
def test_a_request_that_cannot_be_read_is_a_line_without_a_traceback(error: Exception, stream: io.StringIO) -> None:
    found = _report(error, stream)
    assert "[INFO] aiohttp.server: Error handling request from ::1 error=" in found
    assert found.count("\n") == 1


def test_a_mistake_of_our_own_keeps_its_traceback(stream: io.StringIO) -> None:
    assert "ZeroDivisionError" in _report(ZeroDivisionError(), stream)


def test_a_log_line_has_time_level_and_part(stream: io.StringIO) -> None:
    set_up_logging("info", stream=stream)
    logging.getLogger("lepa.server").info("job registered job_id=%s", "web")
    line = stream.getvalue()
    assert line.endswith("Z [INFO] server: job registered job_id=web\n")


def test_lines_below_the_level_are_left_out(stream: io.StringIO) -> None:
    set_up_logging("warning", stream=stream)
    logging.getLogger("lepa.server").info("nothing")
    assert stream.getvalue() == ""


def test_json_lines_hold_the_same_facts_and_the_failure(stream: io.StringIO) -> None:
    set_up_logging("info", as_json=True, stream=stream)
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("lepa.client").exception("task failed")
    entry = json.loads(stream.getvalue())
    assert (entry["@level"], entry["@module"], entry["@message"]) == ("error", "client", "task failed")
    assert "ValueError: bad" in entry["error"]


def test_a_closed_interval_is_shown_with_its_figures() -> None:
    metrics = Metrics()
    metrics.tick(0.0)
    for value in (1.0, 2.0, 3.0):
        metrics.sample("nomad.wait", value, kind="x")
    metrics.count("nomad.calls", 2)
    metrics.gauge("nomad.size", 7)
    metrics.tick(INTERVAL_S)
    shown = metrics.summary("now")
    assert shown["Gauges"] == [{"Name": "nomad.size", "Value": 7, "Labels": {}}]
    [sample] = shown["Samples"]
    assert (sample["Count"], sample["Sum"], sample["Min"], sample["Max"], sample["Mean"], sample["Stddev"]) == (
        3, 6.0, 1.0, 3.0, 2.0, 1.0,
    )  # fmt: skip
    assert sample["Labels"] == {"kind": "x"}
    [counter] = shown["Counters"]
    assert (counter["Name"], counter["Sum"], counter["Rate"]) == ("nomad.calls", 2, 2 / INTERVAL_S)


def test_an_interval_closes_only_when_it_is_over() -> None:
    metrics = Metrics()
    metrics.tick(0.0)
    metrics.count("a")
    metrics.tick(INTERVAL_S - 1)
    assert not metrics.closed.counters


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "SERIES_MAX", 2)
    metrics = Metrics()
    for number in range(5):
        metrics.count("a", label=str(number))
    assert len(metrics.totals) == 2
    assert metrics.dropped == 3


def test_lines_go_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    assert log_path("") is None
    assert log_path("/x/logs/") == Path("/x/logs/lepa.log")
    path = tmp_path / "logs" / "agent.log"
    assert log_path(str(path)) == path
    handler = log_to_file(path)
    try:
        logging.getLogger("lepa.server").warning("node lost node_id=%s", "n1")
    finally:
        logging.getLogger("lepa").removeHandler(handler)
        handler.close()
    assert path.read_text().endswith("[WARNING] server: node lost node_id=n1\n")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_group_of_gauges_is_set_at_once_and_what_it_lost_is_gone() -> None:
    metrics = Metrics()
    metrics.replace("jobs", [("nomad.a", 1, {"job": "x"}), ("nomad.a", 2, {"job": "y"})])
    metrics.replace("jobs", [("nomad.a", 3, {"job": "y"})])
    assert metrics.all_gauges() == {("nomad.a", (("job", "y"),)): 3}


def test_the_longest_prefix_says_whether_a_series_is_shown() -> None:
    metrics = Metrics(prefixes=("-nomad.client", "+nomad.client.allocs"))
    for name in ("nomad.client.x", "nomad.client.allocs.y", "nomad.z"):
        metrics.gauge(name, 1)
        metrics.count(name)
        metrics.sample(name, 1)
    shown = metrics.summary("t")
    for kind in ("Gauges", "Counters", "Samples"):
        assert [each["Name"] for each in shown[kind]] == ["nomad.client.allocs.y", "nomad.z"]
    assert Metrics(shown_by_default=False, prefixes=("+nomad.z",)).shows("nomad.y") is False


def test_quantiles_are_of_the_newest_values() -> None:
    metrics = Metrics()
    for value in range(1000):
        metrics.sample("nomad.wait", value)
    assert metrics.quantiles(("nomad.wait", ())) == [(0.5, 872), (0.9, 974), (0.99, 997)]
    assert metrics.quantiles(("nomad.other", ())) == []
