"""Pure: lines of output as receivers take them.

Syslog by RFC 5424, framed by octet counting on streams (RFC 6587, section 3.4.1); fluentd's forward protocol,
version 1, forward mode with acknowledgement; Loki's push API in JSON.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from lepa.kit.durations import rfc3339
from lepa.model.ship_checks import FACILITIES

SECOND_NS = 1_000_000_000
SYSLOG_BYTES_MAX = 8 * 1024
"""What receivers take by default; longer lines are cut (RFC 5424, section 6.1)."""
ENTERPRISE = "32473"
"""The number kept for examples (RFC 5612): lepa has none of its own."""
_SEVERITIES = {"stdout": 6, "stderr": 3}
"""Informational and error."""
_NOT_PRINTED = re.compile(r"[^\x21-\x7e]")
_event_time = msgspec.msgpack.Ext


class Origin(NamedTuple):
    """Where lines come from."""

    host: str
    namespace: str
    job: str
    group: str
    task: str
    alloc_id: str
    labels: Mapping[str, str] = {}

    def fields(self, stream: str) -> dict[str, str]:
        """By name, for receivers that keep fields."""
        own = {
            "host": self.host,
            "namespace": self.namespace,
            "job": self.job,
            "group": self.group,
            "task": self.task,
            "alloc_id": self.alloc_id,
            "stream": stream,
        }
        return {**self.labels, **own}


class Line(NamedTuple):
    """A line without its end, and when it was read in Unix nanoseconds."""

    stream: str
    text: bytes
    at: int


def syslog(line: Line, origin: Origin, facility: str) -> bytes:
    """One message of RFC 5424, without a frame."""
    priority = FACILITIES.index(facility) * 8 + _SEVERITIES[line.stream]
    head = " ".join(
        (
            f"<{priority}>1",
            rfc3339(line.at // 1000 * 1000),
            _word(origin.host, 255),
            _word(f"{origin.job}/{origin.task}", 48),
            _word(origin.alloc_id[:8], 128),
            line.stream,
            _structured(origin),
        )
    )
    return (head.encode() + b" " + line.text)[:SYSLOG_BYTES_MAX]


def octet_counted(message: bytes) -> bytes:
    """A message for a stream."""
    return b"%d %s" % (len(message), message)


def _structured(origin: Origin) -> str:
    values = {**origin.labels, **{name: value for name, value in origin.fields("").items() if name not in _ELSEWHERE}}
    pairs = " ".join(f'{_word(name, 32, "=]")}="{_escaped(value)}"' for name, value in values.items() if value)
    return f"[lepa@{ENTERPRISE} {pairs}]"


_ELSEWHERE = {"host", "stream"}
"""Fields that have a place of their own in the head."""


def _word(text: str, length: int, also: str = "") -> str:
    """A field without blanks, at most that long; "-" for nothing."""
    plain = _NOT_PRINTED.sub("_", text)
    for sign in also:
        plain = plain.replace(sign, "_")
    return plain[:length] or "-"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]").replace("\n", " ")


def forward(lines: Sequence[Line], origin: Origin, tag: str, chunk: str) -> bytes:
    """A batch for fluentd; it answers {"ack": chunk} once it has it."""
    entries = [
        [
            _event_time(0, (line.at // SECOND_NS).to_bytes(4, "big") + (line.at % SECOND_NS).to_bytes(4, "big")),
            {**origin.fields(line.stream), "log": line.text.decode(errors="replace")},
        ]
        for line in lines
    ]
    return msgspec.msgpack.encode([tag, entries, {"chunk": chunk, "size": len(entries)}])


def acknowledged(answer: bytes) -> str | None:
    """The chunk that fluentd says it has; None while the answer is not whole."""
    try:
        found = msgspec.msgpack.decode(answer)
    except msgspec.DecodeError:
        return None
    return str(found.get("ack", "")) if isinstance(found, dict) else ""


def push(lines: Iterable[Line], origin: Origin) -> bytes:
    """A batch for Loki: one stream for each set of labels; lines read together get moments one after another."""
    streams: dict[str, list[list[str]]] = {}
    last = 0
    for line in lines:
        last = max(line.at, last + 1)
        streams.setdefault(line.stream, []).append([str(last), line.text.decode(errors="replace")])
    body = {
        "streams": [{"stream": origin.fields(stream), "values": values} for stream, values in sorted(streams.items())]
    }
    return json.dumps(body, ensure_ascii=False).encode()
