"""Pure: the part of Traefik's rules that our routes can say: hosts, paths and path prefixes, joined by `&&` and `||`.

    Host(`a.b`) && (PathPrefix(`/x`) || Path(`/y`))     ->     a.b/x, and exactly a.b/y

A rule becomes a list of places, each a host and a path of which either may be missing. What routes cannot say, such as
methods, headers or negation, refuses the rule: half of it would send requests where they were not meant to go.
"""

import re
from collections.abc import Iterator

import msgspec

from lepa.model.errors import LepaError, invalid

TOKEN = re.compile(r"\s*(?:(&&|\|\||[!(),])|`([^`]*)`|\"((?:[^\"\\]|\\.)*)\"|([A-Za-z]+))")
PLACES_MAX = 100
DEPTH_MAX = 20


class Place(msgspec.Struct, frozen=True):
    """A host, a path, both or neither. exact: the path alone."""

    host: str = ""
    path: str = ""
    exact: bool = False


def places_of(rule: str) -> tuple[Place, ...]:
    """The places where a rule applies. Raises LepaError(invalid)."""
    reader = _Reader(rule)
    found = reader.any_of(0)
    reader.expect_end()
    return tuple(dict.fromkeys(found))


def server_names_of(rule: str) -> tuple[str, ...]:
    """The names of a TCP rule: HostSNI, alone or joined by `||`. Raises LepaError(invalid)."""
    return tuple(place.host for place in places_of(rule.replace("HostSNI", "Host")))


class _Reader:
    """Recursive descent over the tokens of a rule."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._tokens = list(_tokens(rule))
        self._at = 0

    def any_of(self, depth: int) -> list[Place]:
        """Terms joined by `||`."""
        found = self._all_of(depth)
        while self._take("||"):
            found += self._all_of(depth)
            if len(found) > PLACES_MAX:
                raise invalid(f"the rule names more than {PLACES_MAX} places")
        return found

    def _all_of(self, depth: int) -> list[Place]:
        """Factors joined by `&&`, which bind closer."""
        found = self._factor(depth)
        while self._take("&&"):
            other = self._factor(depth)
            found = [both for one in found for two in other if (both := _both(one, two)) is not None]
            if len(found) > PLACES_MAX:
                raise invalid(f"the rule names more than {PLACES_MAX} places")
        return found

    def _factor(self, depth: int) -> list[Place]:
        if depth > DEPTH_MAX:
            raise invalid("the rule is nested too deeply")
        if self._take("("):
            found = self.any_of(depth + 1)
            self._need(")")
            return found
        if self._take("!"):
            raise invalid("a negation cannot be said by a route")
        kind, name = self._next()
        if kind != "word":
            raise invalid(f'the rule "{self._rule}" is malformed')
        self._need("(")
        values = [self._text()]
        while self._take(","):
            values.append(self._text())
        self._need(")")
        return [_place(name, value) for value in values]

    def _text(self) -> str:
        kind, text = self._next()
        if kind != "text":
            raise invalid(f'the rule "{self._rule}" is malformed: a value in back quotes is missing')
        return text

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise invalid(f'the rule "{self._rule}" ends too early')
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, mark: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("mark", mark):
            self._at += 1
            return True
        return False

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise invalid(f'the rule "{self._rule}" is malformed: "{mark}" is missing')

    def expect_end(self) -> None:
        """Raises LepaError(invalid) when something is left."""
        if self._at < len(self._tokens):
            raise invalid(f'the rule "{self._rule}" is malformed')


def _tokens(rule: str) -> Iterator[tuple[str, str]]:
    at = 0
    while rule[at:].strip():
        found = TOKEN.match(rule, at)
        if found is None:
            raise invalid(f'the rule "{rule}" is malformed')
        mark, back, double, word = found.groups()
        if mark:
            yield "mark", mark
        elif word:
            yield "word", word
        else:
            yield "text", back if back is not None else re.sub(r"\\(.)", r"\1", double)
        at = found.end()


def _place(name: str, value: str) -> Place:
    low = name.lower()
    if low == "host":
        if not value or re.search(r"[\s/{}]", value):
            raise invalid(f'"{value}" is not a host')
        return Place(host=value.lower())
    if low in {"path", "pathprefix"}:
        if not value.startswith("/") or "{" in value:
            raise invalid(f'the path "{value}" cannot be said by a route')
        return Place(path=value, exact=low == "path")
    raise invalid(f"{name}(…) cannot be said by a route; Host, Path and PathPrefix can")


def _both(one: Place, two: Place) -> Place | None:
    """Where both hold; None when that is nowhere."""
    if one.host and two.host and one.host != two.host:
        return None
    longer, shorter = (one, two) if len(one.path) >= len(two.path) else (two, one)
    if not longer.path.startswith(shorter.path) or (shorter.exact and shorter.path != longer.path):
        return None
    return Place(one.host or two.host, longer.path, longer.exact or (shorter.exact and bool(shorter.path)))


def old_places_of(rule: str) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """The places of a rule of Traefik 1, `Host:a.b;PathPrefixStrip:/x`, and the prefixes that are removed. Raises
    LepaError(invalid)."""
    found = [Place()]
    stripped: list[str] = []
    for part in rule.split(";"):
        name, colon, values = part.strip().partition(":")
        kind = name.removesuffix("Strip")
        texts = [value.strip() for value in values.split(",") if value.strip()]
        if not colon or not texts:
            raise LepaError("invalid", f'the rule "{rule}" is malformed')
        if kind != name:
            stripped += texts
        options = [_place(kind, text) for text in texts]
        found = [both for one in found for two in options if (both := _both(one, two)) is not None][:PLACES_MAX]
    return tuple(found), tuple(stripped)
