"""Copy-on-write tables: orders, groups, indexes; old ones never change."""

import msgspec

from lepa.state.tables import CHUNK_MAX, Shape, SortedKeys, Table, TableEdit, Watch


class Row(msgspec.Struct, frozen=True):
    name: str
    color: str | None = None
    create_index: int = 0
    modify_index: int = 0


SHAPE = Shape("rows", lambda parts: parts[0], {"color": lambda row: row.color}, by_creation=True)


def edited(table: Table[Row], *rows: Row, deleted: tuple[str, ...] = (), index: int = 9) -> Table[Row]:
    edit = TableEdit(table)
    for row in rows:
        edit.put(row.name, row, row.modify_index)
    for name in deleted:
        edit.delete(name, index)
    return edit.finish()[0]


def row(name: str, color: str | None = None, created: int = 1, modified: int = 1) -> Row:
    return Row(name, color, created, modified)


def names(rows: object) -> list[str]:
    return [each.name for each in rows]  # type: ignore[attr-defined]


def test_sorted_keys_stay_sorted_over_many_chunks() -> None:
    numbers = [at * 7919 % 5_003 for at in range(5_003)]
    keys = SortedKeys()
    for start in range(0, 5_003, 700):
        keys = keys.edit(numbers[start : start + 700], [])
    assert list(keys) == sorted(numbers)
    assert list(reversed(keys)) == sorted(numbers, reverse=True)
    assert len(keys) == 5_003 > CHUNK_MAX
    kept = keys.edit([], [number for number in numbers if number % 3])
    assert list(kept) == [number for number in sorted(numbers) if number % 3 == 0]
    assert list(keys) == sorted(numbers)


def test_a_walk_may_start_at_a_key_that_is_not_there() -> None:
    keys = SortedKeys().edit(range(0, 3_000, 2), [])
    assert list(keys.since(2_991)) == [2_992, 2_994, 2_996, 2_998]
    assert list(keys.down_from(5)) == [4, 2, 0]
    assert list(keys.since(-1)) == list(keys)
    assert list(keys.since(9_999)) == []
    assert list(keys.down_from(-1)) == []
    assert list(SortedKeys().since(1)) == list(SortedKeys().down_from(1)) == []


def test_rows_come_by_key_or_by_creation() -> None:
    table = edited(Table(SHAPE), row("b", created=1), row("a", created=2), row("c", created=2))
    assert names(table.in_order()) == ["a", "b", "c"]
    assert names(table.in_order("b")) == ["b", "c"]
    assert names(table.in_order("b", reverse=True)) == ["b", "a"]
    assert names(table.by_creation()) == ["b", "a", "c"]
    assert names(table.by_creation((2, "b"))) == ["c"]
    assert names(table.by_creation(reverse=True)) == ["c", "a", "b"]


def test_rows_are_found_by_the_start_of_their_key() -> None:
    table = edited(Table(SHAPE), row("3f1"), row("3f2a"), row("3f2b"), row("3f3"))
    assert names(table.with_prefix("3f2")) == ["3f2a", "3f2b"]
    assert names(table.with_prefix("4")) == []


def test_groups_hold_the_oldest_first_and_follow_their_rows() -> None:
    table = edited(Table(SHAPE), row("c", "red", created=1), row("b", "red", created=2), row("a", "blue", created=3))
    assert names(table.group("color", "red")) == ["c", "b"]
    moved = edited(table, row("a", "red", created=3, modified=5), row("c", None, created=1, modified=5))
    assert names(moved.group("color", "red")) == ["b", "a"]
    assert moved.group("color", "blue") == ()
    assert names(table.group("color", "blue")) == ["a"]


def test_an_old_row_that_joins_a_group_takes_its_place_by_age() -> None:
    table = edited(Table(SHAPE), row("old", created=1), row("new", "red", created=5))
    joined = edited(table, row("old", "red", created=1, modified=7))
    assert names(joined.group("color", "red")) == ["old", "new"]


def test_a_row_that_comes_back_is_young_again() -> None:
    table = edited(Table(SHAPE), row("a", "red", created=1), row("b", "red", created=2))
    edit = TableEdit(table)
    edit.delete("a", 3)
    edit.put("a", row("a", "red", created=4, modified=4), 4)
    table = edit.finish()[0]
    assert names(table.group("color", "red")) == names(table.by_creation()) == ["b", "a"]


def test_table_row_and_group_each_have_their_index() -> None:
    table = edited(Table(SHAPE), row("a", "red", modified=4), row("b", "blue", modified=6))
    assert table.index_of(Watch("rows")) == 6
    assert table.index_of(Watch("rows", "id", "a")) == 4
    assert table.index_of(Watch("rows", "color", "red")) == 4
    assert table.index_of(Watch("rows", "id", "never")) == table.index_of(Watch("rows", "color", "never")) == 6


def test_a_deletion_moves_the_index_of_its_group() -> None:
    table = edited(Table(SHAPE), row("a", "red", modified=1), row("b", "red", modified=2))
    table = edited(table, deleted=("a",), index=9)
    assert table.index_of(Watch("rows", "color", "red")) == 9
    assert edited(table, deleted=("b",), index=12).index_of(Watch("rows", "color", "red")) == 12


def test_an_edit_names_all_it_touched() -> None:
    table = edited(Table(SHAPE), row("a", "red"), row("b", "green"))
    edit = TableEdit(table)
    edit.put("a", row("a", "blue", modified=5), 5)
    edit.delete("never", 5)
    touched = edit.finish()[1]
    assert {Watch("rows"), Watch("rows", "id", "a")} <= touched
    assert {watch.key for watch in touched if watch.grouping == "color"} == {"red", "blue"}


def test_an_old_table_stays_as_it_was() -> None:
    table = edited(Table(SHAPE), *(row(f"r{at}", "red", created=at) for at in range(1, 50)))
    before = (names(table.in_order()), names(table.by_creation()), table.group("color", "red"), table.index)
    edited(table, row("r7", "blue", modified=99), deleted=tuple(f"r{at}" for at in range(20, 40)), index=99)
    assert (names(table.in_order()), names(table.by_creation()), table.group("color", "red"), table.index) == before
