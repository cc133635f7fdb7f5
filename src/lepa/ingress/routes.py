"""Pure: host and path -> service: one immutable table of all routes, built aside and swapped in whole.

A table is built from a snapshot of the catalog; what did not change is taken over from the table before, object by
object, so that a new table costs little and a route keeps its place in the round.

How a request finds its route, as in Fabio:

1. Hosts that are equal to the request's, or whose wildcards fit it, most specific first (in descending order of the
   name read backwards; with a port before without); then the routes for any host.
2. Within a host the longest path that the request's begins with. It decides: when none of its instances is healthy the
   search goes on with the next host, not with the next path.
3. A redirect that leads to the very same place is passed over.

A host without a port fits requests to any port; one with a port fits that port, which is 80 or 443 where the request
names none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from lepa.catalog.table import Instance, Rows, ServiceKey, ServiceTable, service_key
from lepa.ingress import fabio_tags, traefik_tags
from lepa.ingress.globs import compiled, is_glob, literal_tail
from lepa.ingress.picker import ring_of
from lepa.ingress.route_spec import ROUTES_MAX_PER_SERVICE, Kind, Notice, Options, Reading, Redirect, RouteSpec, Side

Matcher = Literal["prefix", "iprefix", "glob"]

HOSTS_REMEMBERED_MAX = 1_000
"""Host headers whose candidates are kept; the table forgets all of them when there are more."""
READINGS_MAX = 100_000
"""Different sets of tags whose reading is kept from one table to the next."""


ENTRYPOINTS = (("web", "http"), ("websecure", "https"), ("http", "http"), ("https", "https"))
"""What Traefik's users commonly call their entry points."""


class StaticListener(msgspec.Struct, frozen=True):
    """A TCP port that belongs to a service whatever its tags say."""

    port: int
    service: str
    namespace: str = "default"
    address: str = ""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How tags become routes.

    prefix: of Fabio's tags. matcher: how paths are compared. entrypoints: what Traefik's names stand for, a port or
    "http" or "https".
    """

    prefix: str = "urlprefix-"
    matcher: Matcher = "prefix"
    static: tuple[StaticListener, ...] = ()
    entrypoints: tuple[tuple[str, str], ...] = ENTRYPOINTS


class Target(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An instance behind a route, and how requests are changed on their way to it."""

    key: str
    host: str
    port: int
    service: str
    namespace: str
    instance_id: str
    weight: int
    options: Options
    healthy: bool = True

    @property
    def fixed_share(self) -> float | None:
        """The share that its tag asks for."""
        return self.options.weight


class RouteKey(NamedTuple):
    """What tells routes apart."""

    kind: Kind
    side: Side
    host: str
    path: str
    exact: bool
    address: str
    port: int


class Route:
    """One place of the table. targets: healthy ones. registered: all, healthy or not. guarded: some tag asks for more
    than a way to its instance."""

    __slots__ = ("_ring", "cursor", "first", "guarded", "key", "redirect", "registered", "targets")

    def __init__(self, key: RouteKey, members: Iterable[Target]) -> None:
        everything = tuple(members)
        self.key = key
        self.targets = tuple(target for target in everything if target.healthy)
        self.registered = everything
        self.cursor = 0
        self.guarded = any(target.options.is_guarded for target in everything)
        self.first = any(target.options.first for target in everything)
        self.redirect: Redirect | None = self.targets[0].options.redirect if self.targets else None
        self._ring: Sequence[Target] | None = None

    @property
    def ring(self) -> Sequence[Target]:
        """The slots that the picker walks, built when first asked for."""
        if self._ring is None:
            self._ring = ring_of(self.targets)
        return self._ring

    @property
    def source(self) -> str:
        """The route's place as people write it."""
        key = self.key
        if key.kind == Kind.TCP:
            return f"{key.address}:{key.port}"
        return f"{key.host}/" if key.kind == Kind.SNI else f"{key.host}{key.path}"


class Paths:
    """The routes of one host."""

    __slots__ = ("_exact", "_globs", "_lengths", "_lower", "_prefixes", "name", "port", "routes")

    def __init__(self, name: str, port: int, routes: Sequence[Route], matcher: Matcher) -> None:
        self.name = name
        self.port = port
        self.routes = routes
        self._lower = matcher == "iprefix"
        self._globs: tuple[tuple[re.Pattern[str], Route], ...] = ()
        self._exact = {route.key.path: route for route in routes if route.key.exact}
        prefixes = [route for route in routes if not route.key.exact]
        if matcher == "glob":
            ordered = sorted(prefixes, key=lambda route: (-len(route.key.path), route.key.path))
            self._globs = tuple((compiled(route.key.path), route) for route in ordered)
            prefixes = []
        self._prefixes = {route.key.path.lower() if self._lower else route.key.path: route for route in prefixes}
        self._lengths = tuple(sorted({len(path) for path in self._prefixes}, reverse=True))

    def match(self, path: str) -> Route | None:
        """The route of a path, that of the longest fitting one."""
        if self._exact and (found := self._exact.get(path)):
            return found
        if self._lower:
            path = path.lower()
        size = len(path)
        for length in self._lengths:
            if length <= size and (found := self._prefixes.get(path[:length])):
                return found
        for pattern, route in self._globs:
            if pattern.fullmatch(path):
                return route
        return None


class HostIndex:
    """Hosts with their routes. previous: an index whose hosts are taken over where their routes are the same."""

    def __init__(
        self, routes: Iterable[Route], matcher: Matcher = "prefix", previous: "HostIndex | None" = None
    ) -> None:
        old = previous.by_host if previous is not None else {}
        grouped: dict[tuple[str, int], list[Route]] = {}
        for route in routes:
            name, port = split_host(route.key.host)
            grouped.setdefault((name, port), []).append(route)
        self._globs: dict[str, list[tuple[re.Pattern[str], Paths]]] = {}
        self.by_host: dict[tuple[str, int], Paths] = {}
        for (name, port), group in grouped.items():
            known = old.get((name, port))
            paths = known if known is not None and known.routes == group else Paths(name, port, group, matcher)
            self.by_host[name, port] = paths
            if is_glob(name) and ":" not in name:
                self._globs.setdefault(literal_tail(name), []).append((compiled(name), paths))
        self._known: dict[tuple[str, int], tuple[Paths, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_host)

    def candidates(self, host: str, default_port: int) -> tuple[Paths, ...]:
        """Hosts that fit a Host header, most specific first, those for any host last."""
        found = self._known.get((host, default_port))
        if found is None:
            if len(self._known) >= HOSTS_REMEMBERED_MAX:
                self._known = {}
            found = self._known[host, default_port] = self._search(host, default_port)
        return found

    def _search(self, host: str, default_port: int) -> tuple[Paths, ...]:
        name, port = split_host(host.lower().rstrip("."))
        name = name.rstrip(".")
        fitting = [paths for key in ((name, 0), (name, port or default_port)) if (paths := self.by_host.get(key))]
        if self._globs:
            fitting += self._fitting_globs(name, port or default_port)
        named = [paths for paths in fitting if paths.name]
        named.sort(key=lambda paths: (paths.name[::-1], paths.port), reverse=True)
        return (*named, *(paths for key in (("", default_port), ("", 0)) if (paths := self.by_host.get(key))))

    def _fitting_globs(self, name: str, port: int) -> Iterator[Paths]:
        for start in range(len(name) + 1):
            for pattern, paths in self._globs.get(name[start:], ()):
                if paths.port in {0, port} and pattern.fullmatch(name):
                    yield paths


class RouteTable:
    """All routes at one index of the catalog. previous: a table by the same rules, whose parts are taken over."""

    def __init__(
        self,
        routes: Mapping[RouteKey, Route],
        notices: tuple[Notice, ...],
        rules: Rules,
        index: int,
        previous: "RouteTable | None" = None,
    ) -> None:
        self.routes = routes
        self.notices = notices
        self.rules = rules
        self.index = index
        by_kind: dict[Kind, list[Route]] = {kind: [] for kind in Kind}
        for route in routes.values():
            by_kind[route.key.kind].append(route)
        web = by_kind[Kind.HTTP]
        old: tuple[HostIndex | None, HostIndex | None] = previous.indexes if previous is not None else (None, None)
        if any(route.key.side for route in web):
            plain = HostIndex(_for_side(web, "http"), rules.matcher, old[0])
            secure = HostIndex(_for_side(web, "https"), rules.matcher, old[1])
        else:
            plain = secure = HostIndex(web, rules.matcher, old[0])
        self.indexes: tuple[HostIndex, HostIndex] = (plain, secure)
        """Of HTTP routes for clients without and with TLS."""
        self.grpc = HostIndex(by_kind[Kind.GRPC], rules.matcher)
        self.sni = HostIndex(by_kind[Kind.SNI])
        self.ports = {(route.key.address, route.key.port): route for route in by_kind[Kind.TCP]}
        self._parts: dict[ServiceKey, _Part] = {}
        self._readings: dict[Any, Reading] = {}

    @classmethod
    def build(
        cls, services: ServiceTable, rules: Rules | None = None, previous: "RouteTable | None" = None
    ) -> "RouteTable":
        """The table of a catalog, sharing with `previous` all routes whose targets did not change."""
        rules = rules or Rules()
        old = previous if previous is not None and previous.rules == rules else RouteTable({}, (), rules, 0)
        readings = old._readings if len(old._readings) < READINGS_MAX else {}
        parts = {
            key: known
            if (known := old._parts.get(key)) is not None and known.rows is rows and known.nodes is services.nodes
            else _part_of(key, rows, services, rules, readings)
            for key, rows in services.services.items()
        }
        members: dict[RouteKey, list[Target]] = {key: [] for key in _static_keys(rules)}
        for part in parts.values():
            for route_key, target in part.members:
                members.setdefault(route_key, []).append(target)
        routes = {key: _shared(key, targets, old.routes.get(key)) for key, targets in members.items()}
        notices = tuple(sorted({notice for part in parts.values() for notice in part.notices}))
        table = cls(routes, notices, rules, services.index, old)
        table._parts, table._readings = parts, readings
        return table

    def match(self, host: str, path: str, *, tls: bool) -> Route | None:
        """The route of an HTTP request; without targets when none is healthy; None when there is no route.

        host: the Host header. path: without its query, as `plain_path` gives it.
        """
        port = 443 if tls else 80
        return _first_with_targets(self.indexes[tls].candidates(host, port), host, path, "https" if tls else "http")

    def match_grpc(self, host: str) -> Route | None:
        """The route of an HTTP/2 connection to a host: its shortest path decides, as streams are not told apart."""
        return _first_with_targets(self.grpc.candidates(host, 443), host, "/", "https")

    def match_sni(self, name: str) -> Route | None:
        """The route of a TLS connection that asks for a name."""
        return _first_with_targets(self.sni.candidates(name, 443), name, "", "")

    @cached_property
    def listeners(self) -> frozenset[tuple[str, int]]:
        """Addresses and ports of TCP routes; address "" is the ingress's own."""
        return frozenset(self.ports)


class _Part(msgspec.Struct, frozen=True):
    """What one service adds to the table."""

    rows: Rows
    nodes: Any
    members: tuple[tuple[RouteKey, Target], ...]
    notices: tuple[Notice, ...]


def _for_side(routes: Iterable[Route], side: Side) -> list[Route]:
    """The routes of clients with or without TLS; those for both give way to one for that side alone."""
    chosen: dict[tuple[str, str, bool], Route] = {}
    for route in sorted((r for r in routes if r.key.side in {"", side}), key=lambda route: route.key.side != ""):
        chosen[route.key.host, route.key.path, route.key.exact] = route
    return list(chosen.values())


def _static_keys(rules: Rules) -> Iterator[RouteKey]:
    for listener in rules.static:
        yield _key(RouteSpec(kind=Kind.TCP, port=listener.port, address=listener.address))


def _key(spec: RouteSpec) -> RouteKey:
    return RouteKey(spec.kind, spec.side, spec.host, spec.path, spec.exact, spec.address, spec.port)


def _shared(key: RouteKey, targets: list[Target], old: Route | None) -> Route:
    if old is not None and len(old.registered) == len(targets) and all(map(_same, old.registered, targets)):
        return old
    route = Route(key, targets)
    route.cursor = old.cursor if old is not None else 0
    return route


def _same(one: Target, other: Target) -> bool:
    return one is other or one == other


def _part_of(key: ServiceKey, rows: Rows, services: ServiceTable, rules: Rules, readings: dict[Any, Reading]) -> _Part:
    members: list[tuple[RouteKey, Target]] = []
    notices: list[Notice] = []
    owned = tuple(
        RouteSpec(kind=Kind.TCP, port=listener.port, address=listener.address)
        for listener in rules.static
        if service_key(listener.namespace, listener.service) == key
    )
    for instance in rows.all:
        reading = _reading(instance, rules, readings)
        notices += reading.notices
        specs = owned + reading.specs
        if len(specs) > ROUTES_MAX_PER_SERVICE:
            notices.append(Notice(instance.service, "", f"only the first {ROUTES_MAX_PER_SERVICE} routes are followed"))
        for spec in specs[:ROUTES_MAX_PER_SERVICE]:
            if target := _target(instance, spec, services):
                members.append((_key(spec), target))
            else:
                notices.append(Notice(instance.service, spec.host + spec.path, "an instance has no port"))
    return _Part(rows, services.nodes, tuple(members), tuple(dict.fromkeys(notices)))


def _reading(instance: Instance, rules: Rules, readings: dict[Any, Reading]) -> Reading:
    key = (instance.service, instance.tags, instance.datacenter)
    found = readings.get(key)
    if found is None:
        fabio = fabio_tags.read_tags(instance.service, instance.tags, rules.prefix, instance.datacenter)
        traefik = traefik_tags.read_tags(instance.service, instance.tags, dict(rules.entrypoints))
        found = readings[key] = Reading(fabio.specs + traefik.specs, fabio.notices + traefik.notices)
    return found


def _target(instance: Instance, spec: RouteSpec, services: ServiceTable) -> Target | None:
    """The instance as a target of one route; None when there is nothing to connect to."""
    port = spec.options.port or instance.port
    if not port and spec.options.redirect is None:
        return None
    host = instance.address
    if not host and (node := services.node_of(instance)):
        host = node.address
    return Target(
        key=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        host=host,
        port=port,
        service=instance.service,
        namespace=instance.namespace,
        instance_id=instance.id,
        weight=max(1, instance.weight),
        options=spec.options,
        healthy=instance.healthy,
    )


def _first_with_targets(candidates: Iterable[Paths], host: str, path: str, scheme: str) -> Route | None:
    empty: Route | None = None
    for paths in candidates:
        route = paths.match(path)
        if route is None:
            continue
        if not route.targets:
            empty = empty or route
        elif route.redirect is None or not _leads_back(route.redirect, scheme, host, path):
            return route
    return empty


def _leads_back(redirect: Redirect, scheme: str, host: str, path: str) -> bool:
    return location(redirect, host, path) == f"{scheme}://{host}{path}"


def location(redirect: Redirect, host: str, path: str) -> str:
    """Where a redirect leads for a request. path: with its query where that is to be kept."""
    url = redirect.url.replace("$host", split_host(host)[0])
    if "$path" not in url:
        return url
    before, _, after = url.partition("$path")
    return before.rstrip("/") + path + after


def split_host(host: str) -> tuple[str, int]:
    """Name and port of `name`, `name:port` or `[address]:port`; port 0 when there is none."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and len(port) <= 5 and (":" not in name or name.endswith("]")):
        return name, int(port)
    return host, 0


def plain_path(path: str) -> str:
    """A path as routes see it: escapes resolved, and `.` and `..` too, so that none of them leads around a route."""
    if "%" in path:
        path = unquote(path, errors="replace")
    if "/." not in path:
        return path
    kept: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            kept[-1:] = []
        elif part != ".":
            kept.append(part)
    ends_in_dots = path.endswith(("/.", "/.."))
    return "/" + "/".join(kept) + ("/" if ends_in_dots and kept else "")
