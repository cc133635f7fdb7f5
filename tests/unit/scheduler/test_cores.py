"""Which cores a task gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node

from lepa.model.resources import NUMAResource, Resources
from lepa.scheduler.cores import choose_cores, core_set

NODE = make_node(attributes={"numa.node.count": "2", "numa.node0.cores": "0-3", "numa.node1.cores": "4-7"})


def chosen(free: list[int], cores: int, affinity: str = "") -> tuple[int, ...] | None:
    numa = NUMAResource(affinity=affinity) if affinity else None
    return choose_cores(NODE, free, Resources(cores=cores, numa=numa))


@pytest.mark.parametrize(
    ("free", "cores", "affinity", "expected"),
    [
        ([0, 1, 4, 5], 3, "", (0, 1, 4)),
        ([0, 1, 4, 5], 3, "none", (0, 1, 4)),
        ([0, 4, 5, 6], 2, "prefer", (4, 5)),
        ([0, 1, 2, 4, 5], 2, "prefer", (4, 5)),
        ([0, 1, 4, 5, 6], 4, "prefer", (0, 4, 5, 6)),
        ([0, 4, 5, 6], 3, "require", (4, 5, 6)),
        ([0, 1, 4, 5], 3, "require", None),
        ([0, 1], 3, "prefer", None),
        ([8, 9], 2, "require", (8, 9)),
        ([0, 1], 0, "require", ()),
    ],
)
def test_cores_by_affinity(free: list[int], cores: int, affinity: str, expected: tuple[int, ...] | None) -> None:
    assert chosen(free, cores, affinity) == expected


@given(st.sets(st.integers(0, 7)), st.integers(0, 8), st.sampled_from(["", "none", "prefer", "require"]))
def test_what_is_given_was_free_and_is_as_much_as_asked(free: set[int], cores: int, affinity: str) -> None:
    found = chosen(sorted(free), cores, affinity)
    if found is None:
        assert cores > len(free) or affinity == "require"
        return
    assert len(set(found)) == cores
    assert set(found) <= free
    if affinity == "require" and found:
        assert len({core // 4 for core in found}) == 1


def test_texts_of_cores() -> None:
    assert core_set("0-3,8") == {0, 1, 2, 3, 8}
    assert core_set("") == frozenset()
