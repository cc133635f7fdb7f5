"""Pure: Fabio's tags, `urlprefix-host/path option=value …`, to routes.

    target   :port                 a TCP listener
             ip:port               a TCP listener on one address
             host/path, /path      HTTP, gRPC or, with proto=tcp+sni, a TLS name

`$DC` and `${DC}` stand for the datacenter, other variables for nothing. Options are listed in OPTIONS.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from lepa.ingress.route_spec import Kind, Notice, Options, Reading, Redirect, RouteSpec
from lepa.model.errors import LepaError, invalid

VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
PORT = re.compile(r"(?P<address>|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")
HOST = re.compile(r"[^\s/?#@]*")

PROTOCOLS: Mapping[str, tuple[Kind, bool]] = {
    "http": (Kind.HTTP, False),
    "https": (Kind.HTTP, True),
    "ws": (Kind.HTTP, False),
    "wss": (Kind.HTTP, True),
    "grpc": (Kind.GRPC, False),
    "grpcs": (Kind.GRPC, True),
    "tcp": (Kind.TCP, False),
    "tcp+sni": (Kind.SNI, False),
}
"""What `proto=` may say: the kind of route, and whether the target speaks TLS."""


def read_tags(service: str, tags: tuple[str, ...], prefix: str, datacenter: str) -> Reading:
    """The routes of all tags that begin with `prefix`."""
    specs: list[RouteSpec] = []
    notices: list[Notice] = []
    for tag in tags:
        if not tag.startswith(prefix):
            continue
        try:
            spec, problems = _read(tag[len(prefix) :], datacenter)
        except LepaError as error:
            notices.append(Notice(service, tag, error.message))
        else:
            specs.append(spec)
            notices += [Notice(service, tag, problem) for problem in problems]
    return Reading(tuple(specs), tuple(notices))


def _read(text: str, datacenter: str) -> tuple[RouteSpec, list[str]]:
    """One tag without its prefix, and what is odd about it. Raises LepaError(invalid) when it is no route at all."""
    words = text.split()
    if not words:
        raise invalid("nothing follows the prefix; expected host/path or :port")
    target, problems = _expanded(words[0], datacenter), []
    fields: dict[str, Any] = {}
    kind, tls = Kind.HTTP, False
    for name, value in _options(words[1:]):
        if name == "proto":
            if value not in PROTOCOLS:
                raise invalid(f'proto "{value}" is not known; known are {", ".join(PROTOCOLS)}')
            kind, tls = PROTOCOLS[value]
        elif name not in OPTIONS:
            problems.append(f'option "{name}" is not known and has no effect')
        else:
            fields |= _option(name, value, problems)
    options = Options(tls=tls, **fields)
    return _placed(target, kind, options), problems


def _expanded(target: str, datacenter: str) -> str:
    return VARIABLE.sub(lambda found: datacenter if (found[1] or found[2]) == "DC" else "", target)


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, value = word.partition("=")
        yield name.lower(), value


def _option(name: str, value: str, problems: list[str]) -> dict[str, Any]:
    """The fields that an option sets. An option that guards access and cannot be read refuses the whole tag."""
    try:
        return OPTIONS[name](value)
    except ValueError as error:
        if name in GUARDS:
            raise invalid(f"{name}={value}: {error}") from error
        problems.append(f"{name}={value}: {error}; it has no effect")
        return {}


def _placed(target: str, kind: Kind, options: Options) -> RouteSpec:
    if found := PORT.fullmatch(target):
        port = int(found["port"])
        if not 0 < port < 65_536:
            raise invalid(f"port {port} is out of range")
        return RouteSpec(kind=Kind.TCP, port=port, address=_address(found["address"]), options=options)
    if kind == Kind.TCP:
        raise invalid("proto=tcp needs a target such as :7000")
    host, slash, path = target.partition("/")
    if not slash:
        raise invalid(f'"{target}" has no slash; a host is written {target}/')
    if not HOST.fullmatch(host):
        raise invalid(f'"{host}" is not a host')
    return RouteSpec(kind=kind, host=host.lower(), path=f"/{path}" if kind != Kind.SNI else "", options=options)


def _address(text: str) -> str:
    try:
        return str(ip_address(text.strip("[]"))) if text else ""
    except ValueError as error:
        raise invalid(f"{text} is not an IP address") from error


def _weight(value: str) -> dict[str, Any]:
    try:
        weight = float(value)
    except ValueError:
        raise ValueError("not a number") from None
    if not 0 <= weight <= 1:
        raise ValueError("a weight is between 0 and 1")
    return {"weight": weight}


def _redirect(value: str) -> dict[str, Any]:
    code, comma, url = value.partition(",")
    if not comma or not code.isdecimal() or not 300 <= int(code) <= 399 or not url or not url.isascii():
        raise ValueError("expected a code from 300 to 399, a comma and a URL")
    return {"redirect": Redirect(int(code), url)}


def networks(value: str) -> tuple[str, ...]:
    """Networks of a list such as `ip:10.0.0.0/8,ip:192.168.1.7`. Raises ValueError."""
    found = []
    for part in value.split(","):
        word = part.strip().removeprefix("ip:")
        found.append(str(ip_network(word, strict=False)))
    return tuple(found)


def _proxy_protocol(value: str) -> dict[str, Any]:
    versions = {"true": 1, "v1": 1, "1": 1, "v2": 2, "2": 2, "false": 0, "0": 0, "": 0}
    if value.lower() not in versions:
        raise ValueError("expected true, v1 or v2")
    return {"proxy_protocol": versions[value.lower()]}


def _true(value: str) -> bool:
    return value.lower() in {"true", "1", "yes"}


def _path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("a path begins with a slash")
    return value


OPTIONS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "weight": _weight,
    "strip": lambda value: {"strip": (_path(value),)},
    "prepend": lambda value: {"prepend": _path(value)},
    "host": lambda value: {"host": value},
    "redirect": _redirect,
    "tlsskipverify": lambda value: {"tls_verify": not _true(value)},
    "grpcservername": lambda value: {"tls_name": value},
    "tlsservername": lambda value: {"tls_name": value},
    "register": lambda value: {"register": value},
    "auth": lambda value: {"auth": value},
    "allow": lambda value: {"allow": networks(value)},
    "deny": lambda value: {"deny": networks(value)},
    "pxyproto": _proxy_protocol,
    "onleave": lambda value: {"keep": value == "keep"},
    "pick": lambda value: {"first": value == "first"},
}
GUARDS = frozenset({"allow", "deny", "auth", "redirect"})
