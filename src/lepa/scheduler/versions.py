"""Pure: versions and the constraints on them: `>= 1.2, < 2.0`, `~> 1.4`.

Two dialects: "version" takes any number of segments, knows `~>`, and matches a pre-release only where the constraint
names one; "semver" follows semver.org: pre-releases are simply lower than their release.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:-?([0-9A-Za-z~-]+(?:\.[0-9A-Za-z~-]+)*))?(?:\+[0-9A-Za-z.~-]+)?")
_SEMVER = re.compile(r"v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?")
_CONSTRAINT = re.compile(r"\s*(~>|>=|<=|!=|=|>|<)?\s*(\S+)\s*")


class Version(NamedTuple):
    """Numeric segments and the identifiers of a pre-release."""

    segments: tuple[int, ...]
    prerelease: tuple[str, ...] = ()

    def key(self, width: int) -> tuple[tuple[int, ...], bool, tuple[tuple[int, int, str], ...]]:
        """A sort key, segments filled up with zeros to `width`; a pre-release sorts below its release."""
        segments = self.segments + (0,) * (width - len(self.segments))
        return segments, not self.prerelease, tuple(_identifier_key(part) for part in self.prerelease)


def _identifier_key(part: str) -> tuple[int, int, str]:
    """Numbers sort by value and below words (semver.org, section 11)."""
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


@lru_cache(maxsize=4096)
def parse_version(text: str, semver: bool = False) -> Version | None:
    """The version a text names, or None."""
    match = (_SEMVER if semver else _VERSION).fullmatch(text.strip())
    if match is None:
        return None
    prerelease = tuple(match[2].split(".")) if match[2] else ()
    return Version(tuple(map(int, match[1].split("."))), prerelease)


def version_matches(text: str, constraints: str, semver: bool = False) -> bool:
    """Whether a version satisfies every one of the comma-separated constraints; what cannot be parsed never does."""
    version = parse_version(text, semver)
    wanted = _parse_constraints(constraints, semver)
    if version is None or wanted is None:
        return False
    return all(_holds(version, operator, bound, semver) for operator, bound in wanted)


@lru_cache(maxsize=1024)
def _parse_constraints(text: str, semver: bool) -> tuple[tuple[str, Version], ...] | None:
    found = []
    for part in text.split(","):
        match = _CONSTRAINT.fullmatch(part)
        bound = parse_version(match[2], semver) if match else None
        if match is None or bound is None or (semver and match[1] == "~>"):
            return None
        found.append((match[1] or "=", bound))
    return tuple(found)


def _holds(version: Version, operator: str, bound: Version, semver: bool) -> bool:
    width = max(len(version.segments), len(bound.segments))
    left, right = version.key(width), bound.key(width)
    if operator == "=":
        return left == right
    if operator == "!=":
        return left != right
    if not semver and version.prerelease and not _comparable_prerelease(version, bound, width):
        return False
    if operator == "~>":
        fixed = max(1, len(bound.segments) - 1)
        return left >= right and version.key(width)[0][:fixed] == bound.segments[:fixed]
    return bool({">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right}[operator])


def _comparable_prerelease(version: Version, bound: Version, width: int) -> bool:
    """A pre-release takes part only in constraints that name a pre-release of the same release."""
    return bool(bound.prerelease) and version.key(width)[0] == bound.key(width)[0]
