"""Pure: copy-on-write tables with indexes.

A Table is immutable. A TableEdit takes a batch of changes and makes the next Table, which shares all that did not
change with the one before: rows and groups are persistent maps, ordered keys are tuples of chunks. Old tables stay as
they were for as long as somebody holds them.

A table knows its rows by key; its keys in order (lists, pages, prefixes); for some tables its keys in the order of
creation; and groups of rows that share something (the allocations of a node), each oldest first. Table, row and group
each have an index: the revision at which they last changed, which blocking queries wait for.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from immutables import Map

Key = Any
"""A text, or a tuple of texts and numbers; all keys of one table have the same shape and can be ordered."""

Row = TypeVar("Row")

CHUNK_MAX: Final = 512
"""Keys in one chunk of SortedKeys: an insert copies one chunk and the list of chunks."""

PLACED_ONE_BY_ONE_MAX: Final = 32
"""Changes of one chunk that are put in their places; with more of them the chunk is sorted anew."""


class Watch(NamedTuple):
    """Something whose changes can be waited for.

    grouping "": the whole table. "id": the row with key `key`. Else: the group `key` of that grouping.
    """

    table: str
    grouping: str = ""
    key: Key = None


class Shape(NamedTuple):
    """What is particular to a table.

    key: from the parts of the store's key. groupings: by name, the group that a row belongs to, or None.
    by_creation: whether the order of creation is kept.
    """

    name: str
    key: Callable[[tuple[str, ...]], Key]
    groupings: Mapping[str, Callable[[Any], Hashable]] = {}
    by_creation: bool = False


class Group(NamedTuple):
    """Keys of the rows of one group, oldest first, and the revision at which any of them last changed."""

    keys: tuple[Key, ...]
    changed: int


class SortedKeys:
    """Keys in order, immutable; `edit` costs one chunk for each place touched."""

    __slots__ = ("_chunks", "_firsts", "_size")

    def __init__(self, chunks: tuple[tuple[Key, ...], ...] = ()) -> None:
        self._chunks = chunks
        self._firsts = tuple(map(itemgetter(0), chunks))
        self._size = sum(map(len, chunks))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._chunks)

    def __reversed__(self) -> Iterator[Key]:
        return chain.from_iterable(map(reversed, reversed(self._chunks)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedKeys) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def since(self, start: Key) -> Iterator[Key]:
        """The keys >= start."""
        at = max(bisect_right(self._firsts, start) - 1, 0)
        for chunk in self._chunks[at : at + 1]:
            yield from chunk[bisect_left(chunk, start) :]
        yield from chain.from_iterable(self._chunks[at + 1 :])

    def down_from(self, start: Key) -> Iterator[Key]:
        """The keys <= start, largest first."""
        at = max(bisect_right(self._firsts, start) - 1, 0)
        for chunk in self._chunks[at : at + 1]:
            yield from reversed(chunk[: bisect_right(chunk, start)])
        yield from chain.from_iterable(map(reversed, reversed(self._chunks[:at])))

    def edit(self, added: Collection[Key], removed: Collection[Key]) -> "SortedKeys":
        """The same without `removed`, which must be in it, and with `added`, which must not."""
        if not added and not removed:
            return self
        adds, removes = self._by_chunk(added), self._by_chunk(removed)
        chunks = list(self._chunks) or [()]
        for at in sorted(adds.keys() | removes.keys(), reverse=True):
            chunks[at : at + 1] = _chunked(_merged(chunks[at], adds.get(at, ()), removes.get(at, ())))
        return SortedKeys(tuple(chunks))

    def _by_chunk(self, keys: Collection[Key]) -> dict[int, list[Key]]:
        places: dict[int, list[Key]] = defaultdict(list)
        for key in keys:
            places[max(bisect_right(self._firsts, key) - 1, 0)].append(key)
        return places


def _merged(chunk: Sequence[Key], added: Sequence[Key], removed: Sequence[Key]) -> list[Key]:
    """The keys of one chunk afterwards, in order."""
    if len(added) + len(removed) > PLACED_ONE_BY_ONE_MAX:
        gone = set(removed)
        return sorted(chain((key for key in chunk if key not in gone), added))
    keys = list(chunk)
    for key in removed:
        del keys[bisect_left(keys, key)]
    for key in added:
        insort(keys, key)
    return keys


def _chunked(keys: list[Key]) -> list[tuple[Key, ...]]:
    """One chunk where it fits; else chunks three quarters full, which leaves room to grow."""
    if len(keys) <= CHUNK_MAX:
        return [tuple(keys)] if keys else []
    step = CHUNK_MAX * 3 // 4
    return [tuple(keys[at : at + step]) for at in range(0, len(keys), step)]


class Table(Generic[Row]):
    """One immutable table; `index` is the revision of its last change."""

    __slots__ = ("created", "groups", "index", "keys", "rows", "shape")

    def __init__(
        self,
        shape: Shape,
        rows: "Map[Key, Row] | None" = None,
        keys: SortedKeys | None = None,
        created: SortedKeys | None = None,
        groups: "Mapping[str, Map[Hashable, Group]] | None" = None,
        index: int = 0,
    ) -> None:
        self.shape = shape
        self.rows: Map[Key, Row] = Map() if rows is None else rows
        self.keys = keys or SortedKeys()
        self.created = created or SortedKeys()
        self.groups: Mapping[str, Map[Hashable, Group]] = groups or {name: Map() for name in shape.groupings}
        self.index = index

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, key: Key) -> Row | None:
        """One row, or None."""
        return self.rows.get(key)

    def values(self) -> Iterator[Row]:
        """All rows in no particular order."""
        return iter(self.rows.values())

    def in_order(self, start: Key = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows by key, from `start` on (downwards from it when reversed)."""
        return map(self.rows.__getitem__, _walk(self.keys, start, reverse))

    def by_creation(self, start: tuple[int, Key] | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows by (create_index, key), from `start` on (downwards from it when reversed)."""
        return map(self.rows.__getitem__, map(itemgetter(1), _walk(self.created, start, reverse)))

    def with_prefix(self, prefix: str) -> Iterator[Row]:
        """Rows whose key starts with `prefix`, by key. Only for tables with keys of one part."""
        for key in self.keys.since(prefix):
            if not key.startswith(prefix):
                return
            yield self.rows[key]

    def within(self, *parts: str) -> Iterator[Row]:
        """Rows whose key starts with these parts, by key. Only for tables with keys of several parts."""
        for key in self.keys.since(parts):
            if key[: len(parts)] != parts:
                return
            yield self.rows[key]

    def group(self, grouping: str, key: Hashable) -> tuple[Row, ...]:
        """The rows of one group, oldest first."""
        group = self.groups[grouping].get(key)
        return tuple(map(self.rows.__getitem__, group.keys)) if group else ()

    def index_of(self, watch: Watch) -> int:
        """When the table, the row or the group last changed; for what is not there, when the table did."""
        if not watch.grouping:
            return self.index
        if watch.grouping == "id":
            return getattr(self.rows.get(watch.key), "modify_index", self.index)
        group = self.groups[watch.grouping].get(watch.key)
        return group.changed if group else self.index

    def as_of(self, index: int) -> Self:
        """The same, last changed at `index`."""
        return type(self)(self.shape, self.rows, self.keys, self.created, self.groups, index)

    def with_rows(self, rows: "Mapping[Key, Row]") -> Self:
        """The same with some rows in another form: for fields that no index or order depends on."""
        return type(self)(self.shape, self.rows.update(rows), self.keys, self.created, self.groups, self.index)


def _walk(keys: SortedKeys, start: Key, reverse: bool) -> Iterator[Key]:
    if start is None:
        return reversed(keys) if reverse else iter(keys)
    return keys.down_from(start) if reverse else keys.since(start)


class TableEdit(Generic[Row]):
    """A batch of changes to one table. `put` and `delete` as they come, then `finish` once."""

    def __init__(self, table: Table[Row]) -> None:
        self._table = table
        self._rows = table.rows.mutate()
        self._before: dict[Key, Row | None] = {}
        self._index: dict[Key, int] = {}

    def get(self, key: Key) -> Row | None:
        """The row as it stands within the batch."""
        return self._rows.get(key)

    def put(self, key: Key, row: Row, index: int) -> Row | None:
        """Set a row at revision `index`; returns the one before."""
        before = self._touch(key, index)
        self._rows[key] = row
        return before

    def delete(self, key: Key, index: int) -> Row | None:
        """Remove a row at revision `index`; returns it, or None when it was not there."""
        before = self._touch(key, index)
        if before is not None:
            del self._rows[key]
        return before

    def _touch(self, key: Key, index: int) -> Row | None:
        before: Row | None = self._rows.get(key)
        self._before.setdefault(key, before)
        self._index[key] = index
        return before

    def finish(self) -> tuple[Table[Row], set[Watch]]:
        """The next table, and everything in it that changed."""
        table, rows = self._table, self._rows.finish()
        pairs = [(key, before, rows.get(key)) for key, before in self._before.items()]
        keys = table.keys.edit(
            [key for key, before, after in pairs if before is None and after is not None],
            [key for key, before, after in pairs if before is not None and after is None],
        )
        created = table.created
        if table.shape.by_creation:
            moved = [pair for pair in pairs if _created(pair[1]) != _created(pair[2])]
            created = created.edit(
                [(_created(after), key) for key, _, after in moved if after is not None],
                [(_created(before), key) for key, before, _ in moved if before is not None],
            )
        touched = {Watch(table.shape.name), *(Watch(table.shape.name, "id", key) for key in self._before)}
        groups = {
            name: self._regroup(name, group_of, rows, pairs, touched)
            for name, group_of in table.shape.groupings.items()
        }
        index = max(self._index.values(), default=table.index)
        return Table(table.shape, rows, keys, created, groups, index), touched

    def _regroup(
        self,
        name: str,
        group_of: Callable[[Row], Hashable],
        rows: "Map[Key, Row]",
        pairs: list[tuple[Key, Row | None, Row | None]],
        touched: set[Watch],
    ) -> "Map[Hashable, Group]":
        changes: dict[Hashable, _GroupChange] = defaultdict(_GroupChange)
        for key, before, after in pairs:
            was = None if before is None else group_of(before)
            now = None if after is None else group_of(after)
            if was == now and _created(before) == _created(after):
                if was is not None:
                    changes[was].at(self._index[key])
                continue
            if was is not None:
                changes[was].lose(key, self._index[key])
            if now is not None:
                changes[now].gain(_created(after), key, self._index[key])
        touched.update(Watch(self._table.shape.name, name, group) for group in changes)
        edit = self._table.groups[name].mutate()
        for group, change in changes.items():
            keys = change.apply(edit[group].keys if group in edit else (), rows)
            if keys:
                edit[group] = Group(keys, change.index)
            elif group in edit:
                del edit[group]
        return edit.finish()


class _GroupChange:
    """What a batch does to one group. new: keys with when they were created."""

    __slots__ = ("gone", "index", "new")

    def __init__(self) -> None:
        self.index = 0
        self.gone: set[Key] = set()
        self.new: list[tuple[int, Key]] = []

    def at(self, index: int) -> None:
        """A row of the group changed at this revision."""
        self.index = max(self.index, index)

    def lose(self, key: Key, index: int) -> None:
        """A row is not in the group any more."""
        self.at(index)
        self.gone.add(key)

    def gain(self, created: int, key: Key, index: int) -> None:
        """A row is in the group now."""
        self.at(index)
        self.new.append((created, key))

    def apply(self, keys: tuple[Key, ...], rows: "Map[Key, Any]") -> tuple[Key, ...]:
        """The keys of the group afterwards, oldest first. New rows are nearly always the youngest."""
        if self.gone:
            keys = tuple(key for key in keys if key not in self.gone)
        if not self.new:
            return keys
        new = sorted(self.new)
        if keys and (_created(rows[keys[-1]]), keys[-1]) > new[0]:
            new = sorted((*((_created(rows[key]), key) for key in keys), *new))
            keys = ()
        return (*keys, *(key for _, key in new))


def _created(row: Any) -> int:
    return getattr(row, "create_index", 0)
