"""The access log: one line a request, in a form that the settings choose.

Lines are collected and written a few times a second, by the loop's thread: a disk that is slow delays traffic by one
write then, not by one a request. `-` is standard output.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import IO

import msgspec

from lepa.ingress.proxy_protocol import Source
from lepa.kit.sources import Clock
from lepa.model.errors import invalid

LINES_MAX = 10_000
"""Lines that wait to be written; then they are written at once."""
FORMATS = {
    "common": '$remote_host - - [$time_common] "$request" $response_status $response_body_size',
    "combined": '$remote_host - - [$time_common] "$request" $response_status $response_body_size'
    ' "$header.Referer" "$header.User-Agent"',
}
FIELD = re.compile(r"\$(header\.[A-Za-z0-9-]+|[a-z_0-9]+)")


class Logged(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request that is over. headers: those that are looked at, by lower-case name."""

    client: Source
    scheme: str
    method: str
    host: str
    target: str
    minor: int
    headers: Mapping[bytes, bytes]
    status: int
    size: int
    seconds: float
    upstream: str
    upstream_scheme: str
    upstream_target: str
    service: str


Field = Callable[[Logged, int], object]

FIELDS: dict[str, Field] = {
    "remote_addr": lambda r, _: f"{r.client.address}:{r.client.port}",
    "remote_host": lambda r, _: r.client.address,
    "remote_port": lambda r, _: r.client.port,
    "request": lambda r, _: f"{r.method} {r.target} HTTP/1.{r.minor}",
    "request_args": lambda r, _: r.target.partition("?")[2],
    "request_host": lambda r, _: r.host,
    "request_method": lambda r, _: r.method,
    "request_scheme": lambda r, _: r.scheme,
    "request_uri": lambda r, _: r.target,
    "request_url": lambda r, _: f"{r.scheme}://{r.host}{r.target}",
    "request_proto": lambda r, _: f"HTTP/1.{r.minor}",
    "response_body_size": lambda r, _: r.size,
    "response_status": lambda r, _: r.status,
    "response_time_ms": lambda r, _: f"{r.seconds * 1e3:.3f}",
    "response_time_us": lambda r, _: f"{r.seconds * 1e6:.0f}",
    "response_time_ns": lambda r, _: f"{r.seconds * 1e9:.0f}",
    "time_rfc3339": lambda _, ns: _stamp(ns, "seconds"),
    "time_rfc3339_ms": lambda _, ns: _stamp(ns, "milliseconds"),
    "time_rfc3339_us": lambda _, ns: _stamp(ns, "microseconds"),
    "time_unix_ms": lambda _, ns: ns // 1_000_000,
    "time_unix_us": lambda _, ns: ns // 1_000,
    "time_unix_ns": lambda _, ns: ns,
    "time_common": lambda _, ns: time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(ns // 1_000_000_000)),
    "upstream_addr": lambda r, _: r.upstream,
    "upstream_host": lambda r, _: r.upstream.rpartition(":")[0],
    "upstream_port": lambda r, _: r.upstream.rpartition(":")[2],
    "upstream_request_scheme": lambda r, _: r.upstream_scheme,
    "upstream_request_uri": lambda r, _: r.upstream_target,
    "upstream_request_url": lambda r, _: f"{r.upstream_scheme}://{r.upstream}{r.upstream_target}",
    "upstream_service": lambda r, _: r.service,
}
"""What a form may name after a dollar sign, besides header.NAME."""


def _stamp(ns: int, precision: str) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def line_writer(form: str) -> Callable[[Logged, int], str]:
    """What writes lines of a form: a name of FORMATS or a text with fields. Raises LepaError(invalid)."""
    text = FORMATS.get(form, form)
    fields: list[Field] = []
    place, parts = 0, []
    for found in FIELD.finditer(text):
        parts.append(text[place : found.start()])
        fields.append(_field(found[1]))
        place = found.end()
    parts.append(text[place:])
    if not fields:
        names = " and ".join(FORMATS)
        raise invalid(f'ingress: access_format: "{form}" names no field; known are {names}, or a text of $fields')

    def written(request: Logged, now_ns: int) -> str:
        pieces = [parts[0]]
        for field, following in zip(fields, parts[1:], strict=True):
            pieces += (_clean(str(field(request, now_ns))), following)
        return "".join(pieces)

    return written


def _field(name: str) -> Field:
    if name.startswith("header."):
        wanted = name.removeprefix("header.").lower().encode()
        return lambda r, _: r.headers.get(wanted, b"").decode("latin-1") or "-"
    if name not in FIELDS:
        raise invalid(f'ingress: access_format: "${name}" is not known')
    return FIELDS[name]


@cache
def _escapes() -> dict[int, str]:
    control = {number: f"\\x{number:02x}" for number in (*range(32), 127)}
    return control | {ord('"'): '\\"'}


def _clean(text: str) -> str:
    """Without anything that could end a line or a quoted field: what clients send must not forge lines."""
    return text if text.isprintable() and '"' not in text else text.translate(_escapes())


class AccessLog:
    """Writes requests to a file or standard output. path: "-" or a file that is appended to."""

    def __init__(self, path: str, form: str, clock: Clock) -> None:
        self._clock = clock
        self._written = line_writer(form)
        self._lines: list[str] = []
        try:
            self._file: IO[bytes] = sys.stdout.buffer if path == "-" else open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise invalid(f"ingress: access_log: cannot write {path}: {error.strerror or error}") from error
        self.lost = 0

    def note(self, request: Logged) -> None:
        """Log a request that is over."""
        self._lines.append(self._written(request, self._clock.now_ns()))
        if len(self._lines) >= LINES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Lines that cannot be written are counted and forgotten."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            self._file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))
            self._file.flush()
        except OSError:
            self.lost += len(lines)

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        if self._file is not sys.stdout.buffer:
            self._file.close()
