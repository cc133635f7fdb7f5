"""Pure: the rights of one caller: policies put together, and questions about them.

Rules of the same pattern are joined, and a deny among them leaves nothing else. Of several patterns that fit a name the
most specific one counts alone: the name itself, else the one with the fewest characters left to the asterisks.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lepa.server.acl.rules import DENY, NAMESPACE_CAPABILITIES, Rules

NOTHING: Final[frozenset[str]] = frozenset()


class Workload(NamedTuple):
    """The task that a caller is, by the identity it shows."""

    namespace: str
    job_id: str
    group: str
    task: str
    alloc_id: str

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Paths of variables that are the task's without any policy."""
        job = f"nomad/jobs/{self.job_id}"
        return ("nomad/jobs", job, f"{job}/{self.group}", f"{job}/{self.group}/{self.task}")


class Access:
    """What a caller may do.

    accessor_id: of the token, "" for none. policies: names of those it has. workload, node_id: who it is instead of
    somebody with a token. server: whether it is another server of the region.
    """

    def __init__(
        self,
        rules: Iterable[Rules] = (),
        *,
        management: bool = False,
        accessor_id: str = "",
        policies: Iterable[str] = (),
        workload: Workload | None = None,
        node_id: str = "",
        server: bool = False,
    ) -> None:
        self.management = management
        self.accessor_id = accessor_id
        self.policies = frozenset(policies)
        self.workload = workload
        self.node_id = node_id
        self.server = server
        self._scopes: dict[tuple[str, str], frozenset[str]] = {}
        self._variables: dict[tuple[str, str], frozenset[str]] = {}
        for one in rules:
            _join(self._scopes, one.scopes)
            _join(self._variables, one.variables)

    # Namespaces

    def namespace(self, name: str, *any_of: str) -> bool:
        """Whether one of the capabilities is granted in a namespace."""
        if self.management:
            return True
        granted = self._capabilities("namespace", name)
        return any(capability in granted for capability in any_of)

    def somewhere(self, *any_of: str) -> bool:
        """Whether one of the capabilities is granted in any namespace at all."""
        return self.management or any(
            scope == "namespace" and not granted.isdisjoint(any_of) for (scope, _), granted in self._scopes.items()
        )

    def sees_namespace(self, name: str) -> bool:
        """Whether a namespace may be known of: anything is granted in it."""
        if self.management or (self.workload is not None and self.workload.namespace == name):
            return True
        return self.namespace(name, *(NAMESPACE_CAPABILITIES - {DENY})) or any(
            glob_matches(pattern, name) and DENY not in granted for (pattern, _), granted in self._variables.items()
        )

    # Other scopes

    def scope(self, scope: str, capability: str) -> bool:
        """Whether a scope without names (agent, node, operator, quota, plugin) grants a capability."""
        return self.management or capability in self._scopes.get((scope, ""), NOTHING)

    def node_pool(self, name: str, capability: str) -> bool:
        """Whether a capability is granted for a node pool."""
        return self.management or capability in self._capabilities("node_pool", name)

    def host_volume(self, name: str, capability: str) -> bool:
        """Whether a capability is granted for a host volume."""
        return self.management or capability in self._capabilities("host_volume", name)

    # Variables

    def variable(self, namespace: str, path: str, capability: str) -> bool:
        """Whether a capability is granted for a variable."""
        if self.management:
            return True
        granted = _closest(self._variables, (namespace, path))
        if DENY in granted:
            return False
        if capability in granted:
            return True
        own = self.workload
        if own is None or own.namespace != namespace:
            return False
        return capability in ("read", "list") and path in own.own_paths

    def any_variable(self, namespace: str) -> bool:
        """Whether any variable of a namespace ("*": of any) may be listed."""
        if self.management:
            return True
        if self.workload is not None and namespace in ("*", self.workload.namespace):
            return True
        return any(
            "list" in granted and (namespace == "*" or glob_matches(pattern, namespace))
            for (pattern, _), granted in self._variables.items()
        )

    def _capabilities(self, scope: str, name: str) -> frozenset[str]:
        granted = _closest({label: given for (kind, label), given in self._scopes.items() if kind == scope}, name)
        return NOTHING if DENY in granted else granted


ALL: Final = Access(management=True)
"""Everything: what everybody has while access control is off."""


def glob_matches(pattern: str, name: str) -> bool:
    """Whether a pattern fits a whole name; `*` stands for any characters, also none. Takes no more than one look at
    each character for each asterisk."""
    first, *others = pattern.split("*")
    if not others:
        return pattern == name
    *middle, last = others
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    place, end = len(first), len(name) - len(last)
    for part in middle:
        place = name.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return True


def _join(into: dict[tuple[str, str], frozenset[str]], more: Mapping[tuple[str, str], frozenset[str]]) -> None:
    for key, granted in more.items():
        joined = into.get(key, NOTHING) | granted
        into[key] = frozenset((DENY,)) if DENY in joined else joined


def _closest(rules: Mapping[Any, frozenset[str]], name: Any) -> frozenset[str]:
    """The capabilities of the pattern, or pair of patterns, that is closest to the name, or pair of names."""
    if name in rules and not _globbed(name):
        return rules[name]
    fitting = [(_distance(pattern, name), granted) for pattern, granted in rules.items() if _fits(pattern, name)]
    if not fitting:
        return NOTHING
    least = min(distance for distance, _ in fitting)
    closest = [granted for distance, granted in fitting if distance == least]
    return next((granted for granted in closest if DENY in granted), frozenset().union(*closest))


def _globbed(name: Any) -> bool:
    return any("*" in part for part in _parts(name))


def _parts(name: Any) -> tuple[str, ...]:
    return name if isinstance(name, tuple) else (name,)


def _fits(pattern: Any, name: Any) -> bool:
    return all(glob_matches(*pair) for pair in zip(_parts(pattern), _parts(name), strict=True))


def _distance(pattern: Any, name: Any) -> tuple[int, int]:
    """How much is left to asterisks: fewer characters are closer; a pattern without an asterisk is closest of all."""
    pairs = list(zip(_parts(pattern), _parts(name), strict=True))
    return (
        sum(len(one) - len(glob.replace("*", "")) for glob, one in pairs),
        sum(glob.count("*") for glob, _ in pairs),
    )
