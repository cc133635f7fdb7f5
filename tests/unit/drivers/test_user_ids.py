import pytest

from lepa.drivers.supervisor.messages import Identity
from lepa.drivers.user_ids import denied, parse_ranges
from lepa.model.errors import LepaError


def test_ranges_are_inclusive_and_may_be_single() -> None:
    assert parse_ranges("0, 100-200") == ((0, 0), (100, 200))
    assert parse_ranges("") == ()


@pytest.mark.parametrize("text", ["x", "5-1", "-3", "1-x", "99999999999"])
def test_what_is_not_a_range_is_refused(text: str) -> None:
    with pytest.raises(LepaError):
        parse_ranges(text)


def test_a_denied_user_or_any_denied_group_is_named() -> None:
    assert denied(Identity(0, 5), "0", "") == "uid 0 is in denied_host_uids 0"
    assert denied(Identity(7, 5, (6, 100)), "0", "100-101") == "gid 100 is in denied_host_gids 100-101"
    assert denied(Identity(7, 5), "0-6", "0-4") == ""
