"""Pure: the tags that most of Traefik's users write, to routes; the others are named and left out.

    traefik.enable=true
    traefik.http.routers.R.rule, .entrypoints, .tls, .middlewares, .service, .priority
    traefik.http.services.S.loadbalancer.server.port, .server.scheme, .passhostheader
    traefik.http.middlewares.M.stripprefix.prefixes, .addprefix.prefix, .redirectscheme.*, .ipallowlist.sourcerange
    traefik.tcp.routers.R.rule=HostSNI(…), .entrypoints, .tls.passthrough
    traefik.frontend.rule=Host:a.b;PathPrefix:/x        Traefik 1

Routes are ordered by host and path, so a router's priority has no effect. A middleware that cannot be followed is
passed over when it only adds comfort, and leaves its router out when it guards or changes what is asked for.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lepa.ingress.fabio_tags import networks
from lepa.ingress.route_spec import Kind, Notice, Options, Reading, Redirect, RouteSpec, Side
from lepa.ingress.traefik_rules import old_places_of, places_of, server_names_of
from lepa.model.errors import LepaError, invalid

PREFIX = "traefik."
TRUE = frozenset({"true", "1", "t"})
COMFORTS = frozenset(
    {
        "buffering", "circuitbreaker", "compress", "contenttype", "errors", "grpcweb", "headers", "inflightreq",
        "passtlsclientcert", "plugin", "ratelimit", "retry",
    }
)  # fmt: skip
"""Middlewares that may be missing: requests reach the same place in the same form."""
OWN_PROVIDERS = frozenset({"", "nomad", "consulcatalog", "consul"})
KNOWN_ROUTER_KEYS = frozenset({"rule", "entrypoints", "tls", "middlewares", "service", "priority", "rulesyntax"})
SERVER = "loadbalancer.server."


def read_tags(service: str, tags: tuple[str, ...], entrypoints: Mapping[str, str]) -> Reading:
    """The routes of an instance's tags. entrypoints: what names stand for, "http", "https" or a TCP port."""
    pairs = {
        key.strip().lower(): value.strip()
        for tag in tags
        if tag.startswith(PREFIX)
        for key, equals, value in (tag.partition("="),)
        if equals
    }
    enabled = pairs.get("traefik.enable", "").lower()
    if not pairs or (enabled and enabled not in TRUE):
        return Reading()
    return _Reader(service, pairs, entrypoints).read(enabled=bool(enabled))


class _Reader:
    """The tags of one instance, by key."""

    def __init__(self, service: str, pairs: Mapping[str, str], entrypoints: Mapping[str, str]) -> None:
        self._service = service
        self._pairs = pairs
        self._entrypoints = {name.lower(): meaning for name, meaning in entrypoints.items()}
        self._notices: list[Notice] = []

    def read(self, *, enabled: bool) -> Reading:
        """All routes. enabled: the service asked for a route even if it names none."""
        specs: list[RouteSpec] = []
        web, tcp = _grouped(self._pairs, "http.routers"), _grouped(self._pairs, "tcp.routers")
        old = self._pairs.get("traefik.frontend.rule")
        if enabled and not web and not tcp and not old:
            web = {self._service: {}}
        for name, router in web.items():
            specs += self._tried(f"traefik.http.routers.{name}", lambda router=router: self._web(router))
        for name, router in tcp.items():
            specs += self._tried(f"traefik.tcp.routers.{name}", lambda router=router: self._tcp(router))
        if old:
            specs += self._tried("traefik.frontend.rule", lambda: self._old(old))
        if _grouped(self._pairs, "udp.routers"):
            self._note("traefik.udp.routers", "UDP is not carried")
        return Reading(tuple(specs), tuple(self._notices))

    def _tried(self, tag: str, read: Any) -> list[RouteSpec]:
        try:
            return list(read())
        except LepaError as error:
            self._note(tag, error.message)
            return []

    def _note(self, tag: str, problem: str) -> None:
        self._notices.append(Notice(self._service, tag, problem))

    def _web(self, router: Mapping[str, str]) -> Iterator[RouteSpec]:
        places = places_of(router.get("rule") or f"Host(`{self._service}`)")
        side = self._side(router)
        fields: dict[str, Any] = self._server(router, "http")
        for reference in _words(router.get("middlewares", "")):
            fields |= self._middleware(reference)
        for key in router.keys() - KNOWN_ROUTER_KEYS:
            if not key.startswith("tls."):
                self._note(f"traefik.http.routers.….{key}", "it has no effect")
        options = Options(**fields)
        for place in places:
            yield RouteSpec(host=place.host, path=place.path or "/", exact=place.exact, side=side, options=options)

    def _side(self, router: Mapping[str, str]) -> Side:
        """Which clients a router's entry points and TLS settings mean."""
        secure = router.get("tls", "").lower() in TRUE or any(key.startswith("tls.") for key in router)
        names = _words(router.get("entrypoints", "").lower())
        meanings = {self._entrypoints[name] for name in names if name in self._entrypoints}
        for name in names:
            if name not in self._entrypoints:
                self._note(f"entrypoints={name}", "no entry point is called so; see the ingress's entrypoints setting")
        if names and not meanings & {"http", "https"}:
            raise invalid("none of its entry points is an HTTP port of this ingress")
        if meanings & {"http", "https"} == {"http"}:
            return "http"
        return "https" if secure or meanings & {"http", "https"} == {"https"} else ""

    def _server(self, router: Mapping[str, str], protocol: str) -> dict[str, Any]:
        """What the router's service says of its instances: the one it names, else the only one."""
        services = _grouped(self._pairs, f"{protocol}.services")
        name = router.get("service", "").lower()
        if name and name not in services and services:
            raise invalid(f'its service "{name}" is not defined')
        chosen = services.get(name) or (next(iter(services.values())) if len(services) == 1 else {})
        fields: dict[str, Any] = {}
        for key, value in chosen.items():
            if key == f"{SERVER}port" and value.isdecimal() and 0 < int(value) < 65_536:
                fields["port"] = int(value)
            elif key == f"{SERVER}scheme" and value in {"http", "https"}:
                fields["tls"] = value == "https"
            elif key == "loadbalancer.passhostheader":
                fields["host"] = "" if value.lower() in TRUE else "dst"
            else:
                self._note(f"traefik.{protocol}.services.….{key}={value}", "it has no effect")
        return fields

    def _middleware(self, reference: str) -> dict[str, Any]:
        """The options that a middleware stands for. Raises LepaError(invalid) when it cannot be passed over."""
        name, _, provider = reference.lower().partition("@")
        settings = _grouped(self._pairs, "http.middlewares").get(name)
        if settings is None or provider not in OWN_PROVIDERS:
            raise invalid(f'its middleware "{reference}" is not defined by these tags')
        kind = next(iter(settings)).partition(".")[0]
        values = {key.partition(".")[2]: value for key, value in settings.items()}
        if kind in COMFORTS:
            self._note(f"traefik.http.middlewares.{name}.{kind}", "it has no effect")
            return {}
        if kind == "stripprefix":
            return {"strip": tuple(_words(values.get("prefixes", "")))}
        if kind == "addprefix":
            return {"prepend": values.get("prefix", "")}
        if kind == "redirectscheme":
            return {"redirect": _redirect(values)}
        if kind in {"ipallowlist", "ipwhitelist"}:
            return {"allow": _networks(values.get("sourcerange", ""))}
        raise invalid(f'its middleware "{name}" is of the kind {kind}, which is not part of this ingress')

    def _tcp(self, router: Mapping[str, str]) -> Iterator[RouteSpec]:
        options = Options(**self._server(router, "tcp"))
        names = server_names_of(router.get("rule", ""))
        if router.get("tls.passthrough", "").lower() in TRUE:
            for name in names:
                yield RouteSpec(kind=Kind.SNI, host=name, options=options)
            return
        if names != ("*",) or any(key.startswith("tls") for key in router):
            raise invalid("TLS of TCP connections is passed on (tls.passthrough=true), not ended here")
        ports = [self._entrypoints.get(name, "") for name in _words(router.get("entrypoints", "").lower())]
        if not any(port.isdecimal() for port in ports):
            raise invalid("none of its entry points is a TCP port of this ingress")
        for port in ports:
            if port.isdecimal():
                yield RouteSpec(kind=Kind.TCP, port=int(port), options=options)

    def _old(self, rule: str) -> Iterator[RouteSpec]:
        places, stripped = old_places_of(rule)
        options = Options(strip=stripped)
        for place in places:
            yield RouteSpec(host=place.host, path=place.path or "/", exact=place.exact, options=options)


def _grouped(pairs: Mapping[str, str], group: str) -> dict[str, dict[str, str]]:
    """Settings by name: `traefik.GROUP.name.key` -> {name: {key: value}}."""
    found: dict[str, dict[str, str]] = {}
    start = f"{PREFIX}{group}."
    for key, value in pairs.items():
        if key.startswith(start):
            name, _, rest = key[len(start) :].partition(".")
            found.setdefault(name, {})[rest] = value
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _redirect(values: Mapping[str, str]) -> Redirect:
    scheme, port = values.get("scheme", "https"), values.get("port", "")
    code = 301 if values.get("permanent", "").lower() in TRUE else 302
    return Redirect(code, f"{scheme}://$host{f':{port}' if port else ''}$path")


def _networks(text: str) -> tuple[str, ...]:
    try:
        return networks(text)
    except ValueError as error:
        raise invalid(f"its source range is malformed: {error}") from error
