"""lepa.serving.addresses"""

import random

import pytest

from lepa.model.errors import LepaError
from lepa.serving.addresses import Address, Located, ordered, parse_address


def test_addresses_are_read_and_written() -> None:
    assert parse_address("http://web.consul:80/") == Address("web.consul", 80)
    assert parse_address("[::1]:80") == Address("::1", 80)
    assert str(Address("::1", 80)) == "[::1]:80"
    assert str(Address("a", 80)) == "a:80"


@pytest.mark.parametrize("text", ["", "a", ":80", "a:b", "a:0", "a:65536"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(LepaError, match="expected host:port"):
        parse_address(text)


def test_lower_priorities_come_first_and_weights_share_among_equals() -> None:
    a, b, c = (Address(name, 1) for name in "abc")
    places = [Located(c, 2, 100), Located(a, 1, 9), Located(b, 1, 1)]
    uniform = random.Random(1).uniform
    orders = [ordered(places, uniform) for _ in range(1000)]
    assert all(order[2] == c for order in orders)
    assert 850 < sum(order[0] == a for order in orders) < 950
