"""Pure: functions about texts."""

from __future__ import annotations

import re
from typing import Any

from lepa.jobspec import values
from lepa.jobspec.expressions import TEXT_SIZE_MAX
from lepa.jobspec.functions.calling import Row, anything, row, sequence, text, text_list, whole
from lepa.jobspec.values import Conversion
from lepa.kit.regexp import RegexpError, Spend, compile_regexp

FORMAT_WIDTH_MAX = 10_000

REGEXP_STEPS_PER_STEP = 4
"""Steps of a regular expression that cost as much as one of evaluation."""

_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\d+)?(?:\.(?P<precision>\d+))?(?:\[(?P<index>\d+)\])?(?P<verb>.)", re.S
)


def chomp(value: str) -> str:
    """Without the newlines at its end."""
    return value.rstrip("\r\n")


def indent(spaces: int, value: str) -> str:
    """Each line but the first moved right."""
    if not 0 <= spaces <= FORMAT_WIDTH_MAX:
        raise Conversion(f"the number of spaces must be between 0 and {FORMAT_WIDTH_MAX}")
    if value.count("\n") * spaces > TEXT_SIZE_MAX:
        raise Conversion("the text would be too long")
    return value.replace("\n", "\n" + " " * spaces)


def join(separator: str, *lists: list[str]) -> str:
    """The elements of all lists with the separator between them."""
    return separator.join(element for each in lists for element in each)


def split(separator: str, value: str) -> list[str]:
    """The parts between separators; the characters when it is empty."""
    return value.split(separator) if separator else list(value)


def replace(spend: Spend, value: str, old: str, new: str) -> str:
    """Every `old` replaced; `/.../` is a regular expression whose groups `new` may name ($1, ${name})."""
    if len(old) > 1 and old.startswith("/") and old.endswith("/"):
        return regex_replace(spend, value, old[1:-1], new)
    if value.count(old) * len(new) > TEXT_SIZE_MAX:
        raise Conversion("the text would be too long")
    return value.replace(old, new)


def regex_replace(spend: Spend, value: str, pattern: str, new: str) -> str:
    """Every match of a regular expression replaced; `new` may name its groups ($1, ${name})."""
    try:
        compiled = compile_regexp(pattern)
    except RegexpError as problem:
        raise Conversion(f"invalid regular expression {values.quoted(pattern)}: {problem}") from None
    parts: list[str] = []
    left = TEXT_SIZE_MAX
    for part in compiled.replace(value, new, lambda steps: spend(1 + steps // REGEXP_STEPS_PER_STEP)):
        left -= len(part)
        if left < 0:
            raise Conversion("the text would be too long")
        parts.append(part)
    return "".join(parts)


def substr(value: str, offset: int, length: int) -> str:
    """`length` characters from `offset`; a negative offset counts from the end, length -1 is all the rest."""
    start = max(len(value) + offset, 0) if offset < 0 else offset
    return value[start:] if length < 0 else value[start : start + length]


def title(value: str) -> str:
    """Each word with a capital letter."""
    return re.sub(r"(^|[^\w'])(\w)", lambda match: match[1] + match[2].upper(), value)


def format_text(template: str, *arguments: Any) -> str:
    """Go's fmt.Sprintf for texts, numbers, bools and JSON: %s %q %d %f %e %g %x %X %o %b %t %v %#v %%."""
    pieces: list[str] = []
    position = following = 0
    used: set[int] = set()
    while (found := template.find("%", position)) >= 0:
        pieces.append(template[position:found])
        verb = _VERB.match(template, found)
        if verb is None:
            raise Conversion("the format ends inside a verb")
        position = verb.end()
        if verb["verb"] == "%":
            pieces.append("%")
            continue
        index = int(verb["index"]) - 1 if verb["index"] else following
        if not 0 <= index < len(arguments):
            raise Conversion(f"not enough arguments for {values.quoted(verb[0])} at {found}: need index {index + 1}")
        used.add(index)
        following = index + 1
        pieces.append(_formatted(verb, arguments[index]))
    if len(arguments) > len(used) and following < len(arguments):
        raise Conversion(f"too many arguments; only {len(used)} used by the format")
    return "".join([*pieces, template[position:]])


def _formatted(verb: re.Match[str], value: Any) -> str:
    kind = verb["verb"]
    width, precision = int(verb["width"] or 0), verb["precision"]
    if width > FORMAT_WIDTH_MAX or int(precision or 0) > FORMAT_WIDTH_MAX:
        raise Conversion(f"a width or precision of more than {FORMAT_WIDTH_MAX} is not supported")
    if kind in "sqv":
        shown = _shown(kind, value, verb["flags"])
        shown = shown[: int(precision)] if precision else shown
    elif kind == "t":
        shown = values.to_text(values.to_bool(value))
    elif kind in "dbox" or kind == "X":
        shown = _signed(format(values.to_whole(value), kind), verb["flags"])
    elif kind in "eEfFgG":
        shown = _float(values.to_number(value), kind, precision, verb["flags"])
    else:
        raise Conversion(f"unsupported format verb {values.quoted('%' + kind)}")
    return _padded(shown, width, verb["flags"], numeric=kind not in "sqvt")


def _shown(kind: str, value: Any, flags: str) -> str:
    if kind == "v" and ("#" in flags or value is None or isinstance(value, list | dict)):
        return values.quoted_json(value)
    shown = values.to_text(value)
    return values.quoted_json(shown) if kind == "q" else shown


def _float(value: int | float, kind: str, precision: str | None, flags: str) -> str:
    if kind in "gG" and precision is None:
        shown = values.to_text(value) if abs(value) < 1e21 else repr(float(value))
    else:
        shown = format(float(value), f".{precision or 6}{kind}")
    return _signed(shown, flags)


def _signed(shown: str, flags: str) -> str:
    if shown.startswith("-"):
        return shown
    return "+" + shown if "+" in flags else " " + shown if " " in flags else shown


def _padded(shown: str, width: int, flags: str, *, numeric: bool) -> str:
    if "-" in flags:
        return shown.ljust(width)
    return shown.zfill(width) if "0" in flags and numeric else shown.rjust(width)


def formatlist(template: str, *arguments: Any) -> list[str]:
    """One formatted text for each element of the lists; what is no list stays the same."""
    lengths = {len(each) for each in arguments if isinstance(each, list)}
    if len(lengths) > 1:
        raise Conversion("the lists have different lengths")
    count = lengths.pop() if lengths else 1
    rows = range(count)
    return [format_text(template, *(each[i] if isinstance(each, list) else each for each in arguments)) for i in rows]


def sort(items: list[str]) -> list[str]:
    """The texts in order."""
    return sorted(items)


ROWS: tuple[Row, ...] = (
    row("chomp", chomp, text),
    row("format", format_text, text, rest=anything),
    row("formatlist", formatlist, text, rest=anything),
    row("indent", indent, whole, text),
    row("join", join, text, rest=text_list),
    row("lower", str.lower, text),
    row("regex_replace", regex_replace, text, text, text, pays=True),
    row("replace", replace, text, text, text, pays=True),
    row("reverse", lambda items: items[::-1], sequence),
    row("sort", sort, text_list),
    row("split", split, text, text),
    row("strlen", len, text),
    row("strrev", lambda value: value[::-1], text),
    row("substr", substr, text, whole, whole),
    row("title", title, text),
    row("trim", lambda value, characters: value.strip(characters), text, text),
    row("trimprefix", str.removeprefix, text, text),
    row("trimspace", str.strip, text),
    row("trimsuffix", str.removesuffix, text, text),
    row("upper", str.upper, text),
)
