"""Pure: how things look: tables, key-value blocks, short ids, ages, sizes, colours. Layouts are Nomad's."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lepa.kit.durations import SECOND, ZERO_TIME, parse_rfc3339

Json = dict[str, Any]

SHORT_ID = 8
NONE = "<none>"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_UNITS = (("y", 31_536_000), ("mo", 2_592_000), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_COLOURS = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "dim": "2"}


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned columns, two blanks apart; nothing behind the last cell of a line."""
    return _aligned([list(header), *([_cell(cell) for cell in row] for row in rows)])


def plain_table(rows: Iterable[Sequence[object]]) -> str:
    """A table without a header."""
    return _aligned([[_cell(cell) for cell in row] for row in rows])


def _aligned(lines: list[list[str]]) -> str:
    if not lines:
        return ""
    columns = max(map(len, lines))
    widths = [max((_width(line[n]) for line in lines if n < len(line)), default=0) for n in range(columns)]
    return "\n".join(_joined(line, widths) for line in lines)


def _joined(line: list[str], widths: list[int]) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=False)]
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    return len(_ESCAPE.sub("", text))


def _cell(value: object) -> str:
    if value is None or value == "":
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def pairs(items: Iterable[tuple[str, object]], indent: str = "") -> str:
    """`Key  = value` lines with the `=` under each other."""
    given = [(key, _cell(value)) for key, value in items]
    width = max((len(key) for key, _ in given), default=0)
    return "\n".join(f"{indent}{key:<{width}} = {value}" for key, value in given)


def short(identifier: str, verbose: bool = False) -> str:
    """The first characters of an id, which any command takes for the whole."""
    return identifier if verbose else identifier[:SHORT_ID]


def ago(then_ns: int, now_ns: int) -> str:
    """A moment as people say it: `2m3s ago`, `5d2h from now`; its two largest units."""
    if then_ns <= 0:
        return NONE
    seconds = abs(now_ns - then_ns) // SECOND
    if seconds == 0:
        return "just now"
    return f"{span(seconds)} {'ago' if then_ns <= now_ns else 'from now'}"


def span(seconds: int) -> str:
    """Seconds as their two largest units: `2m3s`, `5d2h`, `3mo`."""
    parts: list[str] = []
    rest = seconds
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"


def moment(value: int | str) -> int:
    """Unix nanoseconds of what the API writes for a time: nanoseconds, or RFC 3339."""
    if isinstance(value, int):
        return value
    try:
        return parse_rfc3339(value or ZERO_TIME)
    except ValueError:
        return 0


def size(count: float) -> str:
    """Bytes as `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def megabytes(count: int) -> str:
    """MiB as `300 MiB` or `7.8 GiB`."""
    return f"{count} MiB" if count < 1024 else f"{count / 1024:.1f} GiB"


def pretty_json(value: Any) -> str:
    """What -json prints."""
    return json.dumps(value, indent=4, ensure_ascii=False)


def paint(text: str, *looks: str) -> str:
    """Text in a colour or weight, by terminal codes."""
    codes = ";".join(_COLOURS[look] for look in looks)
    return f"\x1b[{codes}m{text}\x1b[0m"


def bare(text: str) -> str:
    """Text without terminal codes."""
    return _ESCAPE.sub("", text)
