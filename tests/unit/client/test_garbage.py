"""When ended allocations have to leave the disk."""

import pytest

from lepa.client.garbage import Limits, Use, batch, reason

LIMITS = Limits(allocs=10, disk_percent=80.0, inodes_percent=70.0)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (Use(10, 80.0, 70.0), ""),
        (Use(11, 0.0, 0.0), "11 allocations are more than gc_max_allocs of 10"),
        (Use(1, 81.0, 0.0), "disk usage of 81 % is over gc_disk_usage_threshold of 80 %"),
        (Use(1, 0.0, 70.5), "inode usage of 70 % is over gc_inode_usage_threshold of 70 %"),
    ],
)
def test_the_reason_is_told(use: Use, told: str) -> None:
    assert reason(use, LIMITS) == told


def test_no_more_go_at_once_than_are_too_many() -> None:
    assert batch(Use(11, 0.0, 0.0), LIMITS, 4) == 1
    assert batch(Use(30, 0.0, 0.0), LIMITS, 4) == 4
    assert batch(Use(1, 99.0, 0.0), LIMITS, 4) == 4
