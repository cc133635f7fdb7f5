"""The texts in which settings give times and sizes."""

import pytest

from lepa.agent.config import seconds, size
from lepa.model.errors import LepaError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000", 1000), ("1kB", 1000), ("1KiB", 1024), ("100GB", 100 * 10**9), ("2 TiB", 2 << 40), ("5M", 5 * 10**6)],
)
def test_a_size_is_in_bytes(text: str, expected: int) -> None:
    assert size(text, "x") == expected


@pytest.mark.parametrize("text", ["", "GB", "1.5GB", "-1", "1PB", "1 GB more"])
def test_what_is_no_size_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(LepaError, match=r"configuration: client\.disk: .* is not a size"):
        size(text, "client.disk")


def test_a_duration_is_in_seconds_and_refused_by_its_name() -> None:
    assert seconds("1m30s", "x") == 90.0
    with pytest.raises(LepaError, match=r"configuration: dns\.ttl: invalid duration"):
        seconds("soon", "dns.ttl")
