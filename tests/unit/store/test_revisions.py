"""The log of changes and the table of leases."""

import pytest

from lepa.model.errors import LepaError
from lepa.store.protocol import Change, Compacted, Compare
from lepa.store.revisions import BATCH_MAX, ChangeLog, LeaseTable, holds


def revision_of(number: int, count: int = 1, size: int = 1) -> list[Change]:
    return [Change(f"k/{number}/{at}", bytes(size), number, number) for at in range(count)]


def test_a_batch_ends_at_a_whole_revision() -> None:
    log = ChangeLog(0, changes_max=10_000, bytes_max=1 << 20)
    for number in range(1, 400):
        log.append(revision_of(number, count=3))
    batch = log.after(0)
    assert BATCH_MAX <= len(batch) < BATCH_MAX + 3
    assert len(batch) % 3 == 0
    assert log.after(batch[-1].revision)[0].revision == batch[-1].revision + 1


def test_old_changes_are_forgotten_by_whole_revisions() -> None:
    log = ChangeLog(0, changes_max=20, bytes_max=1 << 20)
    for number in range(1, 50):
        log.append(revision_of(number, count=3))
    kept = log.after(log.oldest)
    assert 3 <= len(kept) <= 21
    assert kept[0].revision == log.oldest + 1
    assert len(kept) % 3 == 0
    with pytest.raises(Compacted):
        log.after(log.oldest - 1)


def test_large_values_are_forgotten_sooner() -> None:
    log = ChangeLog(0, changes_max=1_000, bytes_max=1_000)
    for number in range(1, 50):
        log.append(revision_of(number, size=100))
    assert sum(len(change.value or b"") for change in log.after(log.oldest)) <= 1_100


def test_the_newest_revision_is_kept_however_large() -> None:
    log = ChangeLog(0, changes_max=4, bytes_max=10)
    log.append(revision_of(1))
    log.append(revision_of(2, count=9, size=100))
    assert log.oldest == 1
    assert len(log.after(1)) == 9


def test_a_compare_without_conditions_holds() -> None:
    assert holds(Compare("a"), 3, 4)
    assert holds(Compare("a", modified=4, created=3), 3, 4)
    assert not holds(Compare("a", modified=3), 3, 4)


def test_a_lease_lapses_unless_it_is_kept() -> None:
    leases = LeaseTable()
    first, second = leases.grant(10, now=0), leases.grant(20, now=0)
    assert leases.wake_at() == 10
    leases.keep(first, now=9)
    assert leases.lapsed(18.9) == ()
    assert leases.lapsed(19) == (first,)
    with pytest.raises(LepaError):
        leases.keep(first, now=19)
    leases.check(second, now=19)


def test_a_lease_ends_once_and_its_id_is_not_used_again() -> None:
    leases = LeaseTable()
    first = leases.grant(10, now=0)
    assert leases.end(first)
    assert not leases.end(first)
    assert leases.grant(10, now=0) != first
