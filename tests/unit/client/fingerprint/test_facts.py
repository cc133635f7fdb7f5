"""Findings put together."""

from lepa.client.fingerprint.facts import Facts, merge


def test_later_findings_win() -> None:
    found = merge([Facts({"a": "1", "b": "1"}, {"l": "1"}), Facts({"a": "2"})])
    assert (found.attributes, found.links) == ({"a": "2", "b": "1"}, {"l": "1"})
