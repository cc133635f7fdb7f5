"""Pure: the functions that Go's templates have by themselves, and how values look when they are printed."""

import html as html_module
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote_plus

Function = Callable[..., Any]

NO_VALUE = "<no value>"
WIDTH_MAX = 10_000
"""Characters that printf pads to."""


class FunctionError(Exception):
    """Why a function cannot do what it was asked."""


def true(value: Any) -> bool:
    """Whether Go takes a value for true: not zero, not empty, not nil."""
    return bool(value)


def shown(value: Any) -> str:
    """A value as an action writes it."""
    return NO_VALUE if value is None else plain(value)


def plain(value: Any) -> str:
    """A value as %v writes it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        inner = " ".join(f"{plain(key)}:{plain(value[key])}" for key in sorted(value, key=str))
        return f"map[{inner}]"
    if isinstance(value, bytes):
        return f"[{' '.join(str(byte) for byte in value)}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(plain(item) for item in value)}]"
    return str(value)


def _float(value: float) -> str:
    """The shortest text that reads back as the same number; exponents from 1e+21 on, as in Go."""
    text = repr(value)
    if text in ("inf", "-inf", "nan"):
        return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}[text]
    if value and not 1e-4 <= abs(value) < 1e21:
        mantissa, _, exponent = f"{value:.17g}".partition("e") if "e" not in text else text.partition("e")
        sign = exponent[0] if exponent[:1] in "+-" else "+"
        return f"{mantissa.removesuffix('.0')}e{sign}{exponent.lstrip('+-').zfill(2)}"
    if "e" in text:
        return f"{value:f}".rstrip("0").rstrip(".") if abs(value) < 1 else str(int(value))
    return text.removesuffix(".0")


# Values


def length(value: Any) -> int:
    """len: of a text in bytes, of anything else in items."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping | list | tuple | bytes):
        return len(value)
    raise FunctionError(f"len of {plain(value)}, which has none")


def index(value: Any, *keys: Any) -> Any:
    """index x 1 "a": x[1]["a"]; a dict's missing key is no value."""
    for key in keys:
        if value is None:
            raise FunctionError("index of nil")
        if isinstance(value, Mapping):
            value = value.get(key)
            continue
        if not isinstance(value, list | tuple | str | bytes):
            raise FunctionError(f"can't index {plain(value)}")
        value = _at(value.encode() if isinstance(value, str) else value, key)
    return value


def _at(value: Sequence[Any], key: Any) -> Any:
    if not isinstance(key, int) or isinstance(key, bool):
        raise FunctionError(f"cannot index with {plain(key)}: a number is needed")
    if not 0 <= key < len(value):
        raise FunctionError(f"index out of range: {key}")
    return value[key]


def slice_of(value: Any, *bounds: Any) -> Any:
    """slice x 1 2: x[1:2]."""
    if not isinstance(value, list | tuple | str):
        raise FunctionError(f"can't slice {plain(value)}")
    if len(bounds) > 2 or not all(isinstance(bound, int) for bound in bounds):
        raise FunctionError("slice takes one or two numbers")
    start = bounds[0] if bounds else 0
    end = bounds[1] if len(bounds) > 1 else len(value)
    if not 0 <= start <= end <= len(value):
        raise FunctionError(f"slice bounds out of range [{start}:{end}]")
    return value[start:end]


def call(function: Any, *arguments: Any) -> Any:
    """call f 1 2: f(1, 2)."""
    if not callable(function):
        raise FunctionError("non-function")
    return function(*arguments)


# Comparison


def _comparable(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool)
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return numbers or type(left) is type(right)


def equal(first: Any, *others: Any) -> bool:
    """eq: whether the first is equal to any of the others."""
    if not others:
        raise FunctionError("missing argument for comparison")
    for other in others:
        if None not in (first, other) and not _comparable(first, other):
            raise FunctionError("incompatible types for comparison")
    return any(first == other for other in others)


def less(left: Any, right: Any) -> bool:
    """lt."""
    if not _comparable(left, right) or not isinstance(left, str | int | float) or isinstance(left, bool):
        raise FunctionError("incompatible types for comparison")
    return bool(left < right)


# Printing

_VERB = re.compile(r"%(?P<flags>[+\-# 0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?(?P<verb>.)", re.DOTALL)


class Verb(NamedTuple):
    """One `%` of a format. precision None: not given."""

    name: str
    flags: str
    width: int
    precision: int | None


def printf(form: Any, *arguments: Any) -> str:
    """printf: Go's verbs; what does not fit is marked as Go marks it."""
    if not isinstance(form, str):
        raise FunctionError("the format has to be a text")
    rest = list(arguments)
    text = _VERB.sub(lambda found: _formatted(found, rest), form)
    if rest:
        text += f"%!(EXTRA {', '.join(f'{_type(each)}={plain(each)}' for each in rest)})"
    return text


def _formatted(found: re.Match[str], rest: list[Any]) -> str:
    if found["verb"] == "%":
        return "%"
    flags = found["flags"]
    width = _number(found["width"], rest) or 0
    precision = None if found["precision"] is None else _number(found["precision"] or "0", rest)
    if width < 0:
        flags, width = flags + "-", -width
    verb = Verb(found["verb"], flags, min(width, WIDTH_MAX), precision)
    if not rest:
        return f"%!{verb.name}(MISSING)"
    return _padded(verb, rest.pop(0))


def _number(text: str | None, rest: list[Any]) -> int | None:
    if text == "*":
        given = rest.pop(0) if rest else None
        return given if isinstance(given, int) else None
    return int(text[:9]) if text else None


def _padded(verb: Verb, value: Any) -> str:
    text = _converted(verb, value)
    if text is None:
        return f"%!{verb.name}({_type(value)}={plain(value)})"
    if "-" in verb.flags:
        return text.ljust(verb.width)
    if "0" in verb.flags and isinstance(value, int | float):
        sign = text[0] if text[:1] in "+-" else ""
        return sign + text[len(sign) :].rjust(verb.width - len(sign), "0")
    return text.rjust(verb.width)


def _converted(verb: Verb, value: Any) -> str | None:
    """A value by its verb, None where it does not fit."""
    name, boolean = verb.name, isinstance(value, bool)
    if name == "v":
        return json.dumps(value, ensure_ascii=False) if "#" in verb.flags and isinstance(value, str) else plain(value)
    if name == "T":
        return _type(value)
    if name == "t":
        return plain(value) if boolean else None
    if isinstance(value, str):
        return _text(verb, value)
    if isinstance(value, int) and not boolean:
        return _integer(verb, value)
    if isinstance(value, float):
        return _real(verb, value)
    return plain(value) if name in "sd" and isinstance(value, list | tuple | Mapping) else None


def _text(verb: Verb, value: str) -> str | None:
    cut = value if verb.precision is None else value[: verb.precision]
    if verb.name == "s":
        return cut
    if verb.name == "q":
        return json.dumps(cut, ensure_ascii=False)
    if verb.name in "xX":
        return value.encode().hex() if verb.name == "x" else value.encode().hex().upper()
    return None


def _integer(verb: Verb, value: int) -> str | None:
    if verb.name == "c":
        return chr(value) if 0 <= value < 0x110000 else "\ufffd"
    if verb.name == "q":
        return f"'{chr(value)}'" if 0 <= value < 0x110000 else None
    if verb.name == "U":
        return f"U+{value:04X}"
    if verb.name not in "dxXob":
        return None
    prefix = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(verb.name, "") if "#" in verb.flags else ""
    sign = "-" if value < 0 else "+" if "+" in verb.flags else " " if " " in verb.flags else ""
    return f"{sign}{prefix}{abs(value):{verb.name}}"


def _real(verb: Verb, value: float) -> str | None:
    if verb.name not in "feEgGF":
        return None
    sign = "+" if "+" in verb.flags and value >= 0 else " " if " " in verb.flags and value >= 0 else ""
    if verb.name in "gG" and verb.precision is None:
        return sign + _float(value)
    precision = min(6 if verb.precision is None else verb.precision, 100)
    return f"{sign}{value:.{precision}{verb.name}}"


def _type(value: Any) -> str:
    names = {"str": "string", "NoneType": "<nil>", "float": "float64", "dict": "map", "list": "slice"}
    return names.get(type(value).__name__, type(value).__name__)


def print_values(*values: Any) -> str:
    """print: a blank between two values of which neither is a text."""
    text = ""
    for n, value in enumerate(values):
        apart = n > 0 and not isinstance(value, str) and not isinstance(values[n - 1], str)
        text += (" " if apart else "") + plain(value)
    return text


def println(*values: Any) -> str:
    """println: a blank between values, and a new line behind them."""
    return " ".join(plain(value) for value in values) + "\n"


_HTML = {"'": "&#39;", '"': "&#34;"}
_JS = str.maketrans(
    {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}
)


def html(*values: Any) -> str:
    """html: safe between tags."""
    text = html_module.escape(print_values(*values), quote=False)
    return text.replace("'", _HTML["'"]).replace('"', _HTML['"'])


def js(*values: Any) -> str:
    """js: safe inside quotes of a script."""
    escaped = print_values(*values).translate(_JS)
    return "".join(char if char >= " " else f"\\u{ord(char):04X}" for char in escaped)


def urlquery(*values: Any) -> str:
    """urlquery: safe as a value of a query."""
    return quote_plus(print_values(*values))


def conjunction(*values: Any) -> Any:
    """and: the first value that is not true, else the last."""
    return next((value for value in values if not true(value)), values[-1] if values else None)


def disjunction(*values: Any) -> Any:
    """or: the first value that is true, else the last."""
    return next((value for value in values if true(value)), values[-1] if values else None)


BUILT_IN: dict[str, Function] = {
    "and": conjunction,
    "or": disjunction,
    "not": lambda value: not true(value),
    "len": length,
    "index": index,
    "slice": slice_of,
    "call": call,
    "eq": equal,
    "ne": lambda left, right: not equal(left, right),
    "lt": less,
    "le": lambda left, right: less(left, right) or equal(left, right),
    "gt": lambda left, right: not less(left, right) and not equal(left, right),
    "ge": lambda left, right: not less(left, right),
    "print": print_values,
    "printf": printf,
    "println": println,
    "html": html,
    "js": js,
    "urlquery": urlquery,
}
"""Go's own functions. `and` and `or` are handled by the language, which looks at no more arguments than it must."""
