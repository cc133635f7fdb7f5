"""Names and ids."""

from lepa.model.ids import alloc_index, alloc_name, dispatched_child_id, periodic_child_id, short_id


def test_the_index_of_a_name_is_found_again() -> None:
    assert alloc_name("web", "api", 12) == "web.api[12]"
    assert alloc_index(alloc_name("a.b/c", "g.h[1]", 3)) == 3


def test_a_name_without_an_index_has_index_minus_one() -> None:
    assert [alloc_index(name) for name in ("", "web", "web.api[]", "web.api[x]", "web.api[-1]", "[3]")] == [-1] * 6


def test_ids_are_shortened_to_eight_characters() -> None:
    assert short_id("8ba85cef-63f0-4b87-9a1b-0a7d1e9f4c2d") == "8ba85cef"


def test_children_carry_their_parents_name_and_their_time() -> None:
    assert periodic_child_id("backup", 1767225600) == "backup/periodic-1767225600"
    assert dispatched_child_id("encode", 1767225600, "0123abcd") == "encode/dispatch-1767225600-0123abcd"
    assert dispatched_child_id("encode", 1767225600, "0123abcd", "run1") == "encode/dispatch-run1-1767225600-0123abcd"
