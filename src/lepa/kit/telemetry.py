"""Logs and metrics of lepa itself.

Logs are one line an event: a short past-tense phrase and key=value pairs, or the same as a JSON object. Metrics are
kept in the process: gauges hold the last value, counters and samples are collected in intervals of 10 s, and one closed
interval is shown, as Nomad's in-memory sink does. Names are dotted and begin with "nomad.", so dashboards find them.
"""

import json
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from lepa.kit.statsd import Labels, News

LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}
ERROR_TEXT_MAX = 200
LOG_FILE_BYTES_MAX = 64 * 1024 * 1024
LOG_FILES_KEPT = 4
"""Beside the one that is written."""
INTERVAL_S = 10.0
SERIES_MAX = 10_000

GROUP_SERIES_MAX = 100_000
"""Of one group of gauges that are set together, such as those of all jobs."""
NEWEST_MAX = 256
"""Measurements of a series that its quantiles are taken of."""
QUANTILES = (0.5, 0.9, 0.99)

FOLLOWED_MAX = 50_000
"""Counts and measurements that wait for whoever follows them."""

Figure = tuple[str, float, Mapping[str, str]]
"""A gauge: its name, its value, its labels."""


def set_up_logging(level: str = "info", *, as_json: bool = False, stream: Any = None) -> logging.Handler:
    """Send the package's log lines of `level` and above to `stream` (standard error by default)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    handler.setLevel(log_level(level))
    root = logging.getLogger("lepa")
    root.handlers = [handler]
    root.setLevel(log_level(level))
    root.propagate = False
    requests = logging.getLogger("aiohttp.server")
    requests.handlers, requests.filters, requests.propagate = [handler], [_callers_fault_in_one_line], False
    return handler


def log_path(name: str) -> Path | None:
    """The file that a `log_file` setting means: a name that ends in a slash is a directory. None for ""."""
    if not name:
        return None
    return Path(name, "lepa.log") if name.endswith("/") else Path(name)


def change_log_level(level: str) -> None:
    """Another level for everything that writes lines down. Raises ValueError."""
    root, number = logging.getLogger("lepa"), log_level(level)
    for handler in root.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(number)
    root.setLevel(number)


def log_to_file(path: Path, level: str = "info", *, as_json: bool = False) -> logging.Handler:
    """Write the same lines to a file too, which only its owner may read. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    handler = RotatingFileHandler(path, maxBytes=LOG_FILE_BYTES_MAX, backupCount=LOG_FILES_KEPT, encoding="utf-8")
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    handler.setLevel(log_level(level))
    logging.getLogger("lepa").addHandler(handler)
    return handler


def _callers_fault_in_one_line(record: logging.LogRecord) -> bool:
    """aiohttp reports a request that it cannot read, or whose caller left, with a traceback; a line says as much."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ConnectionError) or type(error).__module__ == "aiohttp.http_exceptions":
        text = " ".join(str(error).split())[:ERROR_TEXT_MAX]
        record.levelno, record.levelname, record.exc_info = logging.INFO, "INFO", None
        record.msg, record.args = f"{record.getMessage()} error={text}", ()
    return True


def log_level(name: str) -> int:
    """The number of a level in any case; trace shows as much as debug. Raises ValueError."""
    number = LEVELS.get(name.upper())
    if number is None:
        raise ValueError(f'"{name}" is not a level; use one of {", ".join(LEVELS)}')
    return number


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z [INFO] server: job registered job_id=web`"""

    def format(self, record: logging.LogRecord) -> str:
        part = record.name.removeprefix("lepa.")
        text = f"{_stamp(record)} [{record.levelname}] {part}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class JsonFormatter(logging.Formatter):
    """The same facts as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "@timestamp": _stamp(record),
            "@level": record.levelname.lower(),
            "@module": record.name.removeprefix("lepa."),
            "@message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _stamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


@dataclass(slots=True)
class Sample:
    """Values seen in one interval: how many, their sum, squares, least and greatest."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, value: float) -> None:
        """Count one value in."""
        self.count += 1
        self.total += value
        self.squares += value * value
        if value < self.least:
            self.least = value
        if value > self.most:
            self.most = value

    @property
    def mean(self) -> float:
        """The average, 0 without values."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The sample standard deviation, 0 with fewer than two values."""
        if self.count < 2:
            return 0.0
        return math.sqrt(max(0.0, (self.squares - self.total * self.total / self.count) / (self.count - 1)))


@dataclass
class Interval:
    """Counters and samples since `started` (monotonic seconds)."""

    started: float = 0.0
    counters: dict[tuple[str, Labels], Sample] = field(default_factory=dict)
    samples: dict[tuple[str, Labels], Sample] = field(default_factory=dict)


class Metrics:
    """The metrics of one agent. Safe to call from any thread of CPython; a call costs about a microsecond.

    More than SERIES_MAX different series are dropped and counted in `dropped`.
    """

    def __init__(self, *, shown_by_default: bool = True, prefixes: Iterable[str] = ()) -> None:
        """prefixes: such as "+nomad.raft" and "-nomad.client": the longest that fits a name says if it is shown."""
        self._shown_by_default = shown_by_default
        self._prefixes = sorted(prefixes, key=len, reverse=True)
        self.gauges: dict[tuple[str, Labels], float] = {}
        self.totals: dict[tuple[str, Labels], float] = {}
        self.sums: dict[tuple[str, Labels], Sample] = {}
        self.newest: dict[tuple[str, Labels], deque[float]] = {}
        self.closed = Interval()
        self.dropped = 0
        self._groups: dict[str, dict[tuple[str, Labels], float]] = {}
        self._open = Interval()
        self._news: deque[News] | None = None

    def follow(self) -> deque[News]:
        """Everything that is counted and measured from now on, for one reader; of what is too much the oldest goes."""
        self._news = deque(maxlen=FOLLOWED_MAX)
        return self._news

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set what a value is now."""
        key = (name, tuple(labels.items()))
        if key in self.gauges or self._room(self.gauges):
            self.gauges[key] = value

    def replace(self, group: str, figures: Iterable[Figure]) -> None:
        """Set all gauges of a group at once; those that it had before and has no more are gone."""
        made: dict[tuple[str, Labels], float] = {}
        for name, value, labels in figures:
            if len(made) == GROUP_SERIES_MAX:
                self.dropped += 1
                break
            made[name, tuple(labels.items())] = value
        self._groups[group] = made

    def shows(self, name: str) -> bool:
        """Whether a series is shown."""
        for prefix in self._prefixes:
            if name.startswith(prefix[1:]):
                return prefix.startswith("+")
        return self._shown_by_default

    def all_gauges(self) -> dict[tuple[str, Labels], float]:
        """Single gauges and those of all groups."""
        found = dict(self.gauges)
        for group in self._groups.values():
            found |= group
        return {key: value for key, value in found.items() if self.shows(key[0])} if self._filters else found

    @property
    def _filters(self) -> bool:
        return bool(self._prefixes) or not self._shown_by_default

    def quantiles(self, key: tuple[str, Labels]) -> list[tuple[float, float]]:
        """Quantiles of the newest measurements of a series, as (share, value)."""
        values = sorted(self.newest.get(key, ()))
        return [(share, values[min(len(values) - 1, int(share * len(values)))]) for share in QUANTILES if values]

    def count(self, name: str, n: float = 1, **labels: str) -> None:
        """Count something that happened."""
        key = (name, tuple(labels.items()))
        if key in self.totals or self._room(self.totals):
            self.totals[key] = self.totals.get(key, 0.0) + n
            _sample_of(self._open.counters, key).add(n)
            if self._news is not None:
                self._news.append(News("c", name, n, key[1]))

    def sample(self, name: str, value: float, **labels: str) -> None:
        """Note one measurement; durations are milliseconds."""
        key = (name, tuple(labels.items()))
        if key not in self.sums:
            if not self._room(self.sums):
                return
            self.newest[key] = deque(maxlen=NEWEST_MAX)
        _sample_of(self.sums, key).add(value)
        self.newest[key].append(value)
        _sample_of(self._open.samples, key).add(value)
        if self._news is not None:
            self._news.append(News("ms", name, value, key[1]))

    def tick(self, now: float) -> None:
        """Close the interval when it is over; called about once a second."""
        if now - self._open.started >= INTERVAL_S:
            self.closed, self._open = self._open, Interval(started=now)

    def _room(self, series: Mapping[Any, Any]) -> bool:
        if len(series) < SERIES_MAX:
            return True
        self.dropped += 1
        return False

    def summary(self, timestamp: str) -> dict[str, Any]:
        """The closed interval in the shape of Nomad's `/v1/metrics`; gauges as they are now."""
        interval = self.closed if self.closed.counters or self.closed.samples else self._open
        return {
            "Timestamp": timestamp,
            "Gauges": [
                {"Name": name, "Value": value, "Labels": dict(labels)}
                for (name, labels), value in sorted(self.all_gauges().items())
            ],
            "Points": [],
            "Counters": [each for each in _summaries(interval.counters) if self.shows(each["Name"])],
            "Samples": [each for each in _summaries(interval.samples) if self.shows(each["Name"])],
        }


def _sample_of(samples: dict[tuple[str, Labels], Sample], key: tuple[str, Labels]) -> Sample:
    """The sample of a series, a new one for a new series; every request counts here several times."""
    found = samples.get(key)
    if found is None:
        found = samples[key] = Sample()
    return found


def _summaries(series: Mapping[tuple[str, Labels], Sample]) -> Iterator[dict[str, Any]]:
    for (name, labels), sample in sorted(series.items()):
        yield {
            "Name": name,
            "Count": sample.count,
            "Rate": sample.total / INTERVAL_S,
            "Sum": sample.total,
            "Min": sample.least,
            "Max": sample.most,
            "Mean": sample.mean,
            "Stddev": sample.deviation,
            "Labels": dict(labels),
        }
