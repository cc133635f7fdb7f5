"""Pure: functions of templates that need nothing from outside: texts, numbers, JSON, lists, instances of services.

As in Go, what comes through a pipe is a function's last argument: `{{ "a,b" | split "," }}`.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lepa.kit import regexp
from lepa.kit.durations import SECOND, rfc3339
from lepa.kit.go_template import FunctionError, TemplateError
from lepa.model.service import ServiceRegistration

LIST_MAX = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAYOUT = re.compile(r"January|Jan|Monday|Mon|MST|Z07:00|-0700|2006|01|02|03|04|05|06|15|PM|\.000")
_DIRECTIVES = {
    "January": "%B",
    "Jan": "%b",
    "Monday": "%A",
    "Mon": "%a",
    "MST": "UTC",
    "Z07:00": "Z",
    "-0700": "+0000",
    "2006": "%Y",
    "01": "%m",
    "02": "%d",
    "03": "%I",
    "04": "%M",
    "05": "%S",
    "06": "%y",
    "15": "%H",
    "PM": "%p",
}


def instance(found: ServiceRegistration) -> dict[str, Any]:
    """An instance of a service as templates see it."""
    return {
        "ID": found.id,
        "Name": found.service_name,
        "Namespace": found.namespace,
        "Node": found.node_id,
        "NodeID": found.node_id,
        "Datacenter": found.datacenter,
        "JobID": found.job_id,
        "AllocID": found.alloc_id,
        "Tags": list(found.tags),
        "Address": found.address,
        "Port": found.port,
        "Status": found.status,
    }


def choose(found: Sequence[ServiceRegistration], count: int, key: str) -> Sequence[ServiceRegistration]:
    """`count` instances that stay the same for a key as long as they are there: those that hash lowest with it."""

    def rank(each: ServiceRegistration) -> bytes:
        return hashlib.sha256(f"{key}/{each.id}".encode()).digest()

    return sorted(found, key=rank)[:count]


class Strict(dict[str, Any]):
    """A map in a template that wants to know of missing keys."""

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            raise TemplateError(f'map has no entry for key "{key}"')
        return self[key]


def strict(value: Any) -> Any:
    """The value with all its maps strict."""
    if isinstance(value, Mapping):
        return Strict({key: strict(item) for key, item in value.items()})
    return [strict(item) for item in value] if isinstance(value, list) else value


def timestamp(now_ns: int, layout: str) -> str:
    """Now: in RFC 3339, in Unix seconds for "unix", else in one of Go's layouts; always UTC."""
    if not layout:
        return rfc3339(now_ns // SECOND * SECOND)
    if layout == "unix":
        return str(now_ns // SECOND)
    moment = _EPOCH + timedelta(seconds=now_ns // SECOND)
    milliseconds = f".{now_ns // 1_000_000 % 1000:03d}"
    return _LAYOUT.sub(
        lambda found: milliseconds if found[0] == ".000" else moment.strftime(_DIRECTIVES[found[0]]), layout
    )


def parse_json(text: Any) -> Any:
    """A JSON text as maps, lists, numbers; an empty text is an empty map."""
    if not text:
        return {}
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FunctionError(f"not JSON: {error}") from error


def parse_bool(text: str) -> bool:
    """Go's words for true and false."""
    words = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
    if text and text.lower() not in words:
        raise FunctionError(f'"{text}" is neither true nor false')
    return words.get(text.lower(), False)


def add(right: Any, left: Any) -> Any:
    """left + right."""
    return left + right


def divide(right: Any, left: Any) -> Any:
    """left / right, whole for whole numbers, as Go does: towards zero."""
    if not right:
        raise FunctionError("division by zero")
    if isinstance(left, int) and isinstance(right, int):
        whole = abs(left) // abs(right)
        return whole if (left < 0) == (right < 0) else -whole
    return left / right


def modulo(right: int, left: int) -> int:
    """What is left of left / right, with the sign of left."""
    return left - right * int(divide(right, left))


def loop(*bounds: int) -> list[int]:
    """`loop 3` is 0, 1, 2; `loop 5 8` is 5, 6, 7."""
    start, stop = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    if stop - start > LIST_MAX:
        raise FunctionError(f"a loop of more than {LIST_MAX} steps")
    return list(range(start, stop))


def regex_match(pattern: str, text: str) -> bool:
    """Whether a pattern in RE2's syntax is found."""
    try:
        return regexp.compile_regexp(pattern).search(text)
    except regexp.RegexpError as error:
        raise FunctionError(f"{pattern!r}: {error}") from error


def base64_decode(text: str) -> str:
    """The text within a base64 text."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError as error:
        raise FunctionError("not base64 of a text") from error


def by_key_tag(instances: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Instances of services by each of their tags."""
    found: dict[str, list[Any]] = {}
    for each in instances:
        for tag in each["Tags"]:
            found.setdefault(tag, []).append(each)
    return found


def indent(width: int, text: str) -> str:
    """Every line of a text moved to the right."""
    if width > 1000:
        raise FunctionError("more than 1000 blanks")
    return "\n".join(" " * width + line if line else line for line in text.split("\n"))


def _of(items: Any) -> Sequence[Any]:
    return items if isinstance(items, list | tuple) else str(items).split()


def _any(wanted: Any, items: Any) -> bool:
    return any(item in items for item in _of(wanted))


def _all(wanted: Any, items: Any) -> bool:
    return all(item in items for item in _of(wanted))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=list)


def _escaped(text: str) -> str:
    """As Go's encoder does for the sake of browsers."""
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _default(default: Any, value: Any = None) -> Any:
    return value or default


TEXT: dict[str, Callable[..., Any]] = {
    "add": add,
    "subtract": lambda right, left: left - right,
    "multiply": lambda right, left: left * right,
    "divide": divide,
    "modulo": modulo,
    "minimum": lambda right, left: min(left, right),
    "maximum": lambda right, left: max(left, right),
    "base64Decode": base64_decode,
    "base64Encode": lambda text: base64.b64encode(text.encode()).decode(),
    "base64URLEncode": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "byTag": by_key_tag,
    "contains": lambda item, items: item in items,
    "containsAll": _all,
    "containsAny": _any,
    "containsNone": lambda wanted, items: not _any(wanted, items),
    "containsNotAll": lambda wanted, items: not _all(wanted, items),
    "default": _default,
    "hmacSHA256Hex": lambda text, key: hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest(),
    "in": lambda items, item: item in items,
    "indent": indent,
    "join": lambda separator, items: separator.join(str(item) for item in items),
    "loop": loop,
    "md5sum": lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    "parseBool": parse_bool,
    "parseFloat": lambda text: float(text or 0),
    "parseInt": lambda text: int(text or 0),
    "parseUint": lambda text: abs(int(text or 0)),
    "regexMatch": regex_match,
    "replaceAll": lambda old, new, text: text.replace(old, new),
    "sha256Hex": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "split": lambda separator, text: text.split(separator) if text else [],
    "toJSON": lambda value: _escaped(_json(value)),
    "toJSONPretty": lambda value: _escaped(json.dumps(value, ensure_ascii=False, indent=2, default=list)),
    "toLower": lambda text: text.lower(),
    "toTitle": lambda text: re.sub(r"\b\w", lambda found: found[0].upper(), text),
    "toUnescapedJSON": _json,
    "toUpper": lambda text: text.upper(),
    "trim": lambda signs, text: text.strip(signs),
    "trimPrefix": lambda prefix, text: text.removeprefix(prefix),
    "trimSpace": lambda text: text.strip(),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "sprig_default": _default,
    "sprig_lower": lambda text: text.lower(),
    "sprig_upper": lambda text: text.upper(),
    "sprig_trim": lambda text: text.strip(),
    "sprig_quote": lambda text: json.dumps(str(text), ensure_ascii=False),
    "sprig_indent": indent,
    "sprig_nindent": lambda width, text: "\n" + indent(width, text),
}
"""By the names that job files use."""
