"""Pure: functions about lists, sets and maps."""

from __future__ import annotations

import itertools
import math
from typing import Any

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, anything, mapping, present, row, sequence, text, text_list, whole
from lepa.jobspec.values import Conversion, HclSet


def chunks(items: list[Any], size: int) -> list[list[Any]]:
    """The list cut into lists of a size; size 0 gives one."""
    if size < 0:
        raise Conversion("the size argument must be positive")
    if not size:
        return [list(items)] if items else []
    return [items[i : i + size] for i in range(0, len(items), size)]


def coalesce(*candidates: Any) -> Any:
    """The first that is neither null nor an empty text."""
    for each in candidates:
        if each is not None and each != "":
            return each
    raise Conversion("no non-null arguments")


def coalesce_list(*candidates: list[Any]) -> list[Any]:
    """The first list that is not empty."""
    for each in candidates:
        if each:
            return each
    raise Conversion("no non-null arguments")


def contains(items: list[Any], wanted: Any) -> bool:
    """Is there an equal element?"""
    return any(values.equal(each, wanted) for each in items)


def distinct(items: list[Any]) -> list[Any]:
    """Without repetitions, in order of first appearance."""
    unique: dict[str, Any] = {}
    for each in items:
        unique.setdefault(values.identity(each), each)
    return list(unique.values())


def element(items: list[Any], index: int) -> Any:
    """An element by number; beyond the end it starts again from the first."""
    if not items:
        raise Conversion("cannot use element function with an empty list")
    if index < 0:
        raise Conversion("cannot use element function with a negative index")
    return items[index % len(items)]


def flatten(items: list[Any]) -> list[Any]:
    """Lists inside lists become one list."""
    flat: list[Any] = []
    waiting = [iter(items)]
    while waiting:
        for each in waiting[-1]:
            if isinstance(each, list):
                waiting.append(iter(each))
                break
            flat.append(each)
        else:
            waiting.pop()
    return flat


def index_of(items: list[Any], wanted: Any) -> int:
    """The number of the first equal element."""
    for position, each in enumerate(items):
        if values.equal(each, wanted):
            return position
    raise Conversion("item not found")


def keys(members: dict[str, Any]) -> list[str]:
    """The names, in order."""
    return sorted(members)


def length(value: Any) -> int:
    """How many elements, members or characters."""
    if isinstance(value, list | dict | str):
        return len(value)
    raise Conversion("argument must be a string, a collection type, or a structural type")


def lookup(members: dict[str, Any], name: str, *default: Any) -> Any:
    """A member by name, or the default."""
    if name in members:
        return members[name]
    if default:
        return default[0]
    raise Conversion(f"lookup failed to find key {values.quoted(name)}")


def merge(*maps: Any) -> dict[str, Any]:
    """All members together; the last of a name wins; null counts as empty."""
    merged: dict[str, Any] = {}
    for each in maps:
        merged.update(mapping(each) if each is not None else {})
    return merged


def product(*lists: list[Any]) -> list[Any]:
    """Every combination of one element of each; a set of them when all are sets."""
    if len(lists) < 2:
        raise Conversion("at least two arguments are required")
    if math.prod(map(len, lists)) * len(lists) > values.VALUE_NODES_MAX:
        raise Conversion("there are too many combinations")
    combinations = [list(each) for each in itertools.product(*lists)]
    return values.make_set(combinations) if all(isinstance(each, HclSet) for each in lists) else combinations


def intersection(first: list[Any], *others: list[Any]) -> HclSet:
    """What is in all of them."""
    wanted = [{values.identity(each) for each in other} for other in others]
    return values.make_set([each for each in first if all(values.identity(each) in other for other in wanted)])


def union(*lists: list[Any]) -> HclSet:
    """What is in any of them."""
    return values.make_set([each for items in lists for each in items])


def cut(items: list[Any], start: int, end: int) -> list[Any]:
    """The elements from start to before end."""
    if not 0 <= start <= end <= len(items):
        raise Conversion(f"start and end must be in order and within the list of {len(items)} elements")
    return items[start:end]


def values_of(members: dict[str, Any]) -> list[Any]:
    """The values, in the order of their names."""
    return [members[name] for name in sorted(members)]


def zip_map(names: list[str], items: list[Any]) -> dict[str, Any]:
    """A map from names to values."""
    if len(names) != len(items):
        raise Conversion(f"number of keys ({len(names)}) does not match number of values ({len(items)})")
    return dict(zip(names, items, strict=True))


ROWS: tuple[Row, ...] = (
    row("chunklist", chunks, sequence, whole),
    row("coalesce", coalesce, rest=anything),
    row("coalescelist", coalesce_list, rest=sequence),
    row("compact", lambda items: [each for each in items if each not in ("", None)], sequence),
    row("concat", lambda *lists: [each for items in lists for each in items], rest=sequence),
    row("contains", contains, sequence, anything),
    row("distinct", distinct, sequence),
    row("element", element, sequence, whole),
    row("flatten", flatten, sequence),
    row("index", index_of, sequence, anything),
    row("keys", keys, mapping),
    row("length", length, present),
    row("lookup", lookup, mapping, text, anything, optional=1),
    row("merge", merge, rest=anything),
    row("setintersection", intersection, sequence, rest=sequence),
    row("setproduct", product, rest=sequence),
    row("setunion", union, sequence, rest=sequence),
    row("slice", cut, sequence, whole, whole),
    row("values", values_of, mapping),
    row("zipmap", zip_map, text_list, sequence),
)
