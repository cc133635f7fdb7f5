"""Allocations in tables."""

from tests.unit.cli.conftest import NOW_NS
from tests.unit.cli.objects import OTHER, alloc_stub

from lepa.cli.alloc_view import allocation_table


def test_the_newest_is_first() -> None:
    shown = allocation_table([alloc_stub(), alloc_stub(OTHER, CreateIndex=9)], NOW_NS)
    assert shown == (
        "ID        Node ID   Task Group  Version  Desired  Status   Created    Modified\n"
        "11112222  22222222  page        0        run      running  3m20s ago  1m1s ago\n"
        "11111111  22222222  page        0        run      running  3m20s ago  1m1s ago"
    )


def test_verbose_has_whole_ids_times_and_names() -> None:
    header, row = allocation_table([alloc_stub()], NOW_NS, verbose=True, with_job=True).split("\n")
    assert header.split("  ")[0] == "ID"
    assert "Node Name" in header
    assert row.split()[-1] == "2026-05-28T20:25:39Z"


def test_no_allocations_are_a_sentence() -> None:
    assert allocation_table([], NOW_NS) == "No allocations placed"
