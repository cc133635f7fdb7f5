"""How objects, revisions and leases lie in etcd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.model.errors import LepaError
from lepa.store.etcd_layout import Layout, Root, after, closed, decode_root, encode_root, opened


def layout(base: int = 0, written: int = 40) -> Layout:
    return Layout(b"lepa/", Root("cluster", "g", base), written)


@given(st.binary(), st.integers(0, 2**62))
def test_a_value_comes_back_with_when_it_was_created(value: bytes, created: int) -> None:
    assert opened(closed(value, created)) == (value, created)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_revisions_are_moved_by_a_base_and_back(written: int, base: int, later: int) -> None:
    moved = layout(base, written)
    assert moved.ours(written) == base
    ours = moved.ours(written + later)
    assert moved.etcds(ours) == (written + later if ours else 0)


def test_what_is_not_there_stays_so_and_what_etcd_never_had_is_no_revision_of_its() -> None:
    moved = layout(base=1_000, written=40)
    assert moved.etcds(0) == 0
    assert moved.etcds(960) == -1
    assert moved.etcds(5) == -1
    assert moved.etcds(961) == 1


def test_keys_of_generations_sessions_and_the_root_do_not_meet() -> None:
    one, other = layout(), layout().of_generation("g2")
    names = [
        one.root_key,
        one.object("jobs/a"),
        other.object("jobs/a"),
        one.slot(7, 1),
        one.slot(7, 11),
        one.slot(71, 1),
    ]
    assert len(set(names)) == len(names)
    assert one.key(one.object("jobs/default/ä")) == "jobs/default/ä"
    assert not other.object("").startswith(one.objects)


@given(st.binary(min_size=1), st.binary())
def test_the_end_of_a_range_is_behind_all_keys_with_the_prefix(prefix: bytes, rest: bytes) -> None:
    if after(prefix) != b"\0":  # etcd's word for: to the very end
        assert prefix <= prefix + rest < after(prefix)


def test_the_root_comes_back_and_what_is_not_ours_or_newer_is_refused() -> None:
    root = Root("cluster", "g", 7)
    assert decode_root(encode_root(root)) == root
    with pytest.raises(LepaError, match="lepa did not write"):
        decode_root(b"something")
    with pytest.raises(LepaError, match="newer lepa"):
        decode_root(encode_root(Root("c", "g", 0, 99)))
