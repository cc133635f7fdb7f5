"""Pure: what a client of Consul's agent registers: services and checks, understood and refused.

Keys are taken in any case and with underscores, as Consul does for checks. Checks that run on the agent are of the
kinds http, tcp, grpc and ttl; others would need to run foreign commands or speak protocols that nobody asked for, and
are refused with a sentence.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from lepa.consul import bodies
from lepa.consul.bodies import Json, lowered
from lepa.kit.durations import MINUTE, SECOND
from lepa.model.errors import invalid
from lepa.model.service import CheckState, ServiceRegistration

STATUSES = ("passing", "warning", "critical")
META_MAX, META_KEY_MAX, META_VALUE_MAX = 64, 128, 512
SHORT_MAX = 65_535
"""Of ports, and of weights in SRV records."""
CHECKS_MAX = 64
"""Checks of one service."""
INTERVAL_MIN = 1 * SECOND
TIMEOUT_DEFAULT = 10 * SECOND
DEREGISTER_MIN = 1 * MINUTE
OUTPUT_MAX = 4_096

KINDS = ("http", "tcp", "grpc", "ttl")
FOREIGN = {
    "args": "script",
    "script": "script",
    "dockercontainerid": "docker",
    "udp": "udp",
    "h2ping": "h2ping",
    "osservice": "os_service",
    "aliasnode": "alias",
    "aliasservice": "alias",
}
"""Keys of checks that are not run, and what Consul calls their kinds."""


class Definition(NamedTuple):
    """How a check is asked. Times are nanoseconds; a kind of "ttl" is not asked but told.

    target: a URL, or `host:port`, for gRPC with `/service` behind it. deregister_after: 0 for never.
    """

    kind: str
    target: str = ""
    interval: int = 0
    timeout: int = TIMEOUT_DEFAULT
    ttl: int = 0
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    tls: bool = False
    tls_server_name: str = ""
    tls_skip_verify: bool = False
    redirects: bool = True
    success_before_passing: int = 0
    failures_before_warning: int = 0
    failures_before_critical: int = 0
    deregister_after: int = 0


class AgentNode(NamedTuple):
    """The node that registrations of an agent belong to, and the agent's name."""

    agent: str
    node_id: str
    address: str
    datacenter: str


def service_of(body: Any, node: AgentNode) -> ServiceRegistration:
    """The instance that a body registers. Raises LepaError(invalid)."""
    given = lowered(body)
    name = bodies.text(given, "name") or bodies.text(given, "service")
    if not name:
        raise invalid("Missing service name")
    address = bodies.text(given, "address")
    if _is_any(address):
        raise invalid("Invalid service address")
    service_id = bodies.text(given, "id") or name
    weights = lowered(bodies.mapping(given, "weights"))
    found = ServiceRegistration(
        id=service_id,
        service_name=name,
        namespace=bodies.text(given, "namespace") or bodies.text(given, "ns"),
        node_id=node.node_id,
        datacenter=node.datacenter,
        tags=bodies.texts(given, "tags"),
        address=address or node.address,
        port=bodies.number(given, "port", most=SHORT_MAX),
        weight=bodies.number(weights, "passing", 1, SHORT_MAX),
        warning_weight=bodies.number(weights, "warning", 1, SHORT_MAX),
        meta=_meta(given),
        checks=tuple(_checks(given, service_id)),
        node_name=node.agent,
        node_address="" if node.node_id else node.address,
        agent=node.agent,
    )
    return with_status(found)


def _checks(given: Json, service_id: str) -> Iterable[CheckState]:
    """The checks of a body, with ids of their own where it gives them none."""
    found = _check_bodies(given)
    several = len(found) > 1
    for number, body in enumerate(found, 1):
        yield check_of(body, f"service:{service_id}:{number}" if several else f"service:{service_id}")


def _check_bodies(given: Json) -> list[Any]:
    found = [*([given["check"]] if given.get("check") else []), *bodies.objects(given, "checks")]
    if len(found) > CHECKS_MAX:
        raise invalid(f"a service has at most {CHECKS_MAX} checks")
    return found


def outside_of(body: Any, datacenter: str) -> ServiceRegistration:
    """The instance that a machine outside the cluster offers, as `catalog/register` tells of it. Its checks are not
    asked here: whoever registered it tells of their results. Raises LepaError(invalid)."""
    given = lowered(body)
    node, address = bodies.text(given, "node"), bodies.text(given, "address")
    if not node or not address:
        raise invalid("Must provide node and address")
    if not given.get("service"):
        raise invalid("a node without a service is not kept; give a Service")
    where = AgentNode("", "", address, bodies.text(given, "datacenter") or datacenter)
    offered = {key: value for key, value in lowered(given["service"]).items() if key not in ("check", "checks")}
    service = service_of(offered, where)
    checks = [_told_check(each, service.id) for each in _check_bodies(given)]
    return with_checks(replace(service, node_name=node, node_address=address), checks)


def _told_check(body: Any, service_id: str) -> CheckState:
    given = lowered(body)
    name = bodies.text(given, "name")
    return CheckState(
        id=bodies.text(given, "checkid") or name or f"service:{service_id}",
        name=name,
        status=_status(given),
        output=bodies.text(given, "output")[:OUTPUT_MAX],
        notes=bodies.text(given, "notes"),
    )


def check_of(body: Any, default_id: str) -> CheckState:
    """The check that a body registers. Raises LepaError(invalid)."""
    given = lowered(body)
    kind = definition_of(body).kind
    check_id = bodies.text(given, "checkid") or bodies.text(given, "id") or default_id
    if not check_id:
        raise invalid("Missing check name or id")
    return CheckState(
        id=check_id,
        name=bodies.text(given, "name") or f"Service check {check_id}",
        type=kind,
        status=_status(given),
        notes=bodies.text(given, "notes"),
        definition={key: value for key, value in body.items() if value not in (None, "", 0, False, [], {})},
    )


def _status(given: Json) -> str:
    status = bodies.text(given, "status").lower() or "critical"
    if status not in STATUSES:
        raise invalid(f"Status for checks must 'passing', 'warning', 'critical', not '{status}'")
    return status


def definition_of(body: Any) -> Definition:
    """How the check of a body is asked. Raises LepaError(invalid)."""
    given = lowered(body)
    foreign = next((kind for key, kind in FOREIGN.items() if given.get(key)), None)
    if foreign:
        raise invalid(f"checks of the kind {foreign} are not run by this agent; use http, tcp, grpc or ttl")
    interval, ttl = bodies.duration(given, "interval"), bodies.duration(given, "ttl")
    named = [kind for kind in KINDS if given.get(kind) and (kind != "ttl" or ttl)]
    if ttl and interval:
        raise invalid("Interval and TTL cannot both be specified")
    if len(named) != 1:
        raise invalid("a check needs one of HTTP, TCP, GRPC (each with an Interval) and TTL")
    kind = named[0]
    if kind != "ttl" and interval <= 0:
        raise invalid(f"Interval must be > 0 for {kind.upper()} checks")
    critical = bodies.number(given, "failuresbeforecritical")
    warning = bodies.number(given, "failuresbeforewarning") or critical
    if warning > critical:
        raise invalid("FailuresBeforeWarning can't be higher than FailuresBeforeCritical")
    deregister = bodies.duration(given, "deregistercriticalserviceafter")
    target = "" if kind == "ttl" else bodies.text(given, kind)
    _check_target(kind, target)
    return Definition(
        kind=kind,
        target=target,
        interval=max(interval, INTERVAL_MIN) if kind != "ttl" else 0,
        timeout=bodies.duration(given, "timeout") or TIMEOUT_DEFAULT,
        ttl=ttl,
        method=bodies.text(given, "method") or "GET",
        headers=tuple(_headers(bodies.mapping(given, "header"))),
        body=bodies.text(given, "body"),
        tls=bodies.flag(given, "grpcusetls" if kind == "grpc" else "tcpusetls"),
        tls_server_name=bodies.text(given, "tlsservername"),
        tls_skip_verify=bodies.flag(given, "tlsskipverify"),
        redirects=not bodies.flag(given, "disableredirects"),
        success_before_passing=bodies.number(given, "successbeforepassing"),
        failures_before_warning=warning,
        failures_before_critical=critical,
        deregister_after=max(deregister, DEREGISTER_MIN) if deregister else 0,
    )


def _check_target(kind: str, target: str) -> None:
    if kind == "http" and not _is_url(target):
        raise invalid(f'HTTP check needs a URL such as "http://127.0.0.1:8080/health", not "{target}"')
    if kind in ("tcp", "grpc"):
        host_and_port(target)


def _is_url(target: str) -> bool:
    try:
        parts = urlsplit(target)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def host_and_port(target: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`, what stands behind a slash left out. Raises LepaError(invalid)."""
    host, colon, port = target.partition("/")[0].rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise invalid(f'a check needs an address such as "10.0.0.1:5432", not "{target}"')
    return host.strip("[]"), int(port)


def with_status(service: ServiceRegistration) -> ServiceRegistration:
    """The instance with the worst status of its checks."""
    return replace(service, status=max((c.status for c in service.checks), key=STATUSES.index, default="passing"))


def with_checks(service: ServiceRegistration, checks: Iterable[CheckState]) -> ServiceRegistration:
    """The instance with other checks."""
    return with_status(replace(service, checks=tuple(checks)))


def _meta(given: Json) -> dict[str, str]:
    meta = dict(bodies.pairs(given, "meta"))
    if len(meta) > META_MAX:
        raise invalid(f"Node metadata cannot contain more than {META_MAX} key/value pairs")
    for key, value in meta.items():
        if not key or len(key) > META_KEY_MAX or len(value) > META_VALUE_MAX:
            raise invalid(
                f"metadata keys have 1 to {META_KEY_MAX} characters and values up to {META_VALUE_MAX}: {key[:40]!r}"
            )
    return meta


def _headers(given: Json) -> Iterable[tuple[str, str]]:
    for name, values in given.items():
        for value in values if isinstance(values, list) else [values]:
            yield _header_part(name), _header_part(value)


def _header_part(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise invalid("names and values of headers are printable texts")
    return value


def _is_any(address: str) -> bool:
    try:
        return ip_address(address).is_unspecified
    except ValueError:
        return False
