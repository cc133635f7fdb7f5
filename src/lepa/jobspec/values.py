"""Pure: the values that expressions come to, their types, and conversions between them.

A value is None (null), bool, int, float, str, list (tuple and list), HclSet, or dict (object and map). Numbers that are
whole are ints. A type is a Type; ANY fits everything.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from msgspec import Struct

NUMBER_BITS_MAX = 2048
"""Whole numbers beyond this many bits are refused; nobody counts that far, and they would only burn time."""

VALUE_DEPTH_MAX = 100
"""Lists and objects inside each other."""

VALUE_NODES_MAX = 200_000
"""Elements of one value, counted through all levels, and twice when they appear twice."""

TEXT_PER_NODE = 256
"""Characters of a text that count as one more element."""


class Conversion(Exception):
    """A value that does not fit a type; the message says why, in the field's words, without a full stop."""


class HclSet(list[Any]):
    """A set: no two elements are equal; in the order that HCL iterates them."""


class Type(Struct, frozen=True):
    """A type constraint. kind: string, number, bool, any, list, set, map, object or tuple.

    element: of list, set and map. members: of an object, by name; of a tuple, by its index as text. optional: members
    of an object that may be absent.
    """

    kind: str
    element: Type | None = None
    members: tuple[tuple[str, Type], ...] = ()
    optional: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.kind}({self.element})"
        if self.kind == "object":
            return "object({" + ", ".join(f"{name}={kind}" for name, kind in self.members) + "})"
        if self.kind == "tuple":
            return "tuple([" + ", ".join(str(kind) for _, kind in self.members) + "])"
        return self.kind


ANY = Type("any")
STRING = Type("string")
NUMBER = Type("number")
BOOL = Type("bool")


def kind_of(value: Any) -> str:
    """What a value is, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, HclSet):
        return "set"
    return "list" if isinstance(value, list) else "object"


def measure(value: Any, nodes_max: int = VALUE_NODES_MAX) -> int:
    """How many elements a value has through all levels, long texts counting for more; raises Conversion beyond bounds.

    Values that share parts are small in memory and can still be endless to whoever walks through them.
    """
    nodes = 0
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        nodes += 1 + (len(each) // TEXT_PER_NODE if isinstance(each, str) else 0)
        if not isinstance(each, list | dict):
            continue
        if depth >= VALUE_DEPTH_MAX:
            raise Conversion(f"the value is nested more than {VALUE_DEPTH_MAX} levels deep")
        if nodes + len(waiting) > nodes_max:
            raise Conversion(f"the value has more than {nodes_max} elements")
        waiting.extend((inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each))
    if nodes > nodes_max:
        raise Conversion(f"the value has more than {nodes_max} elements")
    return nodes


def type_of(value: Any) -> Type:
    """The constraint that a default value implies: that of a primitive, else ANY."""
    return {"bool": BOOL, "number": NUMBER, "string": STRING}.get(kind_of(value), ANY)


def to_text(value: Any) -> str:
    """A primitive as text; raises Conversion."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    raise Conversion(f"string required, but have {kind_of(value)}")


def to_number(value: Any) -> int | float:
    """A number or the number that a text writes; raises Conversion."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Conversion(f"number required, but have {kind_of(value)}")
    if not isinstance(value, str):
        return value
    try:
        return number(Decimal(value.strip())) if value.strip() and "_" not in value else _no_number(value)
    except ArithmeticError:
        return _no_number(value)


def _no_number(text: str) -> int:
    raise Conversion(f"a number is required, but {quoted(text)} is not one")


def number(value: int | float | Decimal) -> int | float:
    """A number as values hold it: whole ones as int; raises Conversion for what is not finite or too large."""
    if isinstance(value, int):
        if value.bit_length() > NUMBER_BITS_MAX:
            raise Conversion(f"the number has more than {NUMBER_BITS_MAX} bits")
        return value
    if isinstance(value, Decimal):
        if not value.is_finite() or value.adjusted() > NUMBER_BITS_MAX // 4:
            raise Conversion("the number is not finite or too large")
        return int(value) if value == value.to_integral_value() else float(value)
    if value != value or value in (float("inf"), float("-inf")):
        raise Conversion("the number is not finite")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def to_whole(value: Any) -> int:
    """A whole number; raises Conversion."""
    found = to_number(value)
    if isinstance(found, float):
        raise Conversion("value must be a whole number, without a fractional part")
    return found


def to_bool(value: Any) -> bool:
    """A bool or the text "true" or "false"; raises Conversion."""
    if isinstance(value, bool):
        return value
    if value == "true" or value == "1":
        return True
    if value == "false" or value == "0":
        return False
    if isinstance(value, str):
        raise Conversion(f"a bool is required, but {quoted(value)} is neither true nor false")
    raise Conversion(f"bool required, but have {kind_of(value)}")


def quoted(text: str) -> str:
    """A text in quotes for a message, cut when it is long."""
    return json.dumps(text if len(text) <= 60 else text[:57] + "...", ensure_ascii=False)


def quoted_json(value: Any) -> str:
    """A value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def make_set(values: list[Any]) -> HclSet:
    """A set of the values: texts and numbers sorted, others in order of appearance."""
    unique: dict[str, Any] = {}
    for value in values:
        unique.setdefault(identity(value), value)
    kept = list(unique.values())
    if all(isinstance(value, str) for value in kept) or all(kind_of(value) == "number" for value in kept):
        kept.sort()
    return HclSet(kept)


def identity(value: Any) -> str:
    """A text that is the same for equal values only; a number differs from the text that writes it."""
    return quoted_json(value)


def equal(left: Any, right: Any) -> bool:
    """HCL's ==: values of different kinds are never equal."""
    if type(left) is str or type(right) is str:
        return bool(left == right)
    measure(left)
    measure(right)
    return identity(left) == identity(right)


def convert(value: Any, to: Type) -> Any:
    """The value as a value of that type; raises Conversion. null stays null. As deep as the type, no deeper."""
    if value is None or to.kind == "any":
        return value
    if to.kind in _PRIMITIVES:
        return _PRIMITIVES[to.kind](value)
    if to.kind in ("list", "set"):
        return _to_sequence(value, to)
    if to.kind == "map":
        members = _object(value, to)
        return {key: _member(key, each, to.element or ANY) for key, each in members.items()}
    if to.kind == "object":
        return _to_object(_object(value, to), to)
    return _to_tuple(value, to)


_PRIMITIVES = {"string": to_text, "number": to_number, "bool": to_bool}


def _object(value: Any, to: Type) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Conversion(f"{to.kind} required, but have {kind_of(value)}")
    return value


def _to_sequence(value: Any, to: Type) -> list[Any]:
    if not isinstance(value, list):
        raise Conversion(f"{to.kind} of {to.element} required, but have {kind_of(value)}")
    converted = [_member(str(i), each, to.element or ANY) for i, each in enumerate(value)]
    return make_set(converted) if to.kind == "set" else converted


def _to_object(value: dict[str, Any], to: Type) -> dict[str, Any]:
    missing = [name for name, _ in to.members if name not in value and name not in to.optional]
    if missing:
        names = ", ".join(quoted(name) for name in missing)
        raise Conversion(f"attribute {names} is required" if len(missing) == 1 else f"attributes {names} are required")
    return {name: _member(name, value.get(name), kind) for name, kind in to.members}


def _to_tuple(value: Any, to: Type) -> list[Any]:
    if not isinstance(value, list):
        raise Conversion(f"tuple required, but have {kind_of(value)}")
    if len(value) != len(to.members):
        raise Conversion(f"a tuple of {len(to.members)} elements is required, but have {len(value)}")
    return [_member(name, each, kind) for (name, kind), each in zip(to.members, value, strict=True)]


def _member(name: str, value: Any, to: Type) -> Any:
    try:
        return convert(value, to)
    except Conversion as problem:
        raise Conversion(f"element {quoted(name)}: {problem}") from None
