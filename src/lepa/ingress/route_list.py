"""Pure: the routes of a table as lists for people and programs, in the shape of Fabio's `/api/routes`."""

from collections.abc import Iterator
from typing import Any

from lepa.ingress.picker import shares
from lepa.ingress.route_spec import Kind, Options
from lepa.ingress.routes import Route, RouteTable, Target


def listed(table: RouteTable) -> list[dict[str, Any]]:
    """One entry for each target of each route, in order of place and service.

    The keys are Fabio's; `kind`, `side`, `namespace`, `instance` and `healthy` are ours. rate1 and pct99 are always 0.
    """
    return [entry for route in _ordered(table) for entry in _entries(route)]


def raw(table: RouteTable) -> str:
    """The same in Fabio's route language, a line each; instances that are not healthy are left out."""
    return "".join(entry["cmd"] + "\n" for entry in listed(table) if entry["healthy"])


def _ordered(table: RouteTable) -> list[Route]:
    return sorted(table.routes.values(), key=lambda route: (route.key.kind, route.source, route.key))


def _entries(route: Route) -> Iterator[dict[str, Any]]:
    weights = dict(zip((id(target) for target in route.targets), shares(route.targets), strict=True))
    for target in route.registered:
        weight = weights.get(id(target), 0.0)
        options = written_options(route.key.kind, target.options)
        source, destination = route.source, _destination(route.key.kind, target)
        yield {
            "service": target.service,
            "host": route.key.host,
            "path": route.key.path,
            "src": source,
            "dst": destination,
            "opts": options,
            "weight": round(weight, 6),
            "tags": [],
            "cmd": f"route add {target.service} {source} {destination}"
            + (f" weight {target.options.weight:g}" if target.options.weight is not None else "")
            + (f' opts "{options}"' if options else ""),
            "rate1": 0,
            "pct99": 0,
            "kind": str(route.key.kind),
            "side": route.key.side,
            "namespace": target.namespace,
            "instance": target.instance_id,
            "healthy": target.healthy,
        }


def _destination(kind: Kind, target: Target) -> str:
    if kind in {Kind.TCP, Kind.SNI}:
        return f"tcp://{target.key}"
    scheme = "grpc" if kind == Kind.GRPC else "http"
    return f"{scheme}{'s' if target.options.tls else ''}://{target.key}/"


def written_options(kind: Kind, options: Options) -> str:
    """Options as a tag writes them."""
    protocols = {Kind.TCP: "tcp", Kind.SNI: "tcp+sni", Kind.GRPC: "grpcs" if options.tls else "grpc"}
    protocol = protocols.get(kind, "https" if options.tls else "")
    redirect = options.redirect
    pairs = (
        ("proto", protocol),
        ("strip", ",".join(options.strip)),
        ("prepend", options.prepend),
        ("host", options.host),
        ("redirect", f"{redirect.code},{redirect.url}" if redirect else ""),
        ("tlsskipverify", "" if options.tls_verify else "true"),
        ("grpcservername" if kind == Kind.GRPC else "tlsservername", options.tls_name),
        ("register", options.register),
        ("auth", options.auth),
        ("allow", ",".join(f"ip:{network}" for network in options.allow)),
        ("deny", ",".join(f"ip:{network}" for network in options.deny)),
        ("pxyproto", f"v{options.proxy_protocol}" if options.proxy_protocol else ""),
        ("onleave", "keep" if options.keep else ""),
        ("pick", "first" if options.first else ""),
    )
    return " ".join(f"{name}={value}" for name, value in pairs if value)
