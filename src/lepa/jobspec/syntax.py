"""Pure: the shapes that HCL text is parsed into.

`start` and `end` are offsets into the text the shape was read from. Shapes hold no values other than literals: what
they come to is worked out by `expressions`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Expression(Struct, gc=False):
    """Anything that has a value."""

    start: int
    end: int


class Literal(Expression, gc=False):
    """A number, a text without interpolation, true, false or null."""

    value: Any


class Traversal(Expression, gc=False):
    """A name followed by constant steps: `var.image`, `attr.kernel.name`, `meta["a b"]`, `list[0]`."""

    root: str
    steps: tuple[str | int, ...]


class GetAttribute(Struct, gc=False):
    """The step `.name` (or the old index form `.0`) of an Access."""

    key: str | int
    start: int
    end: int


class GetIndex(Struct, gc=False):
    """The step `[key]` of an Access."""

    key: Expression
    start: int
    end: int


class Splat(Struct, gc=False):
    """The step `.*` or `[*]` of an Access: what follows is done to each element."""

    steps: tuple[Step, ...]
    start: int
    end: int


Step = GetAttribute | GetIndex | Splat


class Access(Expression, gc=False):
    """Steps into the value of any other expression."""

    base: Expression
    steps: tuple[Step, ...]


class Call(Expression, gc=False):
    """`name(arguments)`. expand: the last argument is a list that is spread out (`...`)."""

    name: str
    arguments: tuple[Expression, ...]
    expand: bool


class Unary(Expression, gc=False):
    """`-operand` or `!operand`."""

    operator: str
    operand: Expression


class Binary(Expression, gc=False):
    """`left operator right`. A chain is deep on the left side only, and of bounded length."""

    operator: str
    left: Expression
    right: Expression


class Conditional(Expression, gc=False):
    """`condition ? when_true : when_false`."""

    condition: Expression
    when_true: Expression
    when_false: Expression


class TupleOf(Expression, gc=False):
    """`[a, b]`."""

    items: tuple[Expression, ...]


class ObjectOf(Expression, gc=False):
    """`{a = 1, "b": 2, (c) = 3}`; a bare name as key is a Literal."""

    items: tuple[tuple[Expression, Expression], ...]


class For(Expression, gc=False):
    """`[for k, v in collection: value if condition]`; with a key it makes an object.

    grouped: values with the same key are gathered in lists (`...`).
    """

    key_name: str | None
    value_name: str
    collection: Expression
    key: Expression | None
    value: Expression
    condition: Expression | None
    grouped: bool


class Template(Expression, gc=False):
    """A text with interpolations and directives; a text that is nothing but one interpolation is that expression."""

    parts: tuple[Part, ...]


class TemplateIf(Struct, gc=False):
    """`%{ if condition }...%{ else }...%{ endif }`."""

    condition: Expression
    when_true: tuple[Part, ...]
    when_false: tuple[Part, ...]


class TemplateFor(Struct, gc=False):
    """`%{ for k, v in collection }...%{ endfor }`."""

    key_name: str | None
    value_name: str
    collection: Expression
    body: tuple[Part, ...]


Part = str | Expression | TemplateIf | TemplateFor


class Attribute(Struct, gc=False):
    """`name = expression`; start and end are those of the name."""

    name: str
    expression: Expression
    start: int
    end: int


class Label(Struct, gc=False):
    """One label of a block, in quotes or bare."""

    text: str
    start: int
    end: int


class Block(Struct, gc=False):
    """`type "label" { ... }`; start and end are those of the type."""

    type: str
    labels: tuple[Label, ...]
    body: Body
    start: int
    end: int


class Body(Struct, gc=False):
    """The attributes, by name, and the blocks, in order, between two braces or in a whole file.

    start and end: the closing brace or the end of the file, where something missing would have stood.
    """

    attributes: dict[str, Attribute]
    blocks: list[Block]
    start: int
    end: int
