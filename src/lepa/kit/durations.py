"""Pure: Go's duration texts ("1h30m") and RFC 3339 times to nanoseconds and back.

Nomad writes durations as integers of nanoseconds in JSON and as Go duration texts in job files and flags; instants as
RFC 3339 with nanoseconds, the zero time being "0001-01-01T00:00:00Z".
"""

import re
from datetime import UTC, datetime, timedelta

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

ZERO_TIME = "0001-01-01T00:00:00Z"

_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "μs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_MAX_NS = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration text such as "1h30m", "250ms", "-1.5s" or "0".

    Raises ValueError, naming the text, for anything else and for what 64 bits do not hold (292 years).
    """
    body = text.strip()
    sign = -1 if body.startswith("-") else 1
    body = body.lstrip("+-") if body[:1] in "+-" else body
    if body == "0":
        return 0
    total, end = 0, 0
    for part in _PART.finditer(body):
        if part.start() != end:
            break
        total += _scaled(part[1], _UNITS[part[2]])
        end = part.end()
    if not body or end != len(body):
        raise ValueError(f'invalid duration "{text}": expected a number with a unit such as "30s", "5m" or "1h30m"')
    if total > _MAX_NS:
        raise ValueError(f'invalid duration "{text}": longer than 292 years')
    return sign * total


def _scaled(number: str, unit: int) -> int:
    whole, _, fraction = number.partition(".")
    return int(whole or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def format_duration(ns: int) -> str:
    """The text that Go prints for a duration of `ns` nanoseconds, such as "1h30m0s", "1.5s", "250ms"."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < SECOND:
        unit, size = next((u, s) for u, s in (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", 1)) if ns >= s)
        return f"{sign}{_decimal(ns, size)}{unit}"
    hours, rest = divmod(ns, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{sign}{text}{_decimal(rest, SECOND)}s"


def _decimal(ns: int, unit: int) -> str:
    whole, fraction = divmod(ns, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{fraction:0{digits}d}".rstrip("0").rstrip(".") if fraction else str(whole)


def rfc3339(ns: int) -> str:
    """Unix nanoseconds as RFC 3339 in UTC with nanoseconds; 0 as Go's zero time."""
    if ns == 0:
        return ZERO_TIME
    seconds, fraction = divmod(ns, SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else f"{text}Z"


def parse_rfc3339(text: str) -> int:
    """Unix nanoseconds of an RFC 3339 time; the zero time and the empty text are 0. Raises ValueError."""
    if not text or text == ZERO_TIME:
        return 0
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", text)
    if match is None:
        raise ValueError(f'invalid time "{text}": expected RFC 3339 such as "2026-01-31T12:00:00Z"')
    zone = "+00:00" if match[3] in "Zz" else match[3]
    seconds = int((datetime.fromisoformat(match[1].upper().replace(" ", "T") + zone) - _EPOCH).total_seconds())
    return seconds * SECOND + int((match[2] or "0").ljust(9, "0"))
