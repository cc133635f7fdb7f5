"""Pure: how a block of a job file is described: one row an attribute or inner block.

A row gives the name in the file, the key in the API's JSON and what the value must be. `mapping` reads bodies by these
rows; the tables themselves are in `job_blocks`, `task_blocks` and `connect_blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from lepa.jobspec.diagnostics import Reporter


class Kind(Enum):
    """What a value must be. MAP, LISTS and FREE may also be written as a block; HEADER and ANY are their members."""

    STRING = auto()
    BOOL = auto()
    INT = auto()
    DURATION = auto()
    STRINGS = auto()
    INTS = auto()
    MAP = auto()
    """Texts by name, such as `env` and `meta`."""
    LISTS = auto()
    """Lists of texts by name: the header of a check."""
    FREE = auto()
    """Anything, for a plugin to judge: the config of a driver. Blocks become lists of objects."""
    HEADER = auto()
    ANY = auto()


class Attribute(Struct, frozen=True):
    """One attribute. key: in the API's JSON, or the name again when `finish` turns it into something else."""

    name: str
    key: str
    kind: Kind
    required: bool = False


class Inner(Struct, frozen=True):
    """One kind of block inside another.

    holds: "one" (at most one block, its object), "many" (a list) or "labelled" (an object by label).
    """

    name: str
    key: str
    schema: BlockSchema
    holds: str


class Place(Struct):
    """Where a block stands, for what `finish` has to say about it."""

    report: Reporter
    start: int
    end: int

    def error(self, summary: str, detail: str) -> None:
        """Note an error about the block."""
        self.report.error(self.start, self.end, summary, detail)

    def warning(self, summary: str, detail: str) -> None:
        """Note a doubt about the block."""
        self.report.warning(self.start, self.end, summary, detail)


Finish = Callable[[dict[str, Any], Place], dict[str, Any]]
"""Brings the values of a block (keyed as its rows say) into the API's shape."""


class BlockSchema(Struct, frozen=True):
    """One kind of block. label: the key that its label goes to; empty when it has none."""

    name: str
    label: str
    attributes: dict[str, Attribute]
    blocks: dict[str, Inner]
    finish: Finish | None


Row = Attribute | Inner


def block(name: str, *rows: Row, label: str = "", finish: Finish | None = None) -> BlockSchema:
    """A schema from its rows."""
    attributes = {row.name: row for row in rows if isinstance(row, Attribute)}
    blocks = {row.name: row for row in rows if isinstance(row, Inner)}
    return BlockSchema(name, label, attributes, blocks, finish)


def string(name: str, key: str) -> Attribute:
    """A text; numbers and bools are written out."""
    return Attribute(name, key, Kind.STRING)


def boolean(name: str, key: str) -> Attribute:
    """true or false, also as text."""
    return Attribute(name, key, Kind.BOOL)


def integer(name: str, key: str, *, required: bool = False) -> Attribute:
    """A whole number, also as text."""
    return Attribute(name, key, Kind.INT, required)


def duration(name: str, key: str) -> Attribute:
    """Go's duration text ("1h30m") or nanoseconds; nanoseconds in the JSON."""
    return Attribute(name, key, Kind.DURATION)


def strings(name: str, key: str) -> Attribute:
    """A list of texts."""
    return Attribute(name, key, Kind.STRINGS)


def integers(name: str, key: str) -> Attribute:
    """A list of whole numbers."""
    return Attribute(name, key, Kind.INTS)


def string_map(name: str, key: str) -> Attribute:
    """Texts by name, as a block or as an attribute."""
    return Attribute(name, key, Kind.MAP)


def list_map(name: str, key: str) -> Attribute:
    """Lists of texts by name, as a block or as an attribute."""
    return Attribute(name, key, Kind.LISTS)


def free(name: str, key: str) -> Attribute:
    """Whatever a plugin wants, as a block or as an attribute."""
    return Attribute(name, key, Kind.FREE)


def one(schema: BlockSchema, key: str) -> Inner:
    """At most one block."""
    return Inner(schema.name, key, schema, "one")


def many(schema: BlockSchema, key: str) -> Inner:
    """Any number of blocks, in order."""
    return Inner(schema.name, key, schema, "many")


def labelled(schema: BlockSchema, key: str) -> Inner:
    """Any number of blocks, each under its label."""
    return Inner(schema.name, key, schema, "labelled")
