"""Versions and constraints on them."""

import pytest

from lepa.scheduler.versions import parse_version, version_matches


@pytest.mark.parametrize(
    ("version", "constraint", "expected"),
    [
        ("1.2.3", "= 1.2.3", True),
        ("1.2.3", "1.2.3", True),
        ("1.2", "= 1.2.0", True),
        ("v1.10.0", "> 1.9", True),
        ("1.2.3", ">= 1.2, < 1.3", True),
        ("1.3.0", ">= 1.2, < 1.3", False),
        ("1.4.9", "~> 1.4", True),
        ("2.0.0", "~> 1.4", False),
        ("1.4.9", "~> 1.4.2", True),
        ("1.5.0", "~> 1.4.2", False),
        ("1.2.3", "!= 1.2.3", False),
        ("1.3.0-beta1", ">= 1.2", False),
        ("1.3.0-beta2", ">= 1.3.0-beta1", True),
        ("1.3.0-beta1", "!= 1.3.0", True),
        ("5.10.0-28-amd64", ">= 4.0", False),
        ("not a version", ">= 1", False),
        ("1.2.3", ">= x", False),
        ("1.2.3", "", False),
    ],
)
def test_version_dialect(version: str, constraint: str, expected: bool) -> None:
    assert version_matches(version, constraint) is expected


@pytest.mark.parametrize(
    ("version", "constraint", "expected"),
    [
        ("1.3.0-beta1", ">= 1.2.0", True),
        ("1.3.0-beta1", "< 1.3.0", True),
        ("1.3.0-beta.2", "> 1.3.0-beta.1", True),
        ("1.3.0-beta.10", "> 1.3.0-beta.9", True),
        ("1.3.0-rc", "> 1.3.0-9", True),
        ("1.3.0+build5", "= 1.3.0", True),
        ("1.3", ">= 1.2.0", False),
        ("1.3.0", "~> 1.2.0", False),
    ],
)
def test_semver_dialect(version: str, constraint: str, expected: bool) -> None:
    assert version_matches(version, constraint, semver=True) is expected


def test_parse_keeps_segments_and_prerelease() -> None:
    parsed = parse_version("v1.2.3-rc.1+build")
    assert parsed is not None
    assert parsed.segments == (1, 2, 3)
    assert parsed.prerelease == ("rc", "1")
