"""Pure: metrics as lines for statsd, statsite and Datadog's agent.

A line is `name:value|kind`: g for a gauge, c for a counter's growth, ms for a measurement. statsd and statsite know no
labels, so their values are appended to the name; Datadog gets them as tags, `|#namespace:default,job:web`. Hosts are
told apart in the names of gauges, as by Nomad: `nomad.HOST.client.uptime`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]

PACKET_MAX = 1400
"""Bytes of a datagram that most networks carry in one piece."""
_ODD = re.compile(r"[\s:|#,@]")
PREFIX = "nomad."


class News(NamedTuple):
    """Something that was counted or measured. kind: c or ms."""

    kind: str
    name: str
    value: float
    labels: Labels


class Dialect(NamedTuple):
    """How lines are written. host: put into the names of gauges, "" for none. tags: labels are tags, after these."""

    host: str = ""
    tags: tuple[str, ...] | None = None


def lines(gauges: Mapping[Key, float], news: Iterable[News], dialect: Dialect) -> Iterator[bytes]:
    """All gauges, how much each counter has grown, and every measurement."""
    for (name, labels), value in gauges.items():
        yield _line(_of_host(name, dialect.host), labels, value, "g", dialect)
    grown: dict[Key, float] = {}
    for kind, name, value, labels in news:
        if kind == "c":
            grown[name, labels] = grown.get((name, labels), 0.0) + value
        else:
            yield _line(name, labels, value, kind, dialect)
    for (name, labels), value in grown.items():
        yield _line(name, labels, value, "c", dialect)


def packets(made: Iterable[bytes], size_max: int = PACKET_MAX) -> Iterator[bytes]:
    """Lines put together as long as they fit; one that is longer goes alone."""
    packet = b""
    for line in made:
        if packet and len(packet) + len(line) > size_max:
            yield packet
            packet = b""
        packet += line
    if packet:
        yield packet


def _of_host(name: str, host: str) -> str:
    return f"{PREFIX}{host}.{name[len(PREFIX) :]}" if host and name.startswith(PREFIX) else name


def _line(name: str, labels: Labels, value: float, kind: str, dialect: Dialect) -> bytes:
    if dialect.tags is None:
        name = ".".join([name, *(text.replace(".", "_") for _, text in labels)])
        return f"{_ODD.sub('_', name)}:{value:g}|{kind}\n".encode()
    tags = [*dialect.tags, *(f"{_ODD.sub('_', label)}:{_ODD.sub('_', text)}" for label, text in labels)]
    end = f"|#{','.join(tags)}" if tags else ""
    return f"{_ODD.sub('_', name)}:{value:g}|{kind}{end}\n".encode()
