"""Pure: functions about instants, written as RFC 3339."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, row, text
from lepa.jobspec.values import Conversion
from lepa.kit.durations import parse_duration

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(Z|z|[+-]\d\d:\d\d)")
_FORMAT_PART = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")


def format_date(specification: str, instant: str) -> str:
    """An instant in a form such as "DD MMM YYYY hh:mm ZZZ"; letters in single quotes stand for themselves."""
    moment = read_instant(instant)
    shown: list[str] = []
    position = 0
    for part in _FORMAT_PART.finditer(specification):
        if part.start() != position:
            break
        position = part.end()
        shown.append(_format_part(part[0], moment))
    if position != len(specification):
        raise Conversion("the format has an unclosed quote")
    return "".join(shown)


def read_instant(instant: str) -> datetime:
    """The instant that an RFC 3339 text names; raises Conversion."""
    match = _INSTANT.fullmatch(instant)
    try:
        if match is None:
            raise ValueError
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3].upper().replace('Z', '+00:00')}")
    except ValueError:
        raise Conversion(f"{values.quoted(instant)} is not a valid RFC3339 timestamp") from None


def _format_part(part: str, moment: datetime) -> str:
    if part.startswith("'"):
        return part[1:-1].replace("''", "'") or "'"
    if not part[0].isalpha():
        return part
    hour = moment.hour % 12 or 12
    zone = moment.strftime("%z")
    colons = f"{zone[:3]}:{zone[3:5]}"
    known = {
        "YYYY": f"{moment.year:04d}",
        "YY": f"{moment.year % 100:02d}",
        "MMMM": _MONTHS[moment.month - 1],
        "MMM": _MONTHS[moment.month - 1][:3],
        "MM": f"{moment.month:02d}",
        "M": str(moment.month),
        "DD": f"{moment.day:02d}",
        "D": str(moment.day),
        "EEEE": _DAYS[moment.weekday()],
        "EEE": _DAYS[moment.weekday()][:3],
        "hh": f"{moment.hour:02d}",
        "h": str(moment.hour),
        "HH": f"{hour:02d}",
        "H": str(hour),
        "AA": "AM" if moment.hour < 12 else "PM",
        "aa": "am" if moment.hour < 12 else "pm",
        "mm": f"{moment.minute:02d}",
        "m": str(moment.minute),
        "ss": f"{moment.second:02d}",
        "s": str(moment.second),
        "ZZZZZ": colons,
        "ZZZZ": zone[:5],
        "ZZZ": "UTC" if not moment.utcoffset() else zone[:5],
        "Z": "Z" if not moment.utcoffset() else colons,
    }
    if part not in known:
        raise Conversion(f"{values.quoted(part)} is not part of a date format")
    return known[part]


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def time_add(instant: str, duration: str) -> str:
    """An instant moved by a duration such as "1h30m" or "-10m"."""
    moment = read_instant(instant)
    try:
        moved = moment + timedelta(microseconds=parse_duration(duration) // 1000)
    except (ValueError, OverflowError) as problem:
        raise Conversion(str(problem)) from None
    shown = moved.replace(microsecond=0).isoformat()
    return shown.removesuffix("+00:00") + "Z" if not moved.utcoffset() else shown


ROWS: tuple[Row, ...] = (
    row("formatdate", format_date, text, text),
    row("timeadd", time_add, text, text),
)
