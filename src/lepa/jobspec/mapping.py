"""Pure: blocks -> a plain dict in the API's JSON shape, by the tables of `job_blocks`.

Only what the file sets is in the dict; defaults are the model's business. `dynamic` blocks are expanded on the way.
What does not fit is reported with its place, left out, and the rest is read on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from lepa.jobspec import values
from lepa.jobspec.diagnostics import Refusal, Reporter
from lepa.jobspec.expressions import Scope, Unresolved, elements, evaluate, refusal
from lepa.jobspec.schema import Attribute, BlockSchema, Inner, Kind, Place
from lepa.jobspec.syntax import Attribute as SourceAttribute
from lepa.jobspec.syntax import Block, Body, Traversal
from lepa.jobspec.values import Conversion
from lepa.kit.durations import parse_duration

BLOCKS_MAX = 20_000
"""Blocks of one file after `dynamic` is expanded."""


class Found(Struct):
    """A block as it stands or as `dynamic` made it. spot: start and end of what to point at."""

    type: str
    labels: tuple[str, ...]
    body: Body
    scope: Scope
    spot: tuple[int, int]


class Mapper:
    """Reads bodies of one source by their schemas."""

    def __init__(self, report: Reporter) -> None:
        self.report = report
        self.blocks = 0

    def block(self, found: Found, schema: BlockSchema) -> dict[str, Any] | None:
        """The dict of one block; None when its labels do not fit."""
        label = self._label(found, schema)
        if label is None:
            return None
        result: dict[str, Any] = {schema.label: label} if schema.label else {}
        for attribute in found.body.attributes.values():
            self._attribute(attribute, schema, found.scope, result)
        self._missing(found, schema)
        self._inner_blocks(found, schema, result)
        if schema.finish is not None:
            result = schema.finish(result, Place(self.report, *found.spot))
        return result

    # Labels

    def _label(self, found: Found, schema: BlockSchema) -> str | None:
        wanted = 1 if schema.label else 0
        start, end = found.spot
        if len(found.labels) > wanted:
            expected = "one label (the name) is expected" if wanted else "no labels are expected"
            detail = f"For {found.type} blocks {expected}, but there is also {values.quoted(found.labels[wanted])}."
            self.report.error(start, end, f"Extraneous label for {found.type}", detail)
            return None
        if len(found.labels) < wanted:
            detail = f'All {found.type} blocks must have 1 label (name): {found.type} "name" {{ ... }}.'
            self.report.error(start, end, f"Missing name for {found.type}", detail)
            return None
        return found.labels[0] if wanted else ""

    # Attributes

    def _attribute(self, attribute: SourceAttribute, schema: BlockSchema, scope: Scope, result: dict[str, Any]) -> None:
        row = schema.attributes.get(attribute.name)
        if row is None:
            self._unsupported_argument(attribute, schema)
            return
        value = self._value_if_any(attribute, row, scope)
        if value is not None:
            result[row.key] = value

    def _value_if_any(self, attribute: SourceAttribute, row: Attribute, scope: Scope) -> Any:
        """The value; None for null, for what cannot be resolved, and for what is refused, which is reported."""
        try:
            return self._value(attribute, row, scope)
        except Unresolved:
            return None
        except Refusal as problem:
            self.report.refuse(problem)
            return None

    def _value(self, attribute: SourceAttribute, row: Attribute, scope: Scope) -> Any:
        value = evaluate(attribute.expression, scope)
        if value is None:
            return None
        scope.budget.spend_value(attribute.expression, value)
        try:
            return _CONVERSIONS[row.kind](value)
        except Conversion as problem:
            detail = f'Unsuitable value for "{attribute.name}": {problem}.'
            raise refusal(attribute.expression, "Incorrect attribute value type", detail) from None

    def _unsupported_argument(self, attribute: SourceAttribute, schema: BlockSchema) -> None:
        name = attribute.name
        detail = f'An argument named "{name}" is not expected here.'
        if name in schema.blocks:
            detail += f' Did you mean to define a block of type "{name}"?'
        else:
            detail += _suggestion(name, schema.attributes)
        self.report.error(attribute.start, attribute.end, "Unsupported argument", detail)

    def _missing(self, found: Found, schema: BlockSchema) -> None:
        for row in schema.attributes.values():
            if row.required and row.name not in found.body.attributes:
                detail = f'The argument "{row.name}" is required in {schema.name}, but no definition was found.'
                self.report.error(*found.spot, "Missing required argument", detail)

    # Blocks

    def _inner_blocks(self, found: Found, schema: BlockSchema, result: dict[str, Any]) -> None:
        seen: dict[str, Found] = {}
        for inner in self.expanded(found.body.blocks, found.scope):
            row = schema.blocks.get(inner.type)
            if row is not None:
                self._inner(inner, row, seen, result)
            elif (attribute := schema.attributes.get(inner.type)) is not None and attribute.kind in _BLOCK_KINDS:
                self._map_block(inner, attribute, seen, found.body, result)
            else:
                self._unsupported_block(inner, schema)

    def _inner(self, inner: Found, row: Inner, seen: dict[str, Found], result: dict[str, Any]) -> None:
        if row.holds == "one" and not self._first(inner, seen):
            return
        value = self.block(inner, row.schema)
        if value is None:
            return
        if row.holds == "one":
            result[row.key] = value
        elif row.holds == "many":
            result.setdefault(row.key, []).append(value)
        else:
            named = result.setdefault(row.key, {})
            if inner.labels[0] in named:
                detail = f'A {inner.type} named "{inner.labels[0]}" was already defined.'
                self.report.error(*inner.spot, f"Duplicate {inner.type} block", detail)
            named[inner.labels[0]] = value

    def _first(self, inner: Found, seen: dict[str, Found]) -> bool:
        earlier = seen.setdefault(inner.type, inner)
        if earlier is inner:
            return True
        where = self.report.source.where(*earlier.spot)
        detail = f"Only one {inner.type} block is allowed. Another was defined at {where}."
        self.report.error(*inner.spot, f"Duplicate {inner.type} block", detail)
        return False

    def _map_block(
        self, inner: Found, row: Attribute, seen: dict[str, Found], outer: Body, result: dict[str, Any]
    ) -> None:
        """A map that is written as a block: `env { A = 1 }`."""
        if row.name in outer.attributes:
            detail = f'"{row.name}" is given as a block and as an argument; only one of them is allowed.'
            self.report.error(*inner.spot, f"Duplicate {row.name} block", detail)
            return
        if not self._first(inner, seen):
            return
        if inner.labels:
            detail = f"No labels are expected for {row.name} blocks."
            self.report.error(*inner.spot, f"Extraneous label for {row.name}", detail)
            return
        result[row.key] = self._free_body(inner) if row.kind is Kind.FREE else self._map_body(inner, row)

    def _map_body(self, found: Found, row: Attribute) -> dict[str, Any]:
        member = _MEMBER_ROWS[row.kind]
        for inner in found.body.blocks:
            detail = f"Only arguments (name = value) are expected in {row.name}."
            self.report.error(inner.start, inner.end, "Unexpected block", detail)
        return self._members(found, member)

    def _members(self, found: Found, row: Attribute) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for attribute in found.body.attributes.values():
            value = self._value_if_any(attribute, row, found.scope)
            if value is not None:
                members[attribute.name] = value
        return members

    def _free_body(self, found: Found) -> dict[str, Any]:
        """Anything: attributes as they are, blocks as lists of objects, one more level for each label."""
        members = self._members(found, _FREE_ROW)
        for inner in self.expanded(found.body.blocks, found.scope):
            if inner.type in found.body.attributes:
                detail = f'"{inner.type}" is given as a block and as an argument; only one of them is allowed.'
                self.report.error(*inner.spot, f"Duplicate {inner.type} block", detail)
                continue
            value = self._free_body(inner)
            for label in reversed(inner.labels):
                value = {label: [value]}
            members.setdefault(inner.type, []).append(value)
        return members

    def _unsupported_block(self, inner: Found, schema: BlockSchema) -> None:
        detail = f'Blocks of type "{inner.type}" are not expected here.'
        if inner.type in schema.attributes:
            detail += (
                f' Did you mean to define the argument "{inner.type}"? Then use an equals sign: {inner.type} = value.'
            )
        else:
            kinds = [name for name, row in schema.attributes.items() if row.kind in _BLOCK_KINDS]
            detail += _suggestion(inner.type, [*schema.blocks, *kinds])
        self.report.error(*inner.spot, "Unsupported block type", detail)

    # Dynamic blocks

    def expanded(self, blocks: Iterable[Block], scope: Scope) -> Iterator[Found]:
        """The blocks, with each `dynamic` replaced by what it generates."""
        for block in blocks:
            if block.type == "dynamic":
                try:
                    yield from self._generated(block, scope)
                except Unresolved:
                    continue
                except Refusal as problem:
                    self.report.refuse(problem)
            else:
                labels = tuple(label.text for label in block.labels)
                yield self._counted(Found(block.type, labels, block.body, scope, (block.start, block.end)))

    def _counted(self, found: Found) -> Found:
        self.blocks += 1
        if self.blocks > BLOCKS_MAX:
            detail = f"The file comes to more than {BLOCKS_MAX} blocks."
            raise Refusal(*found.spot, "Too many blocks", detail)
        return found

    def _generated(self, block: Block, scope: Scope) -> Iterator[Found]:
        kind, content, iterator = self._dynamic_parts(block)
        attributes = block.body.attributes
        for_each = attributes["for_each"].expression
        for key, value in elements(for_each, evaluate(for_each, scope)):
            inner = scope.child({iterator: {"key": key, "value": value}})
            labels: tuple[str, ...] = ()
            if "labels" in attributes:
                expression = attributes["labels"].expression
                try:
                    labels = tuple(_strings(evaluate(expression, inner)))
                except Conversion as problem:
                    raise refusal(expression, "Invalid dynamic block label", f"{problem}.") from None
            yield self._counted(Found(kind, labels, content.body, inner, (block.start, block.end)))

    def _dynamic_parts(self, block: Block) -> tuple[str, Block, str]:
        """The type that is generated, the content block and the iterator's name."""
        if len(block.labels) != 1:
            detail = 'A dynamic block has one label, the type of the blocks it generates: dynamic "port" { ... }.'
            raise Refusal(block.start, block.end, "Missing name for dynamic", detail)
        kind = block.labels[0].text
        contents = [each for each in block.body.blocks if each.type == "content"]
        if len(contents) != 1 or len(block.body.blocks) != 1:
            detail = f'A dynamic "{kind}" block needs exactly one block "content", which is used for each element.'
            raise Refusal(block.start, block.end, "Invalid dynamic block", detail)
        if "for_each" not in block.body.attributes:
            detail = f'The argument "for_each" is required in dynamic "{kind}", but no definition was found.'
            raise Refusal(block.start, block.end, "Missing required argument", detail)
        for attribute in block.body.attributes.values():
            if attribute.name not in ("for_each", "iterator", "labels"):
                detail = f'An argument named "{attribute.name}" is not expected in dynamic blocks.'
                raise Refusal(attribute.start, attribute.end, "Unsupported argument", detail)
        return kind, contents[0], self._iterator(block, kind)

    def _iterator(self, block: Block, kind: str) -> str:
        attribute = block.body.attributes.get("iterator")
        if attribute is None:
            return kind
        if isinstance(attribute.expression, Traversal) and not attribute.expression.steps:
            return attribute.expression.root
        detail = "The iterator is a bare name, such as: iterator = port."
        raise Refusal(attribute.start, attribute.end, "Invalid iterator", detail)


# Conversions


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise Conversion(f"a list of strings is required, but have {values.kind_of(value)}")
    return [_item(value, values.to_text, index) for index in range(len(value))]


def _integers(value: Any) -> list[int]:
    if not isinstance(value, list):
        raise Conversion(f"a list of numbers is required, but have {values.kind_of(value)}")
    return [_item(value, _integer, index) for index in range(len(value))]


def _item(items: list[Any], conversion: Callable[[Any], Any], index: int) -> Any:
    try:
        return conversion(items[index])
    except Conversion as problem:
        raise Conversion(f"element {index}: {problem}") from None


def _integer(value: Any) -> int:
    whole = values.to_whole(value)
    if not -(1 << 63) <= whole < 1 << 63:
        raise Conversion(f"{whole} is out of the range of 64 bits")
    return whole


def _duration(value: Any) -> int:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as problem:
            raise Conversion(str(problem)) from None
    return _integer(value)


def _map(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise Conversion(f"a map of strings is required, but have {values.kind_of(value)}")
    return {key: values.to_text(each) for key, each in value.items() if each is not None}


def _header_values(value: Any) -> list[str]:
    """The values of one header. Numbers are refused: the header would not say what was meant by them."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Conversion("a list of strings is required")
    return list(value)


def _lists(value: Any) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise Conversion(f"a map of lists of strings is required, but have {values.kind_of(value)}")
    return {key: _header_values(each) for key, each in value.items()}


def _free(value: Any) -> Any:
    """A copy of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: _free(each) for key, each in value.items()}
    return [_free(each) for each in value] if isinstance(value, list) else value


def _free_map(value: Any) -> dict[str, Any]:
    """What a FREE attribute is given in place of a block: an object, or a list of one."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise Conversion(f"an object is required, but have {values.kind_of(value)}")
    copy: dict[str, Any] = _free(value)
    return copy


_CONVERSIONS: dict[Kind, Callable[[Any], Any]] = {
    Kind.STRING: values.to_text,
    Kind.BOOL: values.to_bool,
    Kind.INT: _integer,
    Kind.DURATION: _duration,
    Kind.STRINGS: _strings,
    Kind.INTS: _integers,
    Kind.MAP: _map,
    Kind.LISTS: _lists,
    Kind.FREE: _free_map,
    Kind.HEADER: _header_values,
    Kind.ANY: _free,
}
_BLOCK_KINDS = frozenset({Kind.MAP, Kind.LISTS, Kind.FREE})
_MEMBER_ROWS = {
    Kind.MAP: Attribute("", "", Kind.STRING),
    Kind.LISTS: Attribute("", "", Kind.HEADER),
}
_FREE_ROW = Attribute("", "", Kind.ANY)


# Suggestions


def _suggestion(name: str, known: Iterable[str]) -> str:
    """` Did you mean "x"?` when a known name is close enough."""
    best = min(((distance(name, each), each) for each in known), default=(9, ""))
    return f' Did you mean "{best[1]}"?' if best[0] <= 2 and best[0] < len(best[1]) - 1 else ""


def distance(left: str, right: str) -> int:
    """How many letters must be added, dropped or changed; 9 when the lengths alone say that it is too far."""
    if abs(len(left) - len(right)) > 2:
        return 9
    row = list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (letter != other))
    return row[-1]
